// The list of runs: filter, sort, choose columns, select, compare.
import { useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, sayError } from "./api.js";
import { columnOf, comparator, kDefaultColumns } from "./columns.js";
import { ColumnMenu } from "./column_menu.js";
import { now, returns } from "./connection.js";
import { html, classes } from "./html.js";
import { JobList, kRowsMax } from "./jobs.js";
import { useKeys } from "./keys.js";
import { toCsv } from "./pure/csv.js";
import { whereOf } from "./pure/expression.js";
import { counted, isActive, number } from "./pure/format.js";
import { go, jobPath, listOf, param, setParams } from "./router.js";
import { RunTable } from "./run_table.js";
import { me, mayChange } from "./session.js";
import { useDebounced } from "./virtual.js";
import { Confirm, download, Empty, Menu } from "./widgets.js";

const list = new JobList();

const kStateChoices = [
  ["", "All"],
  ["running", "Running", ["JOB_STATE_RUNNING", "JOB_STATE_STARTING", "JOB_STATE_STOPPING"]],
  ["queued", "Queued", ["JOB_STATE_QUEUED", "JOB_STATE_SUSPENDED"]],
  ["failed", "Failed", ["JOB_STATE_FAILED"]],
  ["succeeded", "Succeeded", ["JOB_STATE_SUCCEEDED"]],
  ["cancelled", "Cancelled", ["JOB_STATE_CANCELLED"]],
];

export function Runs() {
  const state = param("state");
  const user = param("user");
  const where = whereOf(param("q"));
  const columnKeys = listOf(param("cols")).length ? listOf(param("cols")) : kDefaultColumns;
  const sort = param("sort") || "-id";
  const selected = new Set(listOf(param("sel")));
  const rows = list.rows.value;

  const metrics = useComputed(() => {
    const names = new Set();
    for (const row of list.rows.value.slice(0, 500)) for (const name of Object.keys(row.metrics)) names.add(name);
    return names;
  }).value;
  const columns = useMemo(() => columnKeys.map((key) => columnOf(key, metrics)), [columnKeys.join(), metrics]);
  const sortColumn = columnOf(sort.replace(/^-/, ""), metrics);
  const isDescending = sort.startsWith("-");
  const orderBy = sort === "-id" || !sortColumn.order ? "" : `${sortColumn.order}${isDescending ? " desc" : ""}`;
  const states = kStateChoices.find(([key]) => key === state)?.[2] ?? [];

  useEffect(() => {
    list.open({ where, states, user, orderBy });
  }, [where, state, user, orderBy]);
  useEffect(() => () => list.close(), []);
  useEffect(() => {
    if (returns.value > 0) list.reload();
  }, [returns.value]);

  const sorted = useMemo(
    () => rows.slice().sort(comparator(sortColumn, isDescending, Date.now())),
    [rows, sort, metrics],
  );
  const [cursor, setCursor] = useState(0);
  const place = Math.min(cursor, Math.max(0, sorted.length - 1));
  const filter = useRef(null);
  const [isCancelling, setCancelling] = useState(false);

  const select = (names) => setParams({ sel: [...names].join(",") });
  const toggle = (row) => {
    const next = new Set(listOf(param("sel")));
    if (!next.delete(String(row.id))) next.add(String(row.id));
    select(next);
  };
  const compare = () => selected.size > 0 && go(`/compare?jobs=${[...selected].join(",")}`);
  const current = sorted[place];
  useKeys([
    { key: "j", does: "next run", action: () => setCursor(Math.min(place + 1, sorted.length - 1)) },
    { key: "k", does: "run before", action: () => setCursor(Math.max(place - 1, 0)) },
    { key: "Enter", does: "open the run", action: () => current && go(jobPath(current.name)) },
    { key: "x", does: "select the run", action: () => current && toggle(current) },
    { key: "c", does: "compare the selected runs", action: compare },
    { key: "/", does: "filter", action: () => filter.current?.focus() },
  ]);

  const chosen = sorted.filter((row) => selected.has(String(row.id)));
  const cancellable = chosen.filter((row) => isActive(row.state) && mayChange(row.user));
  const saveCsv = () =>
    download(
      "runs.csv",
      toCsv(
        columns.map(({ key }) => key),
        sorted.map((row) => columns.map(({ text }) => text(row, now.value))),
      ),
      "text/csv",
    );

  return html`<main class="view view-fill" id="main">
    <div class="toolbar">
      <${Filter} input=${filter} error=${list.error.value} />
      <div class="chips" role="group" aria-label="State">
        ${kStateChoices.map(
          ([key, title]) =>
            html` <button
              type="button"
              key=${key}
              class=${classes("chip", state === key && "chip-on")}
              aria-pressed=${state === key}
              onClick=${() => setParams({ state: key })}
            >
              ${title}
            </button>`,
        )}
      </div>
      <label class="check"><input type="checkbox" checked=${user !== ""}
        onChange=${(event) => setParams({ user: event.target.checked ? (me.value?.user ?? "") : "" })} /> Mine</label>
      <span class="spacer"></span>
      <span class="dim num" aria-live="polite">${countText(sorted.length)}</span>
      <${ColumnMenu} chosen=${columnKeys} metrics=${metrics} rows=${sorted} />
      <${Menu} label="Save" align="right">
        <button type="button" class="menu-item" data-close onClick=${saveCsv}>Table as CSV</button>
        <button type="button" class="menu-item" data-close
          onClick=${() => download("runs.json", JSON.stringify(sorted.map(plainRow), null, 1), "application/json")}>
          Table as JSON</button>
      </${Menu}>
    </div>
    ${
      selected.size > 0 &&
      html`<div class="selection-bar" role="region" aria-label="Selected runs">
        <span>${counted(selected.size, "run")} selected</span>
        <button type="button" class="button button-primary" onClick=${compare}>Compare</button>
        ${
          cancellable.length > 0 &&
          html`<button type="button" class="button button-danger" onClick=${() => setCancelling(true)}>
            Cancel ${cancellable.length}…
          </button>`
        }
        <button type="button" class="button button-quiet" onClick=${() => select([])}>Clear</button>
      </div>`
    }
    ${
      isCancelling &&
      html`<${Confirm}
        title=${`Cancel ${counted(cancellable.length, "run")}?`}
        text="They stop for good and cannot be resumed. What they have written stays."
        action="Cancel the runs"
        kind="button-danger"
        onNo=${() => setCancelling(false)}
        onYes=${async () => {
          await call("JobService/CancelJobs", {
            names: cancellable.map(({ name }) => name),
            reason: "from the dashboard",
          });
          setCancelling(false);
          select([]);
        }}
      />`
    }
    ${
      sorted.length === 0 && !list.isLoading.value
        ? html`<${NothingHere} isFiltered=${Boolean(where || state || user)} error=${list.error.value} />`
        : html`<${RunTable}
            rows=${sorted}
            columns=${columns}
            sort=${sort}
            selected=${selected}
            cursor=${place}
            isLoading=${list.isLoading.value}
            onToggle=${toggle}
            onCursor=${setCursor}
            onSelect=${(rows) => select(rows.map(({ id }) => id))}
          />`
    }
  </main>`;
}

