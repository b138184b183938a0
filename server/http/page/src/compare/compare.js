// Any jobs side by side: their curves in one chart each, what differs in their specs, and a baseline.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, forEachOf } from "../api.js";
import { ChartControls, chartSettings, setZoom, useChartGroup } from "../charts/board.js";
import { Chart } from "../charts/chart.js";
import { runColour } from "../charts/colours.js";
import { Metrics } from "../charts/metrics.js";
import { html, classes } from "../html.js";
import { leaves, row, took } from "../job_row.js";
import { compareLeaves, shortNames } from "../pure/differences.js";
import { direction, duration, isActive, metric as metricText } from "../pure/format.js";
import { groupMetrics } from "../pure/points.js";
import { leafText } from "../pure/spec.js";
import { go, Link, listOf, param, setParams } from "../router.js";
import { useKeys } from "../keys.js";
import { now, returns } from "../connection.js";
import { Empty, ErrorBox, State } from "../widgets.js";
import { Scaling } from "./scaling.js";

// More curves than this are no picture any more.
const kJobsMax = 50;
const kCallsAtOnce = 4;

export function Compare() {
  const ids = listOf(param("jobs")).slice(0, kJobsMax);
  const [runs, setRuns] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    let isOver = false;
    forEachOf(ids, kCallsAtOnce, async (id) => row(await call("JobService/GetJob", { name: `jobs/${id}` })))
      .then((rows) => !isOver && (setRuns(rows), setError(null)))
      .catch((failure) => !isOver && setError(failure));
    return () => {
      isOver = true;
    };
  }, [ids.join(), returns.value]);
  const all = useAllMetrics(runs);
  const settings = chartSettings();
  const group = useChartGroup();
  const base = param("base");
  const setBase = (id) => setParams({ base: id === base ? "" : id });
  useKeys([{ key: "u", does: "back to all runs", action: () => go("/") }]);

  const shown = runs.filter(({ id }) => ids.includes(String(id)));
  const charts = useCharts(shown, all, settings.axis, base);
  return html`<main class="view" id="main">
    <p class="crumbs"><${Link} href="/">Runs</${Link}> / compare</p>
    <div class="view-head"><h1>${ids.length === 1 ? "Compare 1 run with others" : `${ids.length} runs compared`}</h1>
      <span class="spacer"></span><${AddRun} ids=${ids} /></div>
    <${ErrorBox} error=${error} />
    ${
      ids.length === 0
        ? html`<${Empty} title="No run is chosen">Add one by its number, or select some in <${Link}
          href="/">the list</${Link}>.</${Empty}>`
        : html`<div class="stack">
            <${RunsTable} runs=${shown} ids=${ids} base=${base} setBase=${setBase} />
            <${ChartControls} settings=${settings} group=${group} />
            <div class="charts">
              ${charts.map(
                ({ title, names, series }) =>
                  html`<${Chart}
                    key=${title}
                    title=${title}
                    metric=${names[0]}
                    series=${series}
                    settings=${settings}
                    group=${group}
                    onZoom=${setZoom}
                    file=${`compare-${ids.join("-")}`}
                  />`,
              )}
            </div>
            <${Scaling} runs=${shown} all=${all} file=${`compare-${ids.join("-")}`} />
            <${Differences} runs=${shown} base=${base} />
          </div>`
    }
  </main>`;
}

// The metrics of each run by its name.
function useAllMetrics(runs) {
  const stores = useRef(new Map());
  const [, setTurn] = useState(0);
  const names = runs.map(({ name }) => name).join();
  useEffect(() => {
    const wanted = new Map(runs.map((one) => [one.name, one]));
    for (const [name, store] of stores.current) {
      if (wanted.has(name)) continue;
      store.close();
      stores.current.delete(name);
    }
    // A browser opens six connections to a server, so curves of runs that go on are asked for again and again.
    for (const [name, one] of wanted) {
      if (!stores.current.has(name)) {
        stores.current.set(name, new Metrics(name, { follow: isActive(one.state), polls: true }));
      }
    }
    setTurn((old) => old + 1);
  }, [names]);
  useEffect(() => () => stores.current.forEach((store) => store.close()), []);
  return new Map([...stores.current].map(([name, store]) => [name, store.series.value]));
}

function useCharts(runs, all, axis, base) {
  const cache = useRef(new Map());
  const metrics = [...new Set(runs.flatMap(({ name }) => [...(all.get(name)?.keys() ?? [])]))].sort();
  // Training and test values of many runs would be too many curves for one chart.
  const groups = useMemo(
    () =>
      groupMetrics(metrics).flatMap((one) =>
        one.names
          .sort()
          .reverse()
          .map((name) => ({ title: name, names: [name] })),
      ),
    [metrics.join("|")],
  );
  return groups.map((one) => {
    const series = runs.flatMap((run, index) => {
      const points = all.get(run.name)?.get(one.names[0]);
      if (!points) return [];
      const begin = run.started ?? run.created;
      return [
        {
          key: run.name,
          label: `${run.id} ${run.title}`,
          colour: runColour(index),
          isThinned: points.isThinned,
          dash: index >= 10 ? [6, 3] : undefined,
          href: `/jobs/${run.id}`,
          isBase: String(run.id) === base,
          xs: axis === "time" ? points.times.map((time) => (time - begin) / 1000) : points.steps,
          values: points.values,
          points,
        },
      ];
    });
    // If nothing has changed, the list is the same object as before, so that the chart is not drawn again.
    const old = cache.current.get(one.title);
    const isSame =
      old &&
      old.axis === axis &&
      old.series.length === series.length &&
      series.every(
        (each, index) =>
          each.points === old.series[index].points &&
          each.key === old.series[index].key &&
          each.isBase === old.series[index].isBase,
      );
    if (!isSame) cache.current.set(one.title, { axis, series });
    return { ...one, series: cache.current.get(one.title).series };
  });
}

