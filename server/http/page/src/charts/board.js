// The controls that all charts of a page share, with their state in the address, and the charts below them.
import { useEffect, useState } from "preact/hooks";
import { html, classes } from "../html.js";
import { useKeys } from "../keys.js";
import { param, setParams } from "../router.js";
import { useDebounced } from "../virtual.js";
import { ChartGroup } from "./group.js";

// The smoothing, the axes and the part in sight, as the address says.
export function chartSettings() {
  const weight = Math.min(0.999, Math.max(0, Number(param("smooth")) || 0));
  const zoom = /^(-?[\d.]+)_(-?[\d.]+)$/.exec(param("zoom"));
  return {
    weight,
    isLog: param("log") === "1",
    axis: param("x") === "time" ? "time" : "step",
    zoom: zoom ? [Number(zoom[1]), Number(zoom[2])] : null,
  };
}

export const setZoom = (range) =>
  setParams({ zoom: range ? range.map((value) => Number(value.toPrecision(7))).join("_") : "" });

export function useChartGroup() {
  return useState(() => new ChartGroup())[0];
}

export function ChartControls({ settings, group, children }) {
  useKeys([
    { key: "l", does: "logarithmic axis", action: () => setParams({ log: settings.isLog ? "" : "1" }) },
    {
      key: "t",
      does: "axis of steps or of time",
      action: () => setParams({ x: settings.axis === "time" ? "" : "time", zoom: "" }),
    },
    { key: "0", does: "whole axis", action: () => setZoom(null) },
  ]);
  const [weight, setWeight] = useState(settings.weight);
  useEffect(() => setWeight(settings.weight), [settings.weight]);
  useDebounced(weight, 60, (value) => {
    if (value !== settings.weight) setParams({ smooth: value || "" });
  });
  return html`<div class="toolbar chart-controls" role="group" aria-label="Charts">
    <label class="control"
      >Smoothing
      <input
        type="range"
        min="0"
        max="0.99"
        step="0.01"
        value=${weight}
        onInput=${(event) => setWeight(Number(event.target.value))}
      /><output class="num control-value">${weight.toFixed(2)}</output></label
    >
    <div class="chips" role="group" aria-label="Horizontal axis">
      ${[
        ["step", "Step"],
        ["time", "Time"],
      ].map(
        ([key, title]) =>
          html` <button
            type="button"
            key=${key}
            class=${classes("chip", settings.axis === key && "chip-on")}
            aria-pressed=${settings.axis === key}
            onClick=${() => setParams({ x: key === "time" ? "time" : "", zoom: "" })}
          >
            ${title}
          </button>`,
      )}
    </div>
    <label class="check"
      ><input
        type="checkbox"
        checked=${settings.isLog}
        onChange=${(event) => setParams({ log: event.target.checked ? "1" : "" })}
      />
      Log axis</label
    >
    ${
      settings.zoom &&
      html`<button type="button" class="button button-small" onClick=${() => setZoom(null)}>Whole axis</button>`
    }
    ${
      group.isFrozen.value &&
      html`<button type="button" class="button button-small" onClick=${() => group.toggleFrozen(null)}>
        Release the cursor
      </button>`
    }
    ${children}
  </div>`;
}
