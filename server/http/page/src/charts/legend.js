// Lists the curves of a chart with their values: at the cursor if there is one, else the last. The best comes first.
import { html, classes } from "../html.js";
import { duration, metric as metricText, number } from "../pure/format.js";
import { legendRows } from "../pure/legend.js";
import { Link } from "../router.js";

const kRowsMax = 12;

export function Legend({ metric, series, group, better, axis }) {
  const x = group.x.value;
  const isFrozen = group.isFrozen.value;
  const rows = legendRows(series, x, better);
  const shown = rows.slice(0, kRowsMax);
  const at = x === null ? "last" : axis === "time" ? `at ${duration(x)}` : `at step ${number(Math.round(x))}`;
  const copy = () =>
    navigator.clipboard?.writeText(
      rows.map(({ label, at: place, value }) => `${label}\t${place ?? ""}\t${value ?? ""}`).join("\n"),
    );
  return html`<div class=${classes("legend", isFrozen && "legend-frozen")}>
    <div class="legend-head">
      <span class="num">${at}</span>
      ${
        isFrozen &&
        html`<span class="legend-pin"
          >frozen
          <button type="button" class="link" onClick=${copy}>copy</button>
          <button type="button" class="link" onClick=${() => group.toggleFrozen(null)}>release</button></span
        >`
      }
    </div>
    <ul class="legend-rows">
      ${shown.map(
        (row) =>
          html`<li key=${row.key} class="legend-row">
            <span class="swatch" style=${{ background: `var(${row.colour})` }} aria-hidden="true"></span>
            ${
              row.href
                ? html`<${Link} href=${row.href} class="legend-label" title=${row.label}>${row.label}</${Link}>`
                : html`<span class="legend-label" title=${row.label}>${row.label}</span>`
            }
            ${row.isBase && html`<span class="base-mark">baseline</span>`}
            <span class="legend-value num">${row.value === undefined ? "–" : metricText(metric, row.value)}</span>
            ${
              row.delta !== undefined &&
              html`<span
                class=${classes(
                  "legend-delta num",
                  row.delta !== 0 && better && (row.delta > 0 === (better === "more") ? "better" : "worse"),
                )}
                >${row.delta > 0 ? "+" : row.delta < 0 ? "−" : "±"}${metricText(metric, Math.abs(row.delta))}</span
              >`
            }
          </li>`,
      )}
    </ul>
    ${rows.length > kRowsMax && html`<span class="dim">and ${rows.length - kRowsMax} more</span>`}
  </div>`;
}