function countText(shown) {
  const total = list.total.value;
  if (list.isLoading.value && shown === 0) return "loading";
  if (total !== undefined && total > shown) {
    return shown >= kRowsMax
      ? `${number(shown)} of ${number(total)} runs; filter for the others`
      : `${number(shown)} of ${number(total)} runs`;
  }
  return counted(shown, "run");
}

const plainRow = ({ name, title, state, user, project, step, totalSteps, metrics, tags, note, spec }) => ({
  name,
  title,
  state,
  user,
  project,
  step,
  total_steps: totalSteps,
  final_metrics: metrics,
  tags,
  note,
  resolved_spec: spec,
});

function Filter({ input, error }) {
  const [text, setText] = useState(param("q"));
  const outside = param("q");
  useEffect(() => setText(outside), [outside]);
  useDebounced(text, 250, (value) => {
    if (value !== param("q")) setParams({ q: value });
  });
  const isWrong = error?.status === 400;
  return html`<div class="filter">
    <input
      ref=${input}
      type="search"
      class=${classes("input", isWrong && "input-wrong")}
      value=${text}
      maxlength="900"
      placeholder="Filter: words, or test.accuracy > 0.9 and model = mlp"
      aria-label="Filter runs"
      spellcheck="false"
      onInput=${(event) => setText(event.target.value)}
      aria-invalid=${isWrong}
    />
    ${isWrong && html`<p class="filter-error" role="alert">${sayError(error)}</p>`}
  </div>`;
}

function NothingHere({ isFiltered, error }) {
  if (error) return html`<${Empty} title="The list could not be loaded">${sayError(error)}</${Empty}>`;
  if (isFiltered) {
    return html`<${Empty} title="No run matches">
      <button type="button" class="button" onClick=${() => setParams({ q: "", state: "", user: "" })}>
        Show all runs</button></${Empty}>`;
  }
  return html`<${Empty} title="No runs yet">Submit one from a terminal:
    <pre class="command">trainyard submit jobs/mlp-glyphs.yaml</pre></${Empty}>`;
}
