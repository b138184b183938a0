// Says why a job waits, what would start it, and when it is expected to start. Of a job that runs, it
// says which workers are out of contact.
import { now } from "../connection.js";
import { html } from "../html.js";
import { useCall } from "../load.js";
import { duration, millis, number } from "../pure/format.js";
import { Link } from "../router.js";
import { maySubmit } from "../session.js";
import { Time } from "../widgets.js";

export function Waiting({ job, etag }) {
  const isQueued = job.state === "JOB_STATE_QUEUED";
  const { data } = useCall(
    "JobService/ExplainJob",
    { name: job.name },
    { key: etag, everyMs: 8000, isOff: !isQueued },
  );
  if (!isQueued) return html`<${OutOfContact} remarks=${job.queue_reasons ?? []} />`;
  const reasons = data?.reasons?.length ? data.reasons : (job.queue_reasons ?? []);
  const start = millis(data?.start_time);
  return html`<section class="panel waiting" aria-label="Why it waits">
    <div class="panel-body">
      <h2>Waits${Number(data?.position ?? 0) > 0 ? `, number ${number(data.position)} in the queue` : ""}</h2>
      <ul class="reasons">
        ${reasons.map((reason) => html`<li key=${reason}>${reason}</li>`)}
      </ul>
      ${
        start !== undefined &&
        html`<p>
          Expected to start in ${duration((start - now.value) / 1000)}, at ${" "}
          <${Time} ms=${start} />${data.start_basis ? `: ${data.start_basis}` : ""}.
        </p>`
      }
      ${start === undefined && data?.start_basis &&
        html`<p class="dim">No start can be foretold: ${data.start_basis}.</p>`}
      ${
        data?.change_text &&
        html`<p>
          Would start now with a change: ${data.change_text}.
          ${" "}${maySubmit() && data.change?.length > 0 &&
            html`<${Link} href=${cloneWith(job, data.change)}>Clone with it</${Link}>`}
        </p>`
      }
    </div>
  </section>`;
}

function OutOfContact({ remarks }) {
  if (remarks.length === 0) return null;
  return html`<section class="panel waiting" aria-label="Workers out of contact">
    <div class="panel-body">
      <h2>Out of contact</h2>
      <ul class="reasons">
        ${remarks.map((remark) => html`<li key=${remark}>${remark}</li>`)}
      </ul>
    </div>
  </section>`;
}

export function cloneWith(job, changes) {
  const query = new URLSearchParams();
  for (const { path, value_json: value } of changes) query.append("set", `${path}=${value ?? ""}`);
  return `/jobs/${job.name.split("/")[1]}/clone?${query}`;
}
