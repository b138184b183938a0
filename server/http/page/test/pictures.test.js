import assert from "node:assert/strict";
import { test } from "node:test";
import { differencesOf } from "../src/pure/differences.js";
import { withChanges } from "../src/pure/edits.js";
import { momentsOf } from "../src/pure/hosting.js";
import { median, scalingOf } from "../src/pure/scaling.js";
import { barsOf, expectedEnd, expectedLanes, lanesOf, needsAttempts, reservedOf, timeTicks } from "../src/pure/schedule.js";
import { addLines, covered, spanOf, stepOf } from "../src/pure/timeline.js";

const kNow = 1000_000;
const sight = { from: 0, to: 2000_000, now: kNow };
const place = (device, rank = 0) => ({ rank, worker: "workers/a", device });
const job = (id, more) => ({
  id,
  name: `jobs/${id}`,
  attempt: 1,
  state: "JOB_STATE_RUNNING",
  placement: [],
  ...more,
});

test("a job that runs has a bar up to now, and an expected end by its speed or its limit", () => {
  const rows = [
    job(1, { started: 500_000, eta: 60, placement: [place("gpu-0")] }),
    job(2, { started: 900_000, limit: 300, placement: [place("gpu-1")] }),
    job(3, { started: 10_000, ended: 20_000, state: "JOB_STATE_FAILED", placement: [place("gpu-0")] }),
    job(4, { attempt: 0 }),
  ];
  const bars = barsOf(rows, () => undefined, sight);
  assert.deepEqual(
    bars.map(({ row, begin, end, isOver, expected, state }) => [row.id, begin, end, isOver, expected, state]),
    [
      [3, 10_000, 20_000, true, undefined, "failed"],
      [1, 500_000, kNow, false, kNow + 60_000, "running"],
      [2, 900_000, kNow, false, 1200_000, "running"],
    ],
  );
  assert.equal(expectedEnd({ limit: 1 }, 0, kNow), kNow);
  assert.equal(expectedEnd({}, 0, kNow), undefined);
});

test("what is out of sight has no bar, and what is expected to reach into sight has one", () => {
  const rows = [
    job(1, { started: 1, ended: 2 }),
    job(2, { started: 1, eta: 9000 }),
    job(3, { started: undefined }),
  ];
  const later = { from: 2000_000, to: 3000_000, now: kNow };
  assert.deepEqual(
    barsOf(rows, () => undefined, later).map(({ row }) => row.id),
    [2],
  );
  assert.ok(needsAttempts(rows[2]));
  assert.ok(needsAttempts(job(9, { attempt: 2, started: 1 })));
  assert.ok(!needsAttempts(rows[0]));
});

test("each attempt has a bar of its own", () => {
  const attempts = [
    { number: 1, places: [place("gpu-0")], begin: 1, end: 5, state: "preempted" },
    { number: 2, places: [place("gpu-1")], begin: 9, end: undefined, state: "running" },
  ];
  const bars = barsOf([job(7, { attempt: 2, started: 1 })], () => attempts, sight);
  assert.deepEqual(
    bars.map(({ number, isOver }) => [number, isOver]),
    [
      [1, true],
      [2, false],
    ],
  );
});

test("devices that are gone have a lane beside those of their worker", () => {
  const workers = [{ name: "workers/a", devices: [{ name: "gpu-0", type: "h200" }] }, { name: "workers/b" }];
  const bars = [
    { row: job(1), places: [place("gpu-0"), place("gpu-9", 1)] },
    { row: job(2), places: [{ worker: "workers/gone" }] },
  ];
  assert.deepEqual(
    lanesOf(workers, bars).map(({ key, type, bars: own }) => [key, type, own.length]),
    [
      ["workers/a/gpu-0", "h200", 1],
      ["workers/a/gpu-9", "", 1],
      ["workers/gone/", "", 1],
    ],
  );
});

