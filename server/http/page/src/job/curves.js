// The curves of one job, with marks where something happened to it.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ChartControls, chartSettings, setZoom, useChartGroup } from "../charts/board.js";
import { Chart } from "../charts/chart.js";
import { runColour } from "../charts/colours.js";
import { Metrics } from "../charts/metrics.js";
import { html } from "../html.js";
import { isActive } from "../pure/format.js";
import { marksOf } from "../pure/marks.js";
import { groupMetrics } from "../pure/points.js";
import { Empty, ErrorBox } from "../widgets.js";

const kMarkTitles = {
  checkpoint: "checkpoint",
  restart: "restart",
  preemption: "preemption",
  suspension: "suspension",
  failure: "failure",
};

export function Curves({ job, row, events, attempts }) {
  const settings = chartSettings();
  const group = useChartGroup();
  const follow = isActive(job.state);
  const [metrics, setMetrics] = useState(null);
  useEffect(() => {
    const made = new Metrics(job.name, { follow });
    setMetrics(made);
    return () => made.close();
  }, [job.name, follow]);

  const all = metrics?.series.value ?? new Map();
  const begin = row.started ?? row.created;
  const groups = useMemo(() => groupMetrics([...all.keys()]), [[...all.keys()].join("|")]);
  const longest = [...all.values()].reduce(
    (best, one) => (one.steps.length > (best?.steps.length ?? 0) ? one : best),
    null,
  );
  const marks = useMemo(
    () => marksOf(events, attempts, { axis: settings.axis, begin, longest }),
    [events, attempts, settings.axis, begin, all],
  );
  const charts = useMemo(
    () =>
      groups.map((one) => ({
        ...one,
        series: one.names.map((name, index) => curve(name, index, all.get(name), settings.axis, begin)),
      })),
    [groups, all, settings.axis, begin],
  );
  if (metrics?.error.value) return html`<${ErrorBox} error=${metrics.error.value} />`;
  if (charts.length === 0) {
    if (!metrics || metrics.isLoading.value) return html`<div class="loading">Loading curves</div>`;
    return html`<${Empty} title="No metrics yet">${
      follow ? "They appear here as soon as the job reports some." : "This job has reported none."
    }</${Empty}>`;
  }
  const kinds = [...new Set(marks.map(({ kind }) => kind))];
  return html`<div class="stack">
    <${ChartControls} settings=${settings} group=${group}>
      <span class="spacer"></span>
      <span class="mark-key" aria-label="Marks">${kinds.map((kind) =>
        html`<span key=${kind} class=${`mark mark-${kind}`}>${kMarkTitles[kind]}</span>`)}</span>
    </${ChartControls}>
    <div class="charts">${charts.map(
      ({ title, names, series, isResult }) =>
        html`<${Chart}
          key=${title}
          title=${title}
          metric=${names[0]}
          series=${series}
          settings=${settings}
          marks=${marks}
          group=${group}
          onZoom=${setZoom}
          file=${`job-${row.id}`}
          isResult=${isResult}
        />`,
    )}</div>
  </div>`;
}

// Training curves keep the first colour and test curves the second, whichever came first.
function curve(name, index, one, axis, begin) {
  const place = name.startsWith("train.") ? 0 : name.startsWith("test.") ? 1 : index;
  return {
    key: name,
    label: name,
    colour: runColour(place),
    isThinned: one.isThinned,
    xs: axis === "time" ? one.times.map((time) => (time - begin) / 1000) : one.steps,
    values: one.values,
  };
}
