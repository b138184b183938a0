// The files that a job has left: its checkpoints with links to their files, and its outputs.
import { html } from "../html.js";
import { useCall } from "../load.js";
import { bytes, lastPart, metric, millis, number } from "../pure/format.js";
import { filePath } from "../pure/paths.js";
import { Empty, Time } from "../widgets.js";

export function Checkpoints({ job, checkpoints }) {
  const hasOutputs = (job.resolved_spec?.outputs ?? []).length > 0;
  const outputs = useCall("CheckpointService/GetOutputs", { name: job.name }, { key: job.state, isOff: !hasOutputs });
  const files = outputs.data?.files ?? [];
  const names = [...new Set(checkpoints.flatMap((one) => Object.keys(one.metrics ?? {})))].sort();
  if (checkpoints.length === 0 && !hasOutputs) {
    return html`<${Empty}
      title="No files">The job has written no checkpoint, and its spec names no outputs.</${Empty}>`;
  }
  return html`<div class="stack">
    ${
      checkpoints.length > 0 &&
      html`<section class="panel scroll-x" aria-label="Checkpoints">
        <div class="panel-head">
          <h2>Checkpoints</h2>
          <span class="dim">${bytes(job.stored?.checkpoints ?? 0)} on the server</span>
        </div>
        <table class="table">
          <thead>
            <tr>
              <th scope="col" class="right">Step</th>
              <th scope="col">Written</th>
              ${names.map((name) => html`<th scope="col" class="right" key=${name}>${name}</th>`)}
              <th scope="col">Files</th>
            </tr>
          </thead>
          <tbody>
            ${checkpoints.toReversed().map(
              (one) =>
                html`<tr key=${one.name}>
                  <td class="right nowrap">
                    ${number(one.step)}${one.is_best && html` <span class="tag best-tag">best</span>`}
                  </td>
                  <td class="nowrap"><${Time} ms=${millis(one.create_time)} /></td>
                  ${names.map((name) => html`<td class="right" key=${name}>${metric(name, one.metrics?.[name])}</td>`)}
                  <td>
                    ${one.damage && html`<p class="error-text">${one.damage}</p>`}
                    <ul class="file-list">
                      ${(one.files ?? []).map(
                        (file) =>
                          html`<li key=${file.name}>
                            <a href=${filePath(one.name, file.name)} download title=${file.hash}>${file.name}</a>
                            <span class="dim num"> ${bytes(file.size)}</span>
                          </li>`,
                      )}
                    </ul>
                  </td>
                </tr>`,
            )}
          </tbody>
        </table>
      </section>`
    }
    ${
      hasOutputs &&
      html`<section class="panel" aria-label="Outputs">
        <div class="panel-head">
          <h2>Outputs</h2>
          ${outputs.data?.is_pending && html`<span class="dim">may still change</span>`}
        </div>
        ${
          files.length === 0
            ? html`<p class="panel-body dim">None have come yet.</p>`
            : html`<table class="table">
                  <tbody>
                    ${files.map(
                      (file) =>
                        html`<tr key=${file.name}>
                          <td class="mono">
                            <a href=${filePath(`${job.name}/outputs`, file.name)} download title=${file.hash}>${file.name}</a>
                          </td>
                          <td class="right">${bytes(file.size)}</td>
                        </tr>`,
                    )}
                  </tbody>
                </table>
                <div class="panel-body"><code>trainyard cp ${lastPart(job.name)}:. FOLDER -r</code></div>`
        }
      </section>`
    }
  </div>`;
}
