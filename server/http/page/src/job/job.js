// The page of one job.
import { useMemo } from "preact/hooks";
import { html, classes } from "../html.js";
import { row } from "../job_row.js";
import { useCall, useThrottled } from "../load.js";
import { useKeys } from "../keys.js";
import { go, Link, param, withParams } from "../router.js";
import { maySubmit } from "../session.js";
import { sayError } from "../api.js";
import { Empty, State, Verified } from "../widgets.js";
import { Actions } from "./actions.js";
import { Attempts } from "./attempts.js";
import { Checkpoints } from "./checkpoints.js";
import { Config } from "./config.js";
import { Curves } from "./curves.js";
import { Facts } from "./facts.js";
import { Failure } from "./failure.js";
import { useJob } from "./follow.js";
import { Lineage } from "./lineage.js";
import { Logs } from "./logs.js";
import { Notes } from "./notes.js";
import { Timeline } from "./timeline.js";
import { Waiting } from "./waiting.js";

const kTabs = [
  ["", "Curves", Curves],
  ["logs", "Logs", Logs],
  ["config", "Config", Config],
  ["checkpoints", "Files", Checkpoints],
  ["attempts", "History", Attempts],
  ["lineage", "Lineage", Lineage],
  ["timeline", "Timeline", Timeline],
];

export function Job({ id }) {
  const name = `jobs/${id}`;
  const { job, error, isDeleted, show } = useJob(name);
  // A job that runs changes often; its attempts and checkpoints are asked for no more than each 2 s.
  const etag = useThrottled(job?.etag ?? "", 2000);
  const attempts = useCall("JobService/ListAttempts", { parent: name }, { key: etag, isOff: !job });
  const checkpoints = useCall("CheckpointService/ListCheckpoints", { parent: name }, { key: etag, isOff: !job });
  const events = useCall("JobService/ListEvents", { parent: name, page_size: 1000 }, { key: etag, isOff: !job });
  const one = useMemo(() => (job ? row(job) : null), [job]);
  const tab = param("tab");
  const toTab = (key) => go(withParams({ tab: key, at: "", rank: "", find: "" }));
  useKeys([
    ...kTabs.map(([key, title], index) => ({
      key: String(index + 1),
      does: `show ${title.toLowerCase()}`,
      action: () => toTab(key),
    })),
    { key: "e", does: "clone with changes", action: () => maySubmit() && go(`/jobs/${id}/clone`) },
    { key: "c", does: "compare with others", action: () => go(`/compare?jobs=${id}`) },
    { key: "u", does: "back to all runs", action: () => go("/") },
  ]);

  if (!job) {
    return html`<main class="view" id="main">
      ${
        error
          ? html`<${Empty} title=${`jobs/${id} cannot be shown`}>${sayError(error)}</${Empty}>`
          : html`<div class="loading">Loading jobs/${id}</div>`
      }
    </main>`;
  }
  const [, , Tab] = kTabs.find(([key]) => key === tab) ?? kTabs[0];
  const props = {
    job,
    row: one,
    attempts: attempts.data?.attempts ?? [],
    checkpoints: checkpoints.data?.checkpoints ?? [],
    events: events.data?.events ?? [],
  };
  return html`<main class="view" id="main">
    <p class="crumbs"><${Link} href="/">Runs</${Link}> / ${id}${
      one.sweep !== undefined &&
      html` / trial of <${Link} href=${`/sweeps/${one.sweep}`}>sweep ${one.sweep}</${Link}>`
    }</p>
    <div class="view-head">
      <h1>${one.title}</h1>
      <${State} state=${job.state} large />
      <${Verified} verified=${job.verified} />
      <span class="spacer"></span>
      <${Actions} job=${job} row=${one} />
    </div>
    ${isDeleted && html`<div class="error-box" role="alert">This job was deleted.</div>`}
    <div class="stack">
      <${Failure} job=${job} />
      <${Waiting} job=${job} etag=${etag} />
      <${Facts} ...${props} />
      <${Notes} job=${job} row=${one} onChange=${show} />
      <div class="tabs" role="tablist" aria-label="Parts of the job">
        ${kTabs.map(
          ([key, title]) =>
            html`<button
              type="button"
              role="tab"
              key=${key}
              id=${`tab-${key}`}
              aria-selected=${key === tab}
              aria-controls="tab-panel"
              class=${classes("tab", key === tab && "tab-here")}
              onClick=${() => toTab(key)}
            >
              ${title}
            </button>`,
        )}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${tab}`} key=${tab}><${Tab} ...${props} /></div>
    </div>
  </main>`;
}
