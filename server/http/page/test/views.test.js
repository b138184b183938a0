import assert from "node:assert/strict";
import { test } from "node:test";
import { changesOf, editsOf, isCommonField, paramsOf } from "../src/pure/edits.js";
import { legendRows } from "../src/pure/legend.js";
import { treeOf } from "../src/pure/lineage.js";
import { marksOf } from "../src/pure/marks.js";
import { axisOf, goodness, valueAxis } from "../src/pure/parallel.js";
import { filePath } from "../src/pure/paths.js";
import { appendPoint, groupMetrics, seriesOf, stepAt } from "../src/pure/points.js";

const curve = (key, xs, values, more = {}) => ({ key, xs, values, ...more });

test("the best curve comes first, and the baseline gives distances", () => {
  const series = [
    curve("a", [1, 2, 3], [0.5, 0.6, 0.7], { isBase: true }),
    curve("b", [1, 2, 3], [0.9, 0.8, 0.6]),
    curve("c", [1], [NaN]),
    curve("d", [], []),
  ];
  const rows = legendRows(series, 2.1, "more");
  assert.deepEqual(rows.map(({ key }) => key), ["b", "a", "c", "d"]);
  assert.ok(Math.abs(rows[0].delta - 0.2) < 1e-9);
  assert.equal(rows[1].delta, undefined);
  assert.equal(legendRows(series, null, "less")[0].key, "b");
});

test("a run that has ended has no value beyond its end", () => {
  const [row] = legendRows([curve("a", [1, 2, 3], [5, 6, 7])], 50, "more");
  assert.equal(row.value, undefined);
});

test("a new attempt replaces points from its checkpoint on", () => {
  const series = seriesOf([]);
  for (const step of [1, 2, 3, 4]) appendPoint(series, step, step, step, 1);
  appendPoint(series, 3, 9, 30, 2);
  appendPoint(series, 4, 5, 40, 1);
  assert.deepEqual(series.steps, [1, 2, 3]);
  assert.deepEqual(series.values, [1, 2, 30]);
  assert.equal(stepAt(series, 2), 1);
  assert.equal(stepAt(seriesOf([]), 2), undefined);
});

test("training and test values share a chart, and results come first", () => {
  const groups = groupMetrics(["gpu.memory", "lr", "test.accuracy", "test.loss", "train.loss"]);
  assert.deepEqual(groups.map(({ title }) => title), ["loss", "accuracy", "lr", "gpu.memory"]);
  assert.deepEqual(groups[0].names, ["test.loss", "train.loss"]);
});

test("what happened to a job is marked on either axis", () => {
  const events = [
    { type: "CHECKPOINT_COMMITTED", message: "checkpoint at step 20 of attempt 1", time: "2026-01-01T00:00:10Z" },
    { type: "JOB_QUEUED", time: "2026-01-01T00:00:00Z" },
  ];
  const attempts = [
    { name: "jobs/1/attempts/1", state: "ATTEMPT_STATE_PREEMPTED", end_time: "2026-01-01T00:00:20Z" },
    {
      name: "jobs/1/attempts/2", state: "ATTEMPT_STATE_RUNNING", start_time: "2026-01-01T00:00:30Z",
      resumed_from_step: "20",
    },
  ];
  const begin = Date.parse("2026-01-01T00:00:00Z");
  assert.deepEqual(marksOf(events, attempts, { axis: "time", begin }), [
    { x: 10, kind: "checkpoint" }, { x: 20, kind: "preemption" }, { x: 30, kind: "restart" },
  ]);
  const longest = seriesOf([{ step: "7", time: "2026-01-01T00:00:05Z", value: 1 }]);
  assert.deepEqual(marksOf(events, attempts, { axis: "step", begin, longest }), [
    { x: 20, kind: "checkpoint" }, { x: 7, kind: "preemption" }, { x: 20, kind: "restart" },
  ]);
});

test("edits become changes and parameters, and come back", () => {
  const fields = { name: "a", "train.epochs": 3, "optimizer.sgd.lr": 0.1 };
  const edits = editsOf(["train.epochs=5", 'name="12"', "optimizer.sgd.lr=0.1", "time_limit=10 min", "broken"]);
  assert.deepEqual(changesOf(edits, fields), [
    { path: "train.epochs", value_json: "5" },
    { path: "name", value_json: '"12"' },
    { path: "time_limit", value_json: '"10 min"' },
  ]);
  assert.deepEqual(editsOf(paramsOf(edits, fields)), { "train.epochs": "5", name: "12", time_limit: "10 min" });
  assert.ok(isCommonField("optimizer.adamw.lr"));
  assert.ok(!isCommonField("memory.recompute"));
});

test("trials stand on axes of the scales that they were drawn from", () => {
  const rate = axisOf("lr", "log(1e-3, 1)", ["0.001", "1"]);
  assert.equal(rate.place("0.001"), 0);
  assert.ok(Math.abs(rate.place("0.1") - 2 / 3) < 1e-9);
  assert.deepEqual(rate.ticks.map(({ text }) => text), ["0.001", "0.01", "0.1", "1"]);
  const batch = axisOf("batch", "[25, 50, 100]", ["100", "25", "50", "25"]);
  assert.equal(batch.place("50"), 0.5);
  assert.equal(batch.place("7"), undefined);
  assert.equal(valueAxis([NaN], String).place(1), undefined);
  assert.equal(goodness(3, [1, 2, 3], true), 1);
  assert.equal(goodness(3, [1, 2, 3], false), 0);
  assert.equal(goodness(NaN, [1, 2], true), 0);
});

test("a lineage is a forest, whatever its links say", () => {
  const link = (parent, kind = "LINEAGE_KIND_CLONE", step) => ({ parent, kind, step });
  const roots = treeOf([
    { name: "jobs/1" },
    { name: "jobs/2", links: [link("jobs/1", "LINEAGE_KIND_FROM", "20")] },
    { name: "jobs/3", links: [link("sweeps/1/trials/0", "LINEAGE_KIND_SWEEP")] },
    { name: "jobs/4", links: [link("jobs/5")] },
    { name: "jobs/5", links: [link("jobs/4")] },
    { name: "jobs/6", links: [link("jobs/6")] },
  ]);
  assert.deepEqual(roots.map(({ name }) => name).sort(), ["jobs/1", "jobs/5", "jobs/6", "sweeps/1/trials/0"]);
  assert.deepEqual(roots[0].children[0].kinds, ["continues from step 20"]);
});

test("names of files are parts of addresses", () => {
  assert.equal(filePath("jobs/1/checkpoints/9", "a b/ü?.pt"), "/files/jobs/1/checkpoints/9/a%20b/%C3%BC%3F.pt");
});
