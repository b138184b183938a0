// The scaling of runs on different numbers of devices, beside what each further device could have brought.
import { useRef } from "preact/hooks";
import { runColour } from "../charts/colours.js";
import { SaveMenu } from "../charts/save_menu.js";
import { html } from "../html.js";
import { number } from "../pure/format.js";
import { scalingOf } from "../pure/scaling.js";
import { Link } from "../router.js";

const kWidth = 620;
const kHeight = 240;
const kLeft = 60;
const kFoot = 34;
const kTop = 12;

const percent = (share) => (share === undefined ? "–" : `${Math.round(share * 100)}%`);

export function Scaling({ runs, all, file }) {
  const svg = useRef(null);
  const points = scalingOf(runs, ({ name }) => all.get(name));
  if (points.length === 0) return null;
  const most = points.at(-1);
  const top = Math.max(...points.map(({ speed, ideal }) => Math.max(speed, ideal))) * 1.06;
  const x = (devices) => kLeft + (devices / (most.devices * 1.06)) * (kWidth - kLeft);
  const y = (speed) => kHeight - kFoot - (speed / top) * (kHeight - kFoot - kTop);
  const counts = [...new Set(points.map(({ devices }) => devices))];
  const table = () => [
    ["job", "name", "devices", "samples_per_s", "speed_up", "efficiency", "hidden_fraction"],
    points.map(({ run, devices, speed, speedUp, efficiency, hidden }) => [
      run.id,
      run.title,
      devices,
      speed,
      speedUp,
      efficiency,
      hidden,
    ]),
  ];
  return html`<figure class="panel" aria-label="Scaling">
    <figcaption class="panel-head"><h2>Scaling</h2>
      <span class="dim">medians after the first fifth of each run; the dashed line is as fast as ${
        counts[0] === 1 ? "1 device" : `${counts[0]} devices`
      } for each</span><span class="spacer"></span>
      <${SaveMenu} title="Save the scaling" what="Scaling" file=${`${file}-scaling`} svg=${svg} table=${table} />
    </figcaption>
    <div class="scaling"><svg ref=${svg} class="scaling-picture" viewBox=${`0 0 ${kWidth} ${kHeight}`} role="img"
      aria-label="Samples a second over devices; the table has the values">
      ${[0, 0.5, 1].map(
        (share) =>
          html`<g key=${share}><line class="gantt-grid" x1=${kLeft} x2=${kWidth}
              y1=${y(top * share)} y2=${y(top * share)} />
          <text class="axis-tick" x=${kLeft - 6} y=${y(top * share) + 4} text-anchor="end">${number(
            Number((top * share).toPrecision(2)),
          )}</text></g>`,
      )}
      ${counts.map(
        (devices) =>
          html`<text key=${devices} class="axis-tick" x=${x(devices)} y=${kHeight - kFoot + 15} text-anchor="middle">${
            devices
          }</text>`,
      )}
      <text class="axis-tick" x=${(kLeft + kWidth) / 2} y=${kHeight - 3} text-anchor="middle">devices</text>
      <line class="scaling-ideal" x1=${x(0)} y1=${y(0)} x2=${x(most.devices)} y2=${y(most.ideal)} />
      ${points.map(
        ({ run, devices, speed }) =>
          html`<circle key=${run.name} cx=${x(devices)} cy=${y(speed)} r="5"
          style=${{ fill: `var(${runColour(runs.indexOf(run))})` }} />`,
      )}
    </svg>
    <div class="scroll-x" tabindex="0" role="group" aria-label="Values of the scaling"><table class="table"><thead><tr>
      <th scope="col">Run</th>${["Devices", "Samples/s", "Speed-up", "Efficiency", "Hidden"].map(
        (title) => html`<th scope="col" class="right" key=${title}>${title}</th>`,
      )}</tr></thead><tbody>
      ${points.map(
        ({ run, devices, speed, speedUp, efficiency, hidden }) =>
          html`<tr key=${run.name}><td class="nowrap"><span class="swatch swatch-inline" aria-hidden="true"
            style=${{ background: `var(${runColour(runs.indexOf(run))})` }}></span>
          <${Link} href=${`/jobs/${run.id}`}>${run.id} ${run.title}</${Link}></td>
          <td class="right">${devices}</td><td class="right">${number(speed)}</td>
          <td class="right">${speedUp.toFixed(2)}</td><td class="right">${percent(efficiency)}</td>
          <td class="right">${percent(hidden)}</td></tr>`,
      )}</tbody></table></div></div>
  </figure>`;
}
