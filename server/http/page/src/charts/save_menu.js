// Offers what a picture shows as files: its values as CSV and JSON, and the picture itself.
import { html } from "../html.js";
import { toCsv } from "../pure/csv.js";
import { download, Menu } from "../widgets.js";
import { saveSvgAsPng } from "./picture.js";

// `table` returns [titles, rows], `json` a value; without it the rows are saved by their titles.
// `what` names the values.
export function SaveMenu({ title, what, file, table, json, svg }) {
  const plain = () => {
    const [titles, rows] = table();
    return rows.map((row) => Object.fromEntries(row.map((value, index) => [titles[index], value])));
  };
  const item = (text, action) =>
    html`<button type="button" class="menu-item" data-close onClick=${action}>${text}</button>`;
  return html`<${Menu} label="⋯" title=${title} kind="button button-quiet button-small" align="right">
    ${item(`${what} as CSV`, () => download(`${file}.csv`, toCsv(...table()), "text/csv"))}
    ${item(`${what} as JSON`, () =>
      download(`${file}.json`, JSON.stringify((json ?? plain)(), null, 1), "application/json"),
    )}
    ${svg && item("Picture as PNG", () => saveSvgAsPng(svg.current, `${file}.png`))}
  </${Menu}>`;
}
