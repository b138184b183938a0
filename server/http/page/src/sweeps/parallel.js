// Draws each trial as a line over the axes of the parameters to the objective.
import { useRef } from "preact/hooks";
import { SaveMenu } from "../charts/save_menu.js";
import { html, classes } from "../html.js";
import { metric } from "../pure/format.js";
import { axisOf, goodness, valueAxis } from "../pure/parallel.js";
import { go } from "../router.js";

const kWidth = 1200;
const kHeight = 300;
const kTop = 30;
const kFoot = 16;
const kSide = 70;

export function Parallel({ sweep, trials, paths, short, objective, isLarge, marked, onMark, file }) {
  const svg = useRef(null);
  const values = trials.map(({ value }) => (value === undefined ? NaN : Number(value)));
  const axes = [
    ...paths.map((path) => ({
      title: short[path],
      ...axisOf(
        path,
        sweep.spec.sweep.parameters[path],
        trials.map((trial) => trial.values?.[path]),
      ),
      of: (trial) => trial.values?.[path],
    })),
    { title: objective, ...valueAxis(values, (value) => metric(objective, value)), of: (trial) => trial.value },
  ];
  const x = (index) => kSide + (index * (kWidth - 2 * kSide)) / Math.max(1, axes.length - 1);
  const y = (place) => kHeight - kFoot - place * (kHeight - kTop - kFoot);
  const lines = trials
    .map((trial, index) => {
      const points = axes
        .map((axis, place) => [x(place), axis.place(axis.of(trial))])
        .filter(([, at]) => at !== undefined);
      return { trial, points, good: goodness(values[index], values, isLarge) };
    })
    .filter(({ points }) => points.length > 1)
    .sort((a, b) => (a.trial.index === marked) - (b.trial.index === marked) || a.good - b.good);
  const path = (points) =>
    points
      .map(([px, at], index) => {
        if (index === 0) return `M${px} ${y(at).toFixed(1)}`;
        const [before, beforeAt] = points[index - 1];
        const middle = (before + px) / 2;
        return `C${middle} ${y(beforeAt).toFixed(1)} ${middle} ${y(at).toFixed(1)} ${px} ${y(at).toFixed(1)}`;
      })
      .join("");
  const table = () => [
    ["trial", ...paths, objective, "step", "job"],
    trials.map((trial) => [
      trial.index,
      ...paths.map((each) => trial.values?.[each]),
      trial.value,
      trial.step,
      trial.job,
    ]),
  ];
  const describe = (trial) => {
    const parts = paths.map((each) => `${short[each]} ${trial.values?.[each]}`).join(", ");
    const value = trial.value === undefined ? "–" : metric(objective, trial.value);
    return `trial ${trial.index}: ${parts}; ${objective} ${value}`;
  };
  const shown = trials.find(({ index }) => index === marked);
  return html`<figure class="panel" aria-label="All trials">
    <figcaption class="panel-head"><h2>All trials</h2>
      <span class="dim">${
        shown
          ? describe(shown)
          : "blue lines are the good trials, orange ones the bad; click one to open its job"
      }</span><span class="spacer"></span>
      <${SaveMenu} title="Save all trials" what="Trials" file=${file} table=${table} json=${() => trials} svg=${svg}
      /></figcaption>
    <div class="parallel-scroll" tabindex="0" role="group" aria-label="Picture of all trials"><svg ref=${svg}
      class="parallel" viewBox=${`0 0 ${kWidth} ${kHeight}`} role="img"
        aria-label=${`${trials.length} trials over ${paths.length} parameters; the table below has their values`}>
      ${lines.map(
        ({ trial, points, good }) =>
          html`<path
            key=${trial.index}
            d=${path(points)}
            class=${classes(
              "trial-line",
              good >= 0.75 ? "trial-good" : good >= 0.4 ? "trial-middle" : "trial-bad",
              marked === trial.index && "trial-line-marked",
              marked !== null && marked !== trial.index && "trial-line-behind",
            )}
            onMouseEnter=${() => onMark(trial.index)}
            onMouseLeave=${() => onMark(null)}
            onClick=${() => trial.job && go(`/${trial.job}`)}
          />`,
      )}
      ${axes.map(
        (axis, index) =>
          html`<g key=${axis.title} transform=${`translate(${x(index)} 0)`}>
            <line class="axis-line" y1=${kTop} y2=${kHeight - kFoot} />
            <text class="axis-title" y="14" text-anchor="middle">${axis.title}</text>
            ${axis.ticks.map(
              ({ at, text }) =>
                html`<g key=${text} transform=${`translate(0 ${y(at)})`}>
                  <line class="axis-line" x1="-3" x2="3" /><text
                    class="axis-tick"
                    x=${index === axes.length - 1 ? 8 : -8}
                    y="4"
                    text-anchor=${index === axes.length - 1 ? "start" : "end"}
                    >${text}</text
                  ></g
                >`,
            )}</g
          >`,
      )}
    </svg></div></figure>`;
}