test("jobs that wait stand by their expected starts, if these are in sight", () => {
  const rows = [job(1, { limit: 60 }), job(2, {}), job(3, {}), job(4, {})];
  const explanations = {
    "jobs/1": { start_time: new Date(kNow + 5000).toISOString(), start_basis: "when jobs/9 ends" },
    "jobs/2": { start_time: new Date(kNow + 1000).toISOString() },
    "jobs/3": { start_basis: "nothing is known" },
    "jobs/4": { start_time: new Date(9000_000).toISOString() },
  };
  assert.deepEqual(
    expectedLanes(rows, explanations, sight).map(({ row, begin, end, basis }) => [row.id, begin, end, basis]),
    [
      [2, kNow + 1000, undefined, ""],
      [1, kNow + 5000, kNow + 65_000, "when jobs/9 ends"],
    ],
  );
});

test("a reservation is shown on each of its devices, as far as it is in sight", () => {
  const at = (ms) => new Date(ms).toISOString();
  const devices = [
    { worker: "workers/a", device: "gpu-0" },
    { worker: "workers/a", device: "gpu-1" },
  ];
  const reservations = [
    { name: "later", start_time: at(1500_000), end_time: at(1600_000), devices, subjects: ["project:x", "user:anna"] },
    { name: "begun", end_time: at(1200_000), devices: devices.slice(1), subjects: ["user:*"] },
    { name: "over", start_time: at(-2000), end_time: at(-1000), devices, subjects: ["user:*"] },
    { name: "far", start_time: at(3000_000), end_time: at(4000_000), devices, subjects: ["user:*"] },
  ];
  const reserved = reservedOf(reservations, sight);
  const shown = (key) => reserved.get(key).map(({ name, begin, end }) => [name, begin, end]);
  assert.deepEqual([...reserved.keys()].sort(), ["workers/a/gpu-0", "workers/a/gpu-1"]);
  assert.deepEqual(shown("workers/a/gpu-0"), [["later", 1500_000, 1600_000]]);
  assert.deepEqual(shown("workers/a/gpu-1"), [
    ["begun", kNow, 1200_000],
    ["later", 1500_000, 1600_000],
  ]);
  assert.deepEqual(reserved.get("workers/a/gpu-0")[0].subjects, ["project:x", "user:anna"]);
});

test("times of the axis are round, and few", () => {
  const from = new Date(2026, 10, 28, 9, 7).getTime();
  const ticks = timeTicks(from, from + 6 * 3600e3, 10);
  assert.deepEqual(
    ticks.map(({ text }) => text),
    ["10:00", "11:00", "12:00", "13:00", "14:00", "15:00"],
  );
  const days = timeTicks(from, from + 7 * 86400e3, 10);
  assert.deepEqual(
    days.slice(0, 2).map(({ text }) => text),
    ["11-29", "11-30"],
  );
  assert.equal(
    timeTicks(from, from + 20 * 3600e3, 10).some(({ text }) => text === "11-29"),
    true,
  );
});

const line = (kind, ts, dur, step = 2, name = "x") =>
  JSON.stringify({ name, cat: kind, ph: "X", ts, dur, pid: 0, tid: 0, args: { step } });

test("lines that are no spans are left out, whatever they hold", () => {
  const bad = [
    "",
    "{",
    "null",
    "3",
    '{"ph":"M","name":"rank"}',
    line("comm", "a", 2),
    line("comm", 1, -2),
    '{"ph":"X","name":"x","ts":1,"dur":1}',
    '{"ph":"X","name":{},"ts":1,"dur":1,"args":{"step":2}}',
  ];
  assert.deepEqual(
    bad.map(spanOf),
    bad.map(() => undefined),
  );
  assert.equal(spanOf(line("<script>", 1, 2)).kind, "other");
});

