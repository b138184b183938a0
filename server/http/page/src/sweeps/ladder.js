// The rungs of a sweep: which trials were compared at each, and which of them went on.
import { html, classes } from "../html.js";
import { counted, metric } from "../pure/format.js";
import { valueAxis } from "../pure/parallel.js";

export function Ladder({ rungs, trials, objective, isLarge, marked, onMark }) {
  const all = trials.flatMap(({ reports }) => (reports ?? []).map(({ value }) => Number(value ?? 0)));
  const axis = valueAxis(all, (value) => metric(objective, value));
  const x = (value) => {
    const place = axis.place(value) ?? 0;
    return `${1 + (isLarge ? place : 1 - place) * 98}%`;
  };
  return html`<section class="panel" aria-label="Rungs">
    <div class="panel-head">
      <h2>Rungs</h2>
      <span class="dim">each dot is a trial, better to the right; filled ones went on</span>
    </div>
    <ul class="ladder">
      ${rungs
        .map((share, rung) => {
          const at = trials.flatMap((trial) =>
            (trial.reports ?? [])
              .filter((report) => (report.rung ?? 0) === rung)
              .map((report) => ({ trial, value: Number(report.value ?? 0), wentOn: trial.rung > rung })),
          );
          const went = at.filter(({ wentOn }) => wentOn).length;
          const isLast = rung === rungs.length - 1;
          return {
            html: html`<li key=${rung} class="rung">
              <div class="rung-label">
                <strong>${isLast ? "whole training" : `${shareText(share)} of the training`}</strong>
                <span class="dim">${counted(at.length, "trial")}${isLast ? "" : `, ${went} went on`}</span>
              </div>
              <svg class="rung-picture" role="img" aria-label=${`rung ${rung}: ${at.length} trials, ${went} went on`}>
                <line class="axis-line" x1="0" x2="100%" y1="50%" y2="50%" />
                ${at.map(
                  ({ trial, value, wentOn }) =>
                    html`<circle
                      key=${trial.index}
                      cx=${x(value)}
                      cy="50%"
                      r=${marked === trial.index ? 8 : 5.5}
                      class=${classes(
                        "rung-dot",
                        (wentOn || isLast) && "rung-dot-on",
                        marked === trial.index && "rung-dot-marked",
                      )}
                      onMouseEnter=${() => onMark(trial.index)}
                      onMouseLeave=${() => onMark(null)}
                      ><title>trial ${trial.index}: ${metric(objective, value)}</title></circle
                    >`,
                )}
              </svg>
            </li>`,
            rung,
          };
        })
        .toReversed()
        .map(({ html: part }) => part)}
    </ul>
  </section>`;
}

function shareText(share) {
  const parts = Math.round(1 / share);
  return Math.abs(1 / parts - share) < 1e-6 ? `1/${parts}` : `${(share * 100).toFixed(0)}%`;
}
