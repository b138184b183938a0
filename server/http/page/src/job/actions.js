// Offers what can be done to a job, and asks before it changes the job.
import { useState } from "preact/hooks";
import { call } from "../api.js";
import { html } from "../html.js";
import { isActive } from "../pure/format.js";
import { Link } from "../router.js";
import { mayChange, maySubmit } from "../session.js";
import { Confirm } from "../widgets.js";

const kActions = {
  suspend: {
    call: "JobService/SuspendJob",
    title: "Suspend",
    text: (job) =>
      job.state === "JOB_STATE_QUEUED"
        ? "It leaves the queue until it is resumed."
        : "It writes a checkpoint, stops and frees its devices until it is resumed.",
  },
  resume: {
    call: "JobService/ResumeJob",
    title: "Resume",
    text: () => "It joins the queue again and goes on from its checkpoint.",
  },
  cancel: {
    call: "JobService/CancelJob",
    title: "Cancel",
    kind: "button-danger",
    text: () => "It stops for good and cannot be resumed. What it has written stays.",
  },
};

export function Actions({ job, row }) {
  const [chosen, setChosen] = useState(null);
  const [why, setWhy] = useState("");
  const may = mayChange(row.user);
  const possible = [
    /RUNNING|STARTING|QUEUED/.test(job.state) && "suspend",
    job.state === "JOB_STATE_SUSPENDED" && "resume",
    isActive(job.state) && job.state !== "JOB_STATE_STOPPING" && "cancel",
  ].filter(Boolean);
  const action = kActions[chosen];
  const close = () => setChosen(null);
  return html`
    <${Link} class="button" href=${`/compare?jobs=${row.id}`}>Compare</${Link}>
    ${maySubmit() && html`<${Link} class="button" href=${`/jobs/${row.id}/clone`}>Clone with changes</${Link}>`}
    ${possible.map(
      (key) =>
        html`<button
          type="button"
          key=${key}
          class=${`button ${kActions[key].kind ?? ""}`}
          disabled=${!may}
          title=${may ? undefined : "Only its owner and operators may do this"}
          onClick=${() => setChosen(key)}
        >
          ${kActions[key].title}…
        </button>`,
    )}
    ${
      action &&
      html`<${Confirm} title=${`${action.title} ${row.title}?`} text=${action.text(job)}
      action=${`${action.title} the job`} kind=${action.kind} onNo=${close}
      onYes=${async () => {
        await call(action.call, chosen === "resume" ? { name: job.name } : { name: job.name, reason: why });
        close();
      }}>
      ${
        chosen !== "resume" &&
        html`<label class="field"
          >Why, for the history
          <input class="input" value=${why} maxlength="200" onInput=${(event) => setWhy(event.target.value)}
        /></label>`
      }
    </${Confirm}>`
    }`;
}
