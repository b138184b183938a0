// One sweep: all trials over the axes of their parameters, the ladder of rungs, the best trial, the decisions.
import { useMemo, useState } from "preact/hooks";
import { call, sayError } from "../api.js";
import { html, classes } from "../html.js";
import { useCall } from "../load.js";
import { duration, lastPart, metric, millis, number, seconds, word } from "../pure/format.js";
import { shortNames } from "../pure/differences.js";
import { Link, param, setParams } from "../router.js";
import { mayChange } from "../session.js";
import { Confirm, Empty, Time } from "../widgets.js";
import { Ladder } from "./ladder.js";
import { Parallel } from "./parallel.js";
import { objectiveOf, SweepState } from "./sweeps.js";

const kTrialStates = {
  active: "running",
  paused: "suspended",
  stopped: "cancelled",
  succeeded: "succeeded",
  failed: "failed",
};

export function Sweep({ id }) {
  const name = `sweeps/${id}`;
  const [isOver, setOver] = useState(false);
  const {
    data: sweep,
    error,
    reload,
  } = useCall("SweepService/GetSweep", { name, with_decisions: true }, { everyMs: isOver ? undefined : 2500 });
  const [marked, setMarked] = useState(null);
  const [action, setAction] = useState(null);
  const trials = useMemo(() => (sweep?.trials ?? []).map((trial) => ({ index: 0, rung: 0, ...trial })), [sweep]);
  if (!sweep) {
    return html`<main class="view" id="main">
      ${
        error
          ? html`<${Empty} title=${`${name} cannot be shown`}>${sayError(error)}</${Empty}>`
          : html`<div class="loading">Loading ${name}</div>`
      }
    </main>`;
  }
  const isRunning = sweep.state === "SWEEP_STATE_RUNNING";
  if (isOver === isRunning) setOver(!isRunning);
  const objective = objectiveOf(sweep);
  const isLarge = Boolean(sweep.spec?.sweep?.maximize);
  const best = trials.find(({ index }) => index === (sweep.best_trial ?? 0) && (sweep.best_trial ?? 0) >= 0);
  const paths = Object.keys(sweep.spec?.sweep?.parameters ?? {}).sort();
  const short = shortNames(paths);
  const ids = trials
    .filter(({ job }) => job)
    .sort(byValue(isLarge))
    .slice(0, 10)
    .map(({ job }) => lastPart(job));
  const may = mayChange(sweep.user);
  return html`<main class="view" id="main">
    <p class="crumbs"><${Link} href="/sweeps">Sweeps</${Link}> / ${id}</p>
    <div class="view-head"><h1>${sweep.title}</h1><${SweepState} state=${sweep.state} /><span
      class="dim">${sweep.reason}</span>
      <span class="spacer"></span>
      ${ids.length > 1 &&
        html`<${Link} class="button" href=${`/compare?jobs=${ids.join(",")}`}>Compare the best ${ids.length}</${Link}>`}
      <${Link} class="button" href=${`/?q=${encodeURIComponent(`sweep = ${id}`)}`}>Its runs</${Link}>
      ${
        isRunning &&
        html`<button type="button" class="button" disabled=${!may} onClick=${() => setAction("stop")}>Stop…</button>
          <button type="button" class="button button-danger" disabled=${!may} onClick=${() => setAction("cancel")}>
            Cancel…
          </button>`
      }
      ${sweep.state === "SWEEP_STATE_STOPPED" &&
        html`<button type="button" class="button" disabled=${!may}
          onClick=${() => setAction("resume")}>Resume…</button>`}
      ${
        !isRunning &&
        trials.some(({ state }) => state === "TRIAL_STATE_FAILED") &&
        html`<button type="button" class="button" disabled=${!may} onClick=${() => setAction("retry")}>
          Run failed trials again…
        </button>`
      }</div>
    ${
      action &&
      html`<${Act}
        action=${action}
        sweep=${sweep}
        onEnd=${() => {
          setAction(null);
          reload();
        }}
      />`
    }
    ${(sweep.warnings ?? []).map((warning) => html`<p class="warn" key=${warning}>${warning}</p>`)}
    <div class="stack">
      <section class="panel panel-body" aria-label="Facts"><dl class="facts">
        <div class="fact-result"><dt>best ${objective}</dt>
          <dd>${best ? metric(objective, sweep.best_value ?? 0) : "–"}</dd></div>
        ${best && html`<div><dt>Best trial</dt><dd>${best.index}, <${Link}
          href=${`/${best.job}`}>job ${lastPart(best.job)}</${Link}></dd></div>`}
        ${
          best &&
          paths.map(
            (path) =>
              html`<div key=${path}>
                <dt title=${path}>${short[path]}</dt>
                <dd>${valueText(best.values?.[path])}</dd>
              </div>`,
          )
        }
        <div><dt>Search</dt><dd>${word(sweep.spec?.sweep?.search, "SWEEP_SEARCH_")}</dd></div>
        <div><dt>Trials</dt>
          <dd>${number(sweep.trials_begun ?? 0)} of ${number(sweep.trials_total ?? 0)} begun,
            ${" "}${number(sweep.trials_ended ?? 0)} ended</dd></div>
        <div><dt>At a time</dt><dd>${number(sweep.concurrent ?? 0)}</dd></div>
        <div><dt>Device time</dt><dd>${duration(seconds(sweep.device_time))}</dd></div>
        <div><dt>Owner</dt><dd>${sweep.user}</dd></div></dl></section>
      <${Parallel} sweep=${sweep} trials=${trials} paths=${paths} short=${short} objective=${objective}
        isLarge=${isLarge}
        marked=${marked} onMark=${setMarked} file=${`sweep-${id}`} />
      ${
        (sweep.rungs ?? []).length > 1 &&
        html`<${Ladder}
          rungs=${sweep.rungs}
          trials=${trials}
          objective=${objective}
          isLarge=${isLarge}
          marked=${marked}
          onMark=${setMarked}
        />`
      }
      <${Trials} trials=${trials} paths=${paths} short=${short} objective=${objective} isLarge=${isLarge} best=${best}
        marked=${marked}
        onMark=${setMarked} hasRungs=${(sweep.rungs ?? []).length > 1} />
      <details class="panel decisions"><summary class="panel-head">
        <h2>${(sweep.decisions ?? []).length} decisions</h2></summary>
        <ol class="panel-body">${(sweep.decisions ?? []).toReversed().map(
          ({ sequence, time, text }) =>
            html`<li key=${sequence}>
              <span class="dim num"><${Time} ms=${millis(time)} /></span> ${text}
            </li>`,
        )}</ol></details>
    </div>
  </main>`;
}

