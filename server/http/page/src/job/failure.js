// Says first why a job failed: the reason, the exit, the last lines of the log.
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { exitText, word } from "../pure/format.js";
import { plainMessage } from "../pure/ansi.js";
import { Link, withParams } from "../router.js";
import { LogTail } from "./log_tail.js";

const kClasses = {
  USER_ERROR: "The spec, the data or the program is at fault; it is not tried again.",
  TRANSIENT: "This may pass; it is tried again a few times.",
  HARDWARE: "A device is at fault; it is tried again elsewhere.",
  LOST: "The worker went out of contact; nobody knows what became of it.",
  POISON: "It failed in the same way on two workers, and waits for a person to resume or cancel it.",
};

export function Failure({ job }) {
  const { failure } = job;
  const ranks = Math.max(1, job.placement?.length ?? 1);
  // The server does not say which rank failed; messages of ours often do.
  const guessed = Number(/\brank (\d+)\b/.exec(failure?.message ?? "")?.[1] ?? 0);
  const [rank, setRank] = useState(guessed < ranks ? guessed : 0);
  if (!failure) return null;
  const isOver = job.state === "JOB_STATE_FAILED";
  const kind = word(failure.failure_class, "FAILURE_CLASS_").toUpperCase().replaceAll(" ", "_");
  const place = job.placement?.[rank];
  return html`<section class="panel failure" aria-label="Failure">
    <div class="failure-head">
      <h2>${isOver ? "Failed" : job.state === "JOB_STATE_SUSPENDED" ? "Held after a failure" : "Failed before"}
        ${failure.reason && html`<code class="failure-reason">${failure.reason}</code>`}</h2>
      <p class="failure-message">${plainMessage(failure.message ?? "")}</p>
      <p class="dim">${[
        exitText(failure.exit_code),
        place && `rank ${rank} on ${place.worker.split("/")[1]}${place.device ? `, ${place.device}` : ""}`,
      ]
        .filter(Boolean)
        .join(" · ")}${kClasses[kind] && ` · ${kClasses[kind]}`}</p>
    </div>
    <div class="failure-log">
      <div class="failure-log-head"><h3>Last lines of rank ${rank}</h3>
        ${
          ranks > 1 &&
          html`<label class="control"
            >Rank
            <select class="select" value=${rank} onChange=${(event) => setRank(Number(event.target.value))}>
              ${Array.from({ length: Math.min(ranks, 256) }, (_, index) =>
                html`<option key=${index} value=${index}>${index}</option>`)}
            </select></label
          >`
        }
        <span class="spacer"></span>
        <${Link} href=${withParams({ tab: "logs", rank: String(rank) })}>Whole log</${Link}></div>
      <${LogTail} name=${job.name} attempt=${job.attempt} rank=${rank} key=${`${job.attempt}/${rank}`} />
    </div>
  </section>`;
}