test("a step is summed up by what ranks computed, sent and waited for", () => {
  const steps = addLines(new Map(), 1, [line("compute", 100, 50), line("wait", 150, 30), line("comm", 140, 60)]);
  addLines(steps, 0, [line("compute", 90, 10), line("data", 80, 5), line("compute", 1, 1, 3)]);
  assert.deepEqual([...steps.keys()], [2, 3]);
  const { begin, end, ranks } = stepOf(steps.get(2));
  assert.deepEqual([begin, end], [80, 200]);
  assert.deepEqual(
    ranks.map(({ rank }) => rank),
    [0, 1],
  );
  assert.equal(ranks[0].hidden, undefined);
  assert.equal(ranks[0].data, 5);
  assert.deepEqual([ranks[1].compute, ranks[1].comm, ranks[1].wait, ranks[1].length], [50, 60, 30, 100]);
  assert.equal(ranks[1].hidden, 0.5);
  assert.deepEqual(
    ranks[1].lanes.map(([kind, spans]) => [kind, spans.length]),
    [
      ["compute", 2],
      ["comm", 1],
    ],
  );
  assert.equal(
    covered([
      { begin: 0, end: 10 },
      { begin: 2, end: 4 },
      { begin: 12, end: 13 },
    ]),
    11,
  );
});

const run = (id, devices, more = {}) => ({ id, name: `jobs/${id}`, devices, placement: [], spec: {}, ...more });

test("the speed of runs is set against the one on the fewest devices", () => {
  const speeds = { 1: [1, 100, 100, 100, 100], 2: [1, 180, 180, 180, 180], 3: [1, 320, 320, 320, 320] };
  const all = ({ id }) => new Map([["samples_per_s", { values: speeds[id] }]]);
  const points = scalingOf([run(3, 4), run(1, 1), run(2, 2)], all);
  assert.deepEqual(
    points.map(({ devices, speedUp }) => [devices, speedUp]),
    [
      [1, 1],
      [2, 1.8],
      [4, 3.2],
    ],
  );
  assert.deepEqual(
    points.map(({ efficiency }) => efficiency),
    [1, 0.9, 0.8],
  );
  assert.deepEqual(scalingOf([run(1, 2), run(2, 2)], all), []);
  assert.deepEqual(
    scalingOf([run(1, 1), run(2, 2)], () => undefined),
    [],
  );
  assert.equal(median([NaN]), undefined);
});

test("a short run has the speed that the times of its points say", () => {
  const steps = Array.from({ length: 10 }, (_, index) => index + 1);
  const of = (ms) => new Map([["train.loss", { values: steps, steps, times: steps.map((step) => step * ms) }]]);
  const spec = { train: { global_batch: "50" } };
  const runs = [run(1, 1, { spec }), run(2, 2, { spec })];
  const points = scalingOf(runs, ({ id }) => of(id === 1 ? 100 : 50));
  assert.deepEqual(
    points.map(({ speed }) => Math.round(speed)),
    [500, 1000],
  );
});

test("checkpoints tell how replicas have moved", () => {
  const states = [
    { step: 10, hosting: [2, 2] },
    { step: 20, hosting: [2, 2] },
    { step: 30, hosting: [3, 1] },
    null,
    { step: 40, hosting: "<script>" },
    { step: 50, hosting: [1e9] },
  ];
  const progress = { step: "35", hosting: [{ replicas: 3 }, { rank: 1, replicas: 1 }, { stage: 1, replicas: 3 }] };
  assert.deepEqual(
    momentsOf(states, progress).map(({ step, counts, isNow = false }) => [step, counts, isNow]),
    [
      [10, [2, 2], false],
      [30, [3, 1], false],
      [35, [3, 1], true],
    ],
  );
  assert.deepEqual(momentsOf([], {}), []);
});

test("changes of a spec go where their paths say, and nowhere else", () => {
  const spec = { name: "a", model: { mlp: { hidden: [32, 16] } }, schedule: "constant" };
  const set = (path, value_json) => withChanges(spec, [{ path, value_json }]);
  assert.deepEqual(set("model.mlp.hidden[1]", "8").model.mlp.hidden, [32, 8]);
  assert.deepEqual(set("schedule.cosine.warmup", "3").schedule, { constant: {}, cosine: { warmup: 3 } });
  assert.deepEqual(set("name", ""), { model: spec.model, schedule: "constant" });
  assert.equal(set("__proto__.hacked", "1").hacked, undefined);
  assert.equal({}.hacked, undefined);
  assert.equal(spec.name, "a");
  assert.deepEqual(differencesOf({ a: 1, b: [1] }, { b: [1], c: "x" }), [
    { path: "a", left_json: "1", right_json: "" },
    { path: "c", left_json: "", right_json: '"x"' },
  ]);
});
