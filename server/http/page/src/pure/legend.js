// Orders the curves of a chart by their values at a place.
import { nearest } from "./downsample.js";

// Returns the series with {value, at, delta}: the raw value nearest to x, or the last if x is null; `delta` is the
// distance from the baseline, if one of them is that. The best comes first, or the largest if `better` is neither
// "more" nor "less"; those without a value come last. A run that ended before x has no value there.
export function legendRows(series, x, better) {
  const rows = series.map((one) => ({ ...one, ...valueAt(one, x) }));
  const base = rows.find(({ isBase }) => isBase);
  if (base?.value !== undefined) {
    for (const row of rows) {
      if (row !== base && Number.isFinite(row.value)) row.delta = row.value - base.value;
    }
  }
  const order = (value) =>
    value === undefined ? Infinity : Number.isNaN(value) ? 1e300 : better === "less" ? value : -value;
  return rows.sort((a, b) => order(a.value) - order(b.value) || 0);
}

function valueAt({ xs, values }, x) {
  if (xs.length === 0) return {};
  if (x === null) return { value: values[values.length - 1], at: xs[xs.length - 1] };
  const index = nearest(xs, x);
  const space = xs.length > 1 ? (xs[xs.length - 1] - xs[0]) / (xs.length - 1) : 0;
  if (x > xs[xs.length - 1] + space || x < xs[0] - space) return {};
  return { value: values[index], at: xs[index] };
}
