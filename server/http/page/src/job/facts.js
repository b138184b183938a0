// The first things that people want to know of a job.
import { now } from "../connection.js";
import { html } from "../html.js";
import { took } from "../job_row.js";
import { ago, counted, duration, isActive, lastPart, metric, millis, number, seconds } from "../pure/format.js";
import { Link } from "../router.js";
import { Progress, Time } from "../widgets.js";

export function Facts({ job, row, checkpoints }) {
  const time = now.value;
  const progress = job.progress ?? {};
  const best = checkpoints.find((checkpoint) => checkpoint.is_best);
  const places = [...new Set((job.placement ?? []).map(({ worker }) => lastPart(worker)))];
  const facts = [
    ["Owner", row.user + (row.project ? ` · ${row.project}` : "")],
    ["Submitted", html`<span title=${new Date(row.created).toISOString()}>${ago(row.created, time)}</span>`],
    row.started !== undefined && ["Ran for", duration(took(row, time))],
    row.ended !== undefined && ["Ended", html`<${Time} ms=${row.ended} />`],
    [
      "Devices",
      `${row.devices}${job.resolved_spec?.devices?.type ? ` × ${job.resolved_spec.devices.type}` : ""}${
        places.length ? ` on ${places.slice(0, 3).join(", ")}${places.length > 3 ? "…" : ""}` : ""
      }`,
    ],
    isActive(job.state) && progress.samples_per_s && ["Speed", `${number(progress.samples_per_s)} samples/s`],
    job.attempt > 1 && [
      "Attempt",
      `${job.attempt}${job.retries ? ` (${counted(job.retries, "retry", "retries")})` : ""}`,
    ],
    job.preemptions > 0 && ["Preempted", counted(job.preemptions, "time")],
    job.device_time && ["Device time", duration(seconds(job.device_time))],
    progress.checkpoint_step && [
      "Checkpoint",
      `step ${number(progress.checkpoint_step)}${best ? `, best at ${number(best.step)}` : ""}`,
    ],
    job.provenance?.cloned_from && [
      "Cloned from",
      html`<${Link} href=${`/${job.provenance.cloned_from}`}>${lastPart(job.provenance.cloned_from)}</${Link}>`,
    ],
    job.provenance?.verifies && [
      "Verifies",
      html`<${Link} href=${`/${job.provenance.verifies}`}>${lastPart(job.provenance.verifies)}</${Link}>`,
    ],
    job.begin_time &&
      job.state === "JOB_STATE_QUEUED" && ["Not before", html`<${Time} ms=${millis(job.begin_time)} />`],
  ].filter(Boolean);
  const results = Object.entries(job.final_metrics ?? {}).sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
  return html`<section class="panel panel-body facts-panel" aria-label="Facts">
    ${
      row.totalSteps > 0 &&
      job.state !== "JOB_STATE_SUCCEEDED" &&
      html`<div class="facts-progress">
        <span class="num"
          >step ${number(row.step)} of ${number(row.totalSteps)}${
            progress.epochs ? ` · epoch ${number(Number(progress.epoch ?? 0) + 1)} of ${number(progress.epochs)}` : ""
          }</span
        >
        <${Progress} row=${row} large />
      </div>`
    }
    <dl class="facts">
      ${results.slice(0, 6).map(
        ([name, value]) =>
          html`<div key=${name} class="fact-result">
            <dt>${name}</dt>
            <dd>${metric(name, value)}</dd>
          </div>`,
      )}
      ${facts.map(
        ([term, value]) =>
          html`<div key=${term}>
            <dt>${term}</dt>
            <dd>${value}</dd>
          </div>`,
      )}
    </dl>
    ${progress.disk_full && html`<p class="warn">The disk of its worker is full: ${progress.disk_full}</p>`}
    ${
      progress.fallbacks > 0 &&
      html`<p class="warn">
        ${counted(progress.fallbacks, "operation")} run on slower kernels: ${progress.first_fallback}
      </p>`
    }
    ${
      (job.deleted_parts ?? []).length > 0 &&
      html`<p class="dim">
        Deleted for good: ${job.deleted_parts.map((part) => part.replace("JOB_PART_", "").toLowerCase()).join(", ")}.
      </p>`
    }
  </section>`;
}

const rank = (name) => (name.startsWith("test.") ? 0 : 1);
