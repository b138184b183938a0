// The queue in its order, with why each job waits and when it is expected to start.
import { sayError } from "../api.js";
import { now } from "../connection.js";
import { html } from "../html.js";
import { cloneWith } from "../job/waiting.js";
import { row } from "../job_row.js";
import { useCall } from "../load.js";
import { ago, counted, duration, millis, number } from "../pure/format.js";
import { jobPath, Link } from "../router.js";
import { maySubmit } from "../session.js";
import { Empty, Time } from "../widgets.js";
import { useExplanations } from "./explanations.js";

const kShown = 200;
const kEveryMs = 4000;

export function Queue() {
  const { data, error } = useCall("JobService/ListQueue", { page_size: kShown }, { everyMs: kEveryMs });
  const jobs = data?.jobs ?? [];
  const explained = useExplanations(jobs);
  const total = Number(data?.queued_jobs ?? 0);
  return html`<main class="view" id="main">
    <div class="view-head"><h1>Queue</h1>${data &&
      html`<span class="dim">${counted(total, "job waits", "jobs wait")}</span>`}
      <span class="spacer"></span><${Link} class="button" href="/schedule">Schedule</${Link}>
      <${Link} class="button" href="/devices">Devices</${Link}></div>
    ${error && !data && html`<${Empty} title="The queue cannot be shown">${sayError(error)}</${Empty}>`}
    ${data && jobs.length === 0 &&
      html`<${Empty} title="Nothing waits">Every job that was submitted has its devices.</${Empty}>`}
    ${
      jobs.length > 0 &&
      html`<section class="panel scroll-x" aria-label="Queue">
        <table class="table queue-table">
          <thead>
            <tr>
              <th scope="col" class="right">Place</th>
              <th scope="col">Job</th>
              <th scope="col">Owner</th>
              <th scope="col" class="right">Devices</th>
              <th scope="col" class="right">Priority</th>
              <th scope="col">Waits because</th>
              <th scope="col">Expected start</th>
              <th scope="col" class="right">Waits for</th>
            </tr>
          </thead>
          <tbody>
            ${jobs.map((job, index) =>
              html`<${Line} key=${job.name} job=${job} index=${index} explanation=${explained[job.name]} />`)}
          </tbody>
        </table>
        ${total > jobs.length && html`<p class="panel-body dim">and ${number(total - jobs.length)} more</p>`}
      </section>`
    }
  </main>`;
}

function Line({ job, index, explanation }) {
  const one = row(job);
  const start = millis(explanation?.start_time);
  const reasons = explanation?.reasons?.length ? explanation.reasons : (job.queue_reasons ?? []);
  return html`<tr><td class="right">${explanation?.position ? number(explanation.position) : index + 1}</td>
    <td class="nowrap"><${Link} href=${jobPath(job.name)}>${one.id} ${one.title}</${Link}></td>
    <td>${one.user}${one.project && html`<span class="dim"> ${one.project}</span>`}</td>
    <td class="right">${one.devices}</td><td class="right">${one.priority}</td>
    <td>${reasons.length === 0 ? html`<span class="dim">about to start</span>` : reasons.map((reason) =>
      html`<p key=${reason}>${reason}</p>`)}
      ${explanation?.infeasible && html`<p class="worse">The pool can never hold it.</p>`}
      ${
        explanation?.change_text &&
        html`<p class="dim">
          Would start now: ${explanation.change_text}${
            maySubmit() &&
            explanation.change?.length > 0 &&
            html` · <${Link} href=${cloneWith(job, explanation.change)}>clone with it</${Link}>`
          }
        </p>`
      }</td>
    <td>${
      start !== undefined
        ? html`<span title=${new Date(start).toISOString()}>in ${duration((start - now.value) / 1000)}</span>
            <p class="dim">${explanation.start_basis}</p>`
        : job.begin_time
          ? html`not before <${Time} ms=${millis(job.begin_time)} />`
          : html`<span class="dim">${explanation?.start_basis ?? "–"}</span>`
    }</td>
    <td class="right nowrap">${ago(one.created, now.value).replace(" ago", "")}</td></tr>`;
}
