import assert from "node:assert/strict";
import { test } from "node:test";
import { envelope, joinSeries, lowerBound, nearest } from "../src/pure/downsample.js";
import { smooth } from "../src/pure/smooth.js";

test("smoothing starts at the first value and leaves constants alone", () => {
  assert.deepEqual(
    smooth([2, 2, 2], 0.9).map((value) => Number(value.toFixed(9))),
    [2, 2, 2],
  );
  const smoothed = smooth([0, 10], 0.5);
  assert.ok(Math.abs(smoothed[1] - 20 / 3) < 1e-9);
});

test("smoothing leaves gaps where values are not finite", () => {
  assert.deepEqual(smooth([1, NaN, null], 0.5), [1, null, null]);
});

test("no smoothing gives the values as they are", () => {
  assert.deepEqual(smooth([3, 1], 0), [3, 1]);
});

test("a short series keeps each point", () => {
  const result = envelope([1, 2, 3], [5, 6, 7], { buckets: 10 });
  assert.deepEqual(result, { x: [1, 2, 3], low: [5, 6, 7], high: [5, 6, 7], line: [5, 6, 7] });
});

test("a long series keeps its extremes", () => {
  const xs = Array.from({ length: 100000 }, (_, i) => i);
  const values = xs.map(() => 1);
  values[33333] = 99;
  values[77777] = -99;
  const result = envelope(xs, values, { buckets: 500, weight: 0.9 });
  assert.ok(result.x.length <= 500);
  assert.equal(Math.max(...result.high), 99);
  assert.equal(Math.min(...result.low), -99);
  assert.ok(result.line.every((value) => value > 0 && value < 12));
});

test("a part of a series has a neighbour at both ends", () => {
  const xs = [0, 10, 20, 30, 40];
  assert.deepEqual(envelope(xs, xs, { buckets: 10, from: 15, to: 25 }).x, [10, 20, 30]);
  assert.deepEqual(envelope([], [], { buckets: 10 }).x, []);
});

test("series with points of their own share an axis", () => {
  const joined = joinSeries([
    { x: [1, 3], y: [10, null] },
    { x: [2, 3], y: [20, 30] },
  ]);
  assert.deepEqual(joined, [
    [1, 2, 3],
    [10, undefined, null],
    [undefined, 20, 30],
  ]);
});

test("the nearest point is found", () => {
  assert.equal(lowerBound([1, 2, 3], 2.5), 2);
  assert.equal(nearest([1, 2, 4], 2.9), 1);
  assert.equal(nearest([1, 2, 4], 3.1), 2);
  assert.equal(nearest([1, 2, 4], -5), 0);
  assert.equal(nearest([1, 2, 4], 50), 2);
  assert.equal(nearest([], 1), -1);
});
