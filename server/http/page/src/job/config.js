// The resolved spec of a job: what was chosen stands out from what was filled in.
import { useState } from "preact/hooks";
import { html, classes } from "../html.js";
import { leaves } from "../job_row.js";
import { flatten, leafText, peopleForm } from "../pure/spec.js";
import { download } from "../widgets.js";

export function Config({ job, row }) {
  const [text, setText] = useState("");
  const resolved = leaves(row);
  const chosen = flatten(peopleForm(job.spec ?? {}));
  const rows = Object.entries(resolved).filter(([path, value]) =>
    `${path} ${leafText(value)}`.toLowerCase().includes(text.toLowerCase()),
  );
  const origin = [
    ["server", job.provenance?.server_version],
    ["worker", job.provenance?.worker_version],
    ["data", job.provenance?.data_digest],
    ["model", job.provenance?.model_digest],
    [
      "commit",
      job.provenance?.code &&
        `${job.provenance.code.commit ?? ""}${job.provenance.code.is_dirty ? " with changes" : ""}`,
    ],
    ["branch", job.provenance?.code?.branch],
    ["saved spec", job.provenance?.saved_spec],
    ["from checkpoint", job.provenance?.parent_checkpoint],
    ["imported from", job.provenance?.imported?.job],
  ].filter(([, value]) => value);
  return html`<div class="grid-2">
    <section class="panel" aria-label="Spec">
      <div class="panel-head">
        <input
          class="input log-search"
          type="search"
          placeholder="Find a field"
          aria-label="Find a field"
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        />
        <span class="spacer"></span><span class="dim">bold: chosen; others: filled in</span>
        <button
          type="button"
          class="button button-small"
          onClick=${() =>
            download(`job-${row.id}-spec.json`, JSON.stringify(peopleForm(row.spec), null, 2), "application/json")}
        >
          Save as JSON
        </button>
      </div>
      <table class="table config-table">
        <tbody>
          ${rows.map(
            ([path, value]) =>
              html`<tr key=${path}>
                <th scope="row" class="mono">${path}</th>
                <td class=${classes("mono", path in chosen ? "chosen" : "dim")}>${leafText(value)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </section>
    <section class="panel" aria-label="Origin">
      <div class="panel-head"><h2>Origin</h2></div>
      <table class="table config-table">
        <tbody>
          ${origin.map(
            ([name, value]) =>
              html`<tr key=${name}>
                <th scope="row">${name}</th>
                <td class="mono">${value}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </section>
  </div>`;
}
