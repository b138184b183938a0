// Makes of a series of any length one with a point for each pixel, which keeps the extremes: each bucket has its
// smallest and its largest raw value, and the smoothed value at its end.
import { smooth } from "./smooth.js";

// Takes ascending xs with their values, and returns {x, low, high, line}, of at most `buckets` points each. If `from`
// and `to` are given, only what lies between them is shown, with a neighbour at both ends.
export function envelope(xs, values, { buckets, weight = 0, from, to }) {
  const line = smooth(values, weight);
  let begin = 0;
  let end = xs.length;
  if (from !== undefined) begin = Math.max(0, lowerBound(xs, from) - 1);
  if (to !== undefined) end = Math.min(xs.length, lowerBound(xs, to) + 1);
  const result = { x: [], low: [], high: [], line: [] };
  const count = end - begin;
  if (count <= 0) return result;
  if (count <= buckets) {
    for (let i = begin; i < end; ++i) {
      const value = Number.isFinite(values[i]) ? values[i] : null;
      result.x.push(xs[i]);
      result.low.push(value);
      result.high.push(value);
      result.line.push(Number.isFinite(line[i]) ? line[i] : null);
    }
    return result;
  }
  const span = xs[end - 1] - xs[begin] || 1;
  for (let i = begin; i < end;) {
    const bucket = Math.min(buckets - 1, Math.floor(((xs[i] - xs[begin]) / span) * buckets));
    let low = Infinity;
    let high = -Infinity;
    let last = null;
    let at = xs[i];
    for (; i < end && Math.min(buckets - 1, Math.floor(((xs[i] - xs[begin]) / span) * buckets)) === bucket; ++i) {
      if (!Number.isFinite(values[i])) continue;
      low = Math.min(low, values[i]);
      high = Math.max(high, values[i]);
      last = line[i];
      at = xs[i];
    }
    result.x.push(at);
    result.low.push(low === Infinity ? null : low);
    result.high.push(high === -Infinity ? null : high);
    result.line.push(last);
  }
  return result;
}

// The index of the first x that is not below `value`.
export function lowerBound(xs, value) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The index of the x nearest to `value`; -1 of none.
export function nearest(xs, value) {
  if (xs.length === 0) return -1;
  const after = Math.min(lowerBound(xs, value), xs.length - 1);
  if (after === 0) return 0;
  return value - xs[after - 1] <= xs[after] - value ? after - 1 : after;
}

// Puts series with xs of their own on one axis: [x, values of the first, values of the second, ...]. A series has
// `undefined` where it has no point, over which a line is drawn, and keeps null, which is a gap.
export function joinSeries(series) {
  const all = [...new Set(series.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const place = new Map(all.map((x, index) => [x, index]));
  return [
    all,
    ...series.map(({ x, y }) => {
      const values = new Array(all.length).fill(undefined);
      x.forEach((at, index) => {
        values[place.get(at)] = y[index];
      });
      return values;
    }),
  ];
}
