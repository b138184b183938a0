// Shows the best value of a metric of a run. Lists of jobs have the last values alone, so the series of the rows that
// are in sight are asked for, a few at a time.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "./api.js";
import { html } from "./html.js";
import { asNumber, direction, metric as metricText } from "./pure/format.js";

const kPointsMax = 2000;
const kCallsMax = 3;

const values = new Map();
const waiting = [];
let running = 0;

const keyOf = (row, name) => `${row.uid}/${name}`;

function entryOf(row, name) {
  const key = keyOf(row, name);
  if (!values.has(key)) values.set(key, { etag: undefined, best: signal(undefined) });
  return values.get(key);
}

function want(row, name) {
  const entry = entryOf(row, name);
  if (entry.etag !== row.etag) {
    entry.etag = row.etag;
    waiting.push({ row, name, entry });
    work();
  }
}

async function work() {
  if (running >= kCallsMax) return;
  const next = waiting.pop();
  if (!next) return;
  running += 1;
  try {
    const answer = await call("JobService/QueryMetrics", {
      name: next.row.name,
      metrics: [next.name],
      max_points: kPointsMax,
      sampling: "METRIC_SAMPLING_EXTREMES",
    });
    const points = (answer.series?.[0]?.points ?? []).map(({ value }) => asNumber(value)).filter(Number.isFinite);
    const better = direction(next.name) === "more" ? Math.max : Math.min;
    next.entry.best.value = points.length === 0 ? null : points.reduce((a, b) => better(a, b));
  } catch {
    next.entry.etag = undefined;
  } finally {
    running -= 1;
    work();
  }
}

export function Best({ row, metric }) {
  const best = entryOf(row, metric).best.value;
  const has = row.metrics[metric] !== undefined;
  useEffect(() => {
    if (has) want(row, metric);
  }, [row.uid, row.etag, metric, has]);
  if (!has || best === null) return "";
  return best === undefined ? html`<span class="dim">…</span>` : metricText(metric, best);
}

Best.valueOf = (row, name) => values.get(keyOf(row, name))?.best.value ?? undefined;