function AddRun({ ids }) {
  const [text, setText] = useState("");
  const add = (event) => {
    event.preventDefault();
    const more = text.match(/\d+/g) ?? [];
    setParams({ jobs: [...new Set([...ids, ...more])].join(",") });
    setText("");
  };
  return html`<form class="add-run" onSubmit=${add}>
    <input
      class="input"
      placeholder="Add runs: 12 15"
      aria-label="Add runs by number"
      value=${text}
      onInput=${(event) => setText(event.target.value)}
    /><button class="button">Add</button>
  </form>`;
}

function RunsTable({ runs, ids, base, setBase }) {
  const names = [...new Set(runs.flatMap(({ metrics }) => Object.keys(metrics)))]
    .sort((a, b) =>
      a.startsWith("test.") === b.startsWith("test.") ? a.localeCompare(b) : a.startsWith("test.") ? -1 : 1,
    )
    .slice(0, 6);
  const best = Object.fromEntries(
    names.map((name) => {
      const values = runs.map(({ metrics }) => metrics[name]).filter((value) => typeof value === "number");
      const best = { more: Math.max, less: Math.min }[direction(name)];
      return [name, best && values.length > 1 ? best(...values) : undefined];
    }),
  );
  return html`<section class="panel scroll-x" aria-label="Runs">
    <table class="table">
      <thead>
        <tr>
          <th scope="col">Run</th>
          <th scope="col">State</th>
          ${names.map((name) => html`<th scope="col" class="right" key=${name}>${name}</th>`)}
          <th scope="col" class="right">Ran for</th>
          <th scope="col" class="right">Device time</th>
          <th scope="col"></th>
        </tr>
      </thead>
      <tbody>
        ${runs.map((run, index) => {
          const isBase = String(run.id) === base;
          return html`<tr key=${run.name}>
        <td class="nowrap"><span class="swatch swatch-inline" style=${{ background: `var(${runColour(index)})` }}
          aria-hidden="true"></span>
          <${Link} href=${`/jobs/${run.id}`}>${run.id} ${run.title}</${Link}></td>
        <td><${State} state=${run.state} /></td>
        ${names.map(
          (name) =>
            html`<td
              key=${name}
              class=${classes("right", run.metrics[name] === best[name] && best[name] !== undefined && "best-value")}
            >
              ${metricText(name, run.metrics[name])}
            </td>`,
        )}
        <td class="right">${duration(took(run, now.value))}</td><td class="right">${duration(run.deviceTime)}</td>
        <td class="right nowrap"><button type="button"
          class=${classes("button button-small", isBase ? "button-primary" : "button-quiet")} aria-pressed=${isBase}
            onClick=${() => setBase(String(run.id))}>${isBase ? "Baseline" : "Make baseline"}</button>
          <button type="button" class="button button-quiet button-small" aria-label=${`Remove run ${run.id}`}
            onClick=${() =>
              setParams({
                jobs: ids.filter((id) => id !== String(run.id)).join(","),
                base: isBase ? "" : base,
              })}>×</button></td>
      </tr>`;
        })}
      </tbody>
    </table>
  </section>`;
}

function Differences({ runs, base }) {
  const isAll = param("fields") === "all";
  const compared = useMemo(() => compareLeaves(runs.map(leaves)), [runs]);
  const shown = compared.filter(({ path, differs }) => (isAll || differs) && path !== "name");
  const short = shortNames(shown.map(({ path }) => path));
  const baseIndex = runs.findIndex(({ id }) => String(id) === base);
  if (runs.length === 0) return null;
  return html`<section class="panel scroll-x" aria-label="Config">
    <div class="panel-head">
      <h2>Config</h2>
      <label class="check"
        ><input
          type="checkbox"
          checked=${!isAll}
          onChange=${(event) => setParams({ fields: event.target.checked ? "" : "all" })}
        />
        Only what differs</label
      >
      <span class="dim"
        >${compared.filter(({ differs, path }) => differs && path !== "name").length} of ${compared.length} fields
        differ</span
      >
    </div>
    ${
      shown.length === 0
        ? html`<p class="panel-body dim">
            ${runs.length < 2 ? "Add a second run to see what differs." : "The specs are the same."}
          </p>`
        : html`<table class="table diff-table">
            <thead>
              <tr>
                <th scope="col">Field</th>
                ${runs.map(
                  (run, index) =>
                    html`<th scope="col" key=${run.name}>
                      <span
                        class="swatch swatch-inline"
                        style=${{ background: `var(${runColour(index)})` }}
                        aria-hidden="true"
                      ></span
                      >${run.id}
                    </th>`,
                )}
              </tr>
            </thead>
            <tbody>
              ${shown.map(
                ({ path, values, differs }) =>
                  html`<tr key=${path}>
                    <th scope="row" class="mono" title=${path}>${short[path]}</th>
                    ${values.map((value, index) => {
                      const against =
                        baseIndex >= 0 &&
                        index !== baseIndex &&
                        JSON.stringify(value) !== JSON.stringify(values[baseIndex]);
                      return html`<td
                        key=${index}
                        class=${classes("mono", against && "diff-other", !differs && "dim")}
                      >
                        ${value === undefined ? "–" : leafText(value)}
                      </td>`;
                    })}
                  </tr>`,
              )}
            </tbody>
          </table>`
    }
  </section>`;
}
