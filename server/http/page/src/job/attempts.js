// Shows what happened to a job: its attempts, and all events.
import { html } from "../html.js";
import { duration, lastPart, millis, number, word, exitText } from "../pure/format.js";
import { plainMessage } from "../pure/ansi.js";
import { Link, withParams } from "../router.js";
import { Time } from "../widgets.js";
import { Hosting } from "./hosting.js";

const kStates = {
  succeeded: "succeeded",
  failed: "failed",
  lost: "failed",
  preempted: "suspended",
  cancelled: "cancelled",
};

export function Attempts({ attempts, events, job, checkpoints }) {
  return html`<div class="stack">
    <section class="panel scroll-x" aria-label="Attempts">
      <div class="panel-head"><h2>Attempts</h2></div>
      ${
        attempts.length === 0
          ? html`<p class="panel-body dim">None has begun.</p>`
          : html`<table class="table">
              <thead>
                <tr>
                  <th scope="col">#</th>
                  <th scope="col">State</th>
                  <th scope="col">From step</th>
                  <th scope="col">Began</th>
                  <th scope="col">Ran for</th>
                  <th scope="col">Ran on</th>
                  <th scope="col">Isolation</th>
                  <th scope="col">Log</th>
                </tr>
              </thead>
              <tbody>
                ${attempts.toReversed().map((attempt) => {
                  const state = word(attempt.state, "ATTEMPT_STATE_");
                  const begin = millis(attempt.start_time);
                  const end = millis(attempt.end_time) ?? Date.now();
                  return html`<tr key=${attempt.name}><td>${lastPart(attempt.name)}</td>
          <td><span class=${`state state-${kStates[state] ?? "running"}`}>${state}</span>
            ${
              attempt.failure &&
              html`<p class="failure-message">
                ${attempt.failure.reason} ${plainMessage(attempt.failure.message ?? "")}
                ${exitText(attempt.failure.exit_code) && ` (${exitText(attempt.failure.exit_code)})`}
              </p>`
            }</td>
          <td>${number(attempt.resumed_from_step ?? 0)}</td><td class="nowrap">
            <${Time} ms=${begin ?? millis(attempt.create_time)} /></td>
          <td>${begin === undefined ? "–" : duration((end - begin) / 1000)}</td>
          <td>${(attempt.placement ?? [])
            .slice(0, 16)
            .map(
              ({ rank = 0, worker, device, cpus }) =>
                html`<div key=${rank} class="nowrap">
                  <span class="dim">${rank}</span>
                  ${` ${lastPart(worker)}${device ? ` ${device}` : ""}`}
                  ${cpus ? html`<span class="dim">${` ${cpus} cpu`}</span>` : ""}
                </div>`,
            )}
            ${(attempt.placement ?? []).length > 16 &&
              html`<div class="dim">and ${attempt.placement.length - 16} more</div>`}</td>
          <td>${word(attempt.isolation, "ISOLATION_") || "–"}</td>
          <td><${Link} href=${withParams({ tab: "logs", attempt: lastPart(attempt.name) })}>Log</${Link}></td></tr>`;
                })}
              </tbody>
            </table>`
      }
    </section>
    ${(job.progress?.hosting ?? []).length > 1 &&
      html`<${Hosting} job=${job} checkpoints=${checkpoints} />`}
    <section class="panel scroll-x" tabindex="0" aria-label="Events">
      <div class="panel-head"><h2>Events</h2></div>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Event</th>
            <th scope="col">By</th>
            <th scope="col">Details</th>
          </tr>
        </thead>
        <tbody>
          ${events.toReversed().map(
            (event) =>
              html`<tr key=${event.sequence}>
                <td class="nowrap"><${Time} ms=${millis(event.time)} /></td>
                <td class="nowrap">${word(event.type, "")}</td>
                <td class="nowrap dim">${event.actor}</td>
                <td>${plainMessage(event.message ?? "")}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </section>
  </div>`;
}
