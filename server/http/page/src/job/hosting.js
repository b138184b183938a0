// Shows who computes which replicas, at which speed, and how the division has moved.
import { useEffect, useRef, useState } from "preact/hooks";
import { forEachOf } from "../api.js";
import { runColour } from "../charts/colours.js";
import { SaveMenu } from "../charts/save_menu.js";
import { html } from "../html.js";
import { isActive, number } from "../pure/format.js";
import { momentsOf } from "../pure/hosting.js";
import { filePath } from "../pure/paths.js";

const kWidth = 900;
const kLeft = 130;
const kRow = 24;
// A checkpoint's state is small; a larger file is none.
const kStateBytesMax = 256 * 1024;
const kStatesMax = 20;
const kCallsAtOnce = 3;

export function Hosting({ job, checkpoints }) {
  const svg = useRef(null);
  const { progress, placement = [] } = job;
  const moments = momentsOf(useStates(checkpoints), progress);
  const total = Math.max(1, ...moments.map(({ counts }) => counts.reduce((sum, count) => sum + count, 0)));
  const table = () => [
    ["step", "rank", "replicas"],
    moments.flatMap(({ step, counts }) => counts.map((count, rank) => [step, rank, count])),
  ];
  return html`<section class="panel scroll-x" tabindex="0" aria-label="Who computes what">
    <div class="panel-head">
      <h2>Who computes what</h2>
      <span class="dim">${progress.hosting_reason}</span><span class="spacer"></span>
      <${SaveMenu} title="Save who computes what" what="Replicas"
        file=${`${job.name.replace("/", "-")}-replicas`}
        svg=${svg}
        table=${table} />
    </div>
    <svg ref=${svg} class="hosting" viewBox=${`0 0 ${kWidth} ${moments.length * kRow + 4}`} role="img"
      aria-label=${moments.map(({ step, counts }) => `step ${step}: ${counts.join(", ")} replicas`).join("; ")}>
      ${moments.map(({ step, counts, isNow }, index) => {
        let begin = 0;
        return html`<g key=${`${step} ${isNow}`}>
          <text class="axis-tick" x=${kLeft - 8} y=${index * kRow + 17} text-anchor="end">${
            `${isNow ? `${isActive(job.state) ? "now" : "last"}, ` : ""}step ${number(step)}`}</text>
          ${counts.map((count, rank) => {
            const x = kLeft + (begin / total) * (kWidth - kLeft - 4);
            const width = (count / total) * (kWidth - kLeft - 4);
            begin += count;
            return html`<g key=${rank}><rect x=${x} y=${index * kRow + 3} width=${Math.max(0, width - 1.5)}
                height=${kRow - 5}
                style=${{ fill: `var(${runColour(rank)})` }} />
              ${
                width > 60 &&
                html`<text class="gantt-text" x=${x + 5} y=${index * kRow + 17}>${`rank ${rank}: ${count}`}</text>`
              }</g>`;
          })}</g>`;
      })}
    </svg>
    <table class="table">
      <thead>
        <tr>
          <th scope="col">Rank</th>
          <th scope="col">Device</th>
          <th scope="col" class="right">Replicas</th>
          <th scope="col" class="right">Samples/s</th>
        </tr>
      </thead>
      <tbody>
        ${progress.hosting.map(
          ({ rank = 0, replicas, stage, samples_per_s: speed }) =>
            html`<tr key=${rank}>
              <td>${rank}${stage ? ` stage ${stage}` : ""}</td>
              <td>${placement[rank]?.device ?? "–"}</td>
              <td class="right">${replicas}</td>
              <td class="right">${speed ? number(speed) : "–"}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}

// The contents of state.json of the newest checkpoints that are kept; it names who hosted what when it was written.
function useStates(checkpoints) {
  const [states, setStates] = useState([]);
  const wanted = checkpoints
    .filter(({ files }) => (files ?? []).some(({ name, size }) => name === "state.json" && size <= kStateBytesMax))
    .slice(-kStatesMax)
    .map(({ name }) => name);
  useEffect(() => {
    const abort = new AbortController();
    forEachOf(wanted, kCallsAtOnce, async (name) => {
      try {
        const response = await fetch(filePath(name, "state.json"), { signal: abort.signal });
        return response.ok ? await response.json() : null;
      } catch {
        // The checkpoint was deleted meanwhile, or is damaged; the others say enough.
        return null;
      }
    }).then((all) => !abort.signal.aborted && setStates(all));
    return () => abort.abort();
  }, [wanted.join()]);
  return states;
}