const byValue = (isLarge) => (a, b) => {
  const value = (trial) => (typeof trial.value === "number" ? (isLarge ? -trial.value : trial.value) : Infinity);
  return value(a) - value(b) || a.index - b.index;
};

export function valueText(json) {
  if (json === undefined) return "–";
  const value = Number(json);
  return json !== "" && !Number.isNaN(value) ? number(value) : json.replace(/^"|"$/g, "");
}

function Trials({ trials, paths, short, objective, isLarge, best, marked, onMark, hasRungs }) {
  const sort = param("sort");
  const key = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const rows = trials.slice().sort(
    key === ""
      ? byValue(isLarge)
      : (a, b) => {
          const value = (trial) => (key === "index" ? trial.index : Number(trial.values?.[key] ?? NaN));
          return (value(a) - value(b)) * sign || a.index - b.index;
        },
  );
  const header = (name, title) =>
    html`<th
      scope="col"
      class="right"
      key=${name}
      aria-sort=${key === name ? (sign > 0 ? "ascending" : "descending") : "none"}
    >
      <button
        type="button"
        class="link head-sort"
        title=${name}
        onClick=${() => setParams({ sort: key === name && sign > 0 ? `-${name}` : name })}
      >
        ${title}${key === name ? (sign > 0 ? " ↑" : " ↓") : ""}
      </button>
    </th>`;
  return html`<section class="panel scroll-x" aria-label="Trials">
    <table class="table">
      <thead>
        <tr>
          ${header("index", "Trial")}
          <th scope="col">State</th>
          <th scope="col" class="right">
            <button type="button" class="link head-sort" onClick=${() => setParams({ sort: "" })}>
              ${objective}${key === "" ? (isLarge ? " ↓" : " ↑") : ""}
            </button>
          </th>
          ${hasRungs && html`<th scope="col" class="right">Rung</th>`}
          <th scope="col" class="right">Step</th>
          ${paths.map((path) => header(path, short[path]))}
          <th scope="col">Job</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map((trial) => {
          const state = word(trial.state, "TRIAL_STATE_");
          return html`<tr
            key=${trial.index}
            class=${classes(marked === trial.index && "trial-marked")}
            onMouseEnter=${() => onMark(trial.index)}
            onMouseLeave=${() => onMark(null)}
          >
            <td class="right">${trial.index}${trial === best && html` <span class="tag best-tag">best</span>`}</td>
            <td><span class=${`state state-${kTrialStates[state]}`} title=${trial.failure}>${state}</span></td>
            <td class="right">${trial.value === undefined ? "–" : metric(objective, trial.value)}</td>
            ${hasRungs && html`<td class="right">${trial.rung}</td>`}
            <td class="right">${number(trial.step ?? 0)}</td>
            ${paths.map((path) => html`<td class="right mono" key=${path}>${valueText(trial.values?.[path])}</td>`)}
            <td>${trial.job && html`<${Link} href=${`/${trial.job}`}>${lastPart(trial.job)}</${Link}>`}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </section>`;
}

const kActs = {
  stop: [
    "Stop the sweep?",
    "No trial begins any more; those that wait or run are suspended. It can go on later.",
    "Stop the sweep",
    "StopSweep",
    {},
  ],
  cancel: [
    "Cancel the sweep?",
    "All trials that have not ended are cancelled for good.",
    "Cancel the sweep",
    "StopSweep",
    { cancel: true },
  ],
  resume: [
    "Resume the sweep?",
    "Its suspended trials go on, and new ones begin.",
    "Resume the sweep",
    "ResumeSweep",
    {},
  ],
  retry: [
    "Run the failed trials again?",
    "They run with the values that they had.",
    "Run them again",
    "ResumeSweep",
    { retry_failed: true },
  ],
};

function Act({ action, sweep, onEnd }) {
  const [title, text, button, method, more] = kActs[action];
  return html`<${Confirm}
    title=${title}
    text=${text}
    action=${button}
    kind=${action === "cancel" ? "button-danger" : undefined}
    onNo=${onEnd}
    onYes=${async () => {
      await call(`SweepService/${method}`, { name: sweep.name, ...more });
      onEnd();
    }}
  />`;
}
