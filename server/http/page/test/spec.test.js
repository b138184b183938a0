import assert from "node:assert/strict";
import { test } from "node:test";
import { compareLeaves, shortNames } from "../src/pure/differences.js";
import { flatten, leafText, modelOf, peopleForm, rateOf, typedJson } from "../src/pure/spec.js";

test("a spec gets the form of a file", () => {
  const form = peopleForm({
    name: "600s",
    train: { epochs: "3", precision: "PRECISION_BF16" },
    evaluate: { every: { epochs: "1" } },
    checkpoint: { every: { automatic: true } },
    on_disconnect: { keep: "600s" },
    devices: { memory: { bytes: String(80 * 2 ** 30) } },
    stages: { schedule: "PIPELINE_SCHEDULE_1F1B" },
    program: { params: { depth: "5" } },
  });
  assert.deepEqual(form, {
    name: "600s",
    train: { epochs: 3, precision: "bf16" },
    evaluate: { every: "1 epoch" },
    checkpoint: { every: "auto" },
    on_disconnect: { keep: "10 min" },
    devices: { memory: "80 GiB" },
    stages: { schedule: "1f1b" },
    program: { params: { depth: "5" } },
  });
});

test("specs are flat by path", () => {
  assert.deepEqual(flatten({ a: { b: 1, c: [1, 2] }, s: [{ x: 1 }, { x: 2 }], e: {} }), {
    "a.b": 1,
    "a.c": [1, 2],
    "s[0].x": 1,
    "s[1].x": 2,
    e: {},
  });
  assert.equal(leafText([1, 2]), "[1,2]");
  assert.equal(leafText("auto"), "auto");
});

test("typed values are JSON or words", () => {
  assert.equal(typedJson("0.1"), "0.1");
  assert.equal(typedJson("[1, 2]"), "[1, 2]");
  assert.equal(typedJson("10 min"), '"10 min"');
  assert.equal(typedJson(" "), "");
});

test("models and rates are found", () => {
  assert.equal(modelOf({ model: { mlp: {} } }), "mlp");
  assert.equal(modelOf({ program: {} }), "program");
  assert.equal(rateOf({ optimizer: { adamw: { lr: 0.01 }, clip_norm: 1 } }), 0.01);
});

test("differences are marked by path", () => {
  assert.deepEqual(compareLeaves([{ b: 1, a: [1] }, { a: [1], b: 2 }, { a: [1] }]), [
    { path: "a", values: [[1], [1], [1]], differs: false },
    { path: "b", values: [1, 2, undefined], differs: true },
  ]);
});

test("paths are as short as they stay apart", () => {
  assert.deepEqual(shortNames(["optimizer.sgd.lr", "a.seed", "b.seed"]), {
    "optimizer.sgd.lr": "lr",
    "a.seed": "a.seed",
    "b.seed": "b.seed",
  });
});
