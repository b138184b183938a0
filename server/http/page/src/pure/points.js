// Makes series of the points of the API.
import { asNumber } from "./format.js";

// {steps, times, values, attempts} of points in ascending order of their steps.
export function seriesOf(points) {
  return {
    steps: points.map(({ step }) => Number(step ?? 0)),
    times: points.map(({ time }) => Date.parse(time)),
    values: points.map(({ value }) => asNumber(value ?? 0)),
    attempts: points.map(({ attempt }) => attempt ?? 0),
    isThinned: false,
  };
}

// Adds a point as it arrives. A new attempt goes back to its checkpoint, so its points replace those from there on.
export function appendPoint(series, step, time, value, attempt) {
  const { steps, times, values, attempts } = series;
  if (attempts.length > 0 && attempts[attempts.length - 1] > attempt) return;
  while (steps.length > 0 && steps[steps.length - 1] >= step) {
    steps.pop();
    times.pop();
    values.pop();
    attempts.pop();
  }
  steps.push(step);
  times.push(time);
  values.push(value);
  attempts.push(attempt);
}

// The step at which a series was at a time, between its points; undefined without points.
export function stepAt(series, time) {
  if (!series || series.steps.length === 0) return undefined;
  const { steps, times } = series;
  for (let i = 0; i < steps.length; ++i) if (times[i] >= time) return i === 0 ? steps[0] : steps[i - 1];
  return steps[steps.length - 1];
}

// The groups in which metrics share a chart: what is measured on training and test data in the same unit together.
export function groupMetrics(names) {
  const groups = new Map();
  for (const name of names) {
    const match = /^(?:train|test|val|valid|validation|eval)[./](.+)$/.exec(name);
    const title = match ? match[1] : name;
    if (!groups.has(title)) groups.set(title, { title, names: [], isResult: Boolean(match) });
    const group = groups.get(title);
    group.names.push(name);
    group.isResult ||= Boolean(match);
  }
  const rank = ({ title, isResult }) => {
    if (title === "loss") return 0;
    if (title === "accuracy") return 1;
    if (isResult) return 2;
    if (/^(lr|samples_per_s|grad|tokens)/.test(title)) return 3;
    return /^(gpu|cpu|comm|compute|io|host|memory|net|disk)[._]/.test(title) ? 5 : 4;
  };
  return [...groups.values()].sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title));
}
