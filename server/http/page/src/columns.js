// Says what each column of the run table shows, how it sorts, and by which word the server sorts by it.
import { html } from "./html.js";
import { Best } from "./best.js";
import { leaves, took } from "./job_row.js";
import { ago, duration, isActive, isShare, metric, number, asNumber } from "./pure/format.js";
import { leafText } from "./pure/spec.js";
import { Link, jobPath } from "./router.js";
import { State, Progress, Verified } from "./widgets.js";

const kStates = ["RUNNING", "STARTING", "STOPPING", "QUEUED", "SUSPENDED", "FAILED", "SUCCEEDED", "CANCELLED"];

const core = {
  id: { title: "#", width: 68, right: true, value: (row) => row.id, order: "id", cell: (row) => String(row.id) },
  state: {
    title: "State",
    width: 104,
    value: (row) => kStates.indexOf(row.state?.replace("JOB_STATE_", "")),
    order: "state",
    cell: (row) => html`<${State} state=${row.state} />`,
    text: (row) => row.state?.replace("JOB_STATE_", "").toLowerCase(),
  },
  name: {
    title: "Name",
    width: 230,
    grow: true,
    value: (row) => row.title,
    order: "name",
    cell: (row) => html`
      <${Link} class="row-link" href=${jobPath(row.name)} title=${row.title}>${row.title || row.name}</${Link}>
      ${row.verified && html`<${Verified} verified=${row.verified} />`}
      ${row.tags.slice(0, 3).map((tag) => html`<span class="tag" key=${tag}>${tag}</span>`)}`,
    text: (row) => row.title,
  },
  user: { title: "User", width: 84, value: (row) => row.user, order: "user" },
  project: { title: "Project", width: 90, value: (row) => row.project, order: "project" },
  model: { title: "Model", width: 86, value: (row) => row.model, order: "model" },
  dataset: { title: "Data set", width: 100, value: (row) => row.dataset, order: "dataset" },
  devices: { title: "Devices", width: 72, right: true, value: (row) => row.devices, order: "devices" },
  attempts: { title: "Attempts", width: 78, right: true, value: (row) => row.attempt, order: "attempts" },
  priority: { title: "Priority", width: 72, right: true, value: (row) => row.priority },
  sweep: {
    title: "Sweep",
    width: 66,
    right: true,
    value: (row) => row.sweep ?? NaN,
    order: "sweep",
    cell: (row) =>
      row.sweep !== undefined &&
      html`<${Link} class="cell-link" href=${`/sweeps/${row.sweep}`}>${row.sweep}</${Link}>`,
    text: (row) => row.sweep,
  },
  progress: {
    title: "Progress",
    width: 132,
    value: (row) => (row.totalSteps ? row.step / row.totalSteps : NaN),
    cell: (row) => html`<${Progress} row=${row} />`,
    text: (row) => (row.totalSteps ? `${row.step}/${row.totalSteps}` : ""),
  },
  eta: {
    title: "Left",
    width: 84,
    right: true,
    value: (row) => (isActive(row.state) ? (row.eta ?? NaN) : NaN),
    cell: (row) => (isActive(row.state) && row.eta !== undefined ? duration(row.eta) : ""),
  },
  took: {
    title: "Ran for",
    width: 88,
    right: true,
    order: "duration",
    value: (row, now) => took(row, now) ?? NaN,
    cell: (row, now) => duration(took(row, now)),
  },
  device_time: {
    title: "Device time",
    width: 92,
    right: true,
    value: (row) => row.deviceTime ?? NaN,
    cell: (row) => duration(row.deviceTime),
  },
  created: {
    title: "Submitted",
    width: 102,
    right: true,
    value: (row) => row.created ?? NaN,
    order: "created",
    cell: (row, now) => ago(row.created, now),
    text: (row) => (row.created === undefined ? "" : new Date(row.created).toISOString()),
  },
  reason: {
    title: "Reason",
    width: 260,
    grow: true,
    value: (row) => row.reason,
    cell: (row) => html`<span class="dim" title=${row.reason}>${row.reason}</span>`,
    text: (row) => row.reason,
  },
  note: { title: "Note", width: 220, grow: true, value: (row) => row.note, order: "note" },
  tags: {
    title: "Tags",
    width: 140,
    value: (row) => row.tags.join(" "),
    cell: (row) => row.tags.map((tag) => html`<span class="tag" key=${tag}>${tag}</span>`),
    text: (row) => row.tags.join(" "),
  },
};

export const kDefaultColumns = [
  "id",
  "state",
  "name",
  "user",
  "progress",
  "test.accuracy",
  "train.loss",
  "took",
  "created",
];

export const coreColumns = Object.entries(core).map(([key, { title }]) => ({ key, title }));

// The column of a key: one of the above, "test.accuracy" for a metric's last value, "best:test.accuracy" for its best,
// and else the path of a field of the spec. `metrics` says which words are metrics.
export function columnOf(key, metrics) {
  if (core[key]) return withDefaults({ key, ...core[key] });
  if (key.startsWith("best:")) {
    const name = key.slice(5);
    return withDefaults({
      key,
      title: `best ${name}`,
      width: 112,
      right: true,
      value: (row) => Best.valueOf(row, name) ?? NaN,
      cell: (row) => html`<${Best} row=${row} metric=${name} />`,
    });
  }
  if (metrics.has(key) || /^(test|train)\./.test(key)) {
    const isMetric = metrics.has(key) || !/^train\.(epochs|global_batch|seed|replicas|precision)/.test(key);
    if (isMetric) {
      return withDefaults({
        key,
        title: key,
        width: Math.max(92, 32 + key.length * 7),
        right: true,
        order: /^(test|train)\./.test(key) ? key : undefined,
        value: (row) => asNumber(row.metrics[key]),
        cell: (row) => (row.metrics[key] === undefined ? "" : metric(key, row.metrics[key])),
      });
    }
  }
  return withDefaults({
    key,
    title: key.split(".").slice(-1)[0],
    hint: key,
    width: 96,
    right: true,
    order: key,
    value: (row) => leaves(row)[key],
    cell: (row) => {
      const value = leaves(row)[key];
      return typeof value === "number" ? number(value) : leafText(value);
    },
    text: (row) => leafText(leaves(row)[key]),
  });
}

function withDefaults(column) {
  const cell = column.cell ?? ((row) => String(column.value(row) ?? ""));
  const text =
    column.text ??
    ((row, now) => {
      const value = column.value(row, now);
      return typeof value === "number" && Number.isNaN(value) ? "" : value;
    });
  return { ...column, cell, text };
}

// Compares two rows by a column; what has no value comes last in both directions.
export function comparator(column, isDescending, now) {
  const sign = isDescending ? -1 : 1;
  return (left, right) => {
    const a = column.value(left, now);
    const b = column.value(right, now);
    const hasA = a !== undefined && a !== "" && !Number.isNaN(a);
    const hasB = b !== undefined && b !== "" && !Number.isNaN(b);
    if (hasA !== hasB) return hasA ? -1 : 1;
    if (hasA && a !== b) {
      if (typeof a === "number" && typeof b === "number") return (a - b) * sign;
      return String(a).localeCompare(String(b), "en", { numeric: true }) * sign;
    }
    return right.id - left.id;
  };
}
