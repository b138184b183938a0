// Chooses the columns of the run table, among what jobs, their metrics and their specs have.
import { useState } from "preact/hooks";
import { coreColumns, kDefaultColumns } from "./columns.js";
import { html } from "./html.js";
import { leaves } from "./job_row.js";
import { setParams } from "./router.js";
import { Menu } from "./widgets.js";

// Fields of specs are learned from so many rows.
const kRowsLooked = 200;

export const ColumnMenu = (props) =>
  html`<${Menu} label="Columns" align="right"><${Choices} ...${props} /></${Menu}>`;

function Choices({ chosen, metrics, rows }) {
  const [text, setText] = useState("");
  const paths = new Map();
  for (const row of rows.slice(0, kRowsLooked)) {
    for (const [path, value] of Object.entries(leaves(row))) {
      if (path === "name" || path.startsWith("tags")) continue;
      const shown = JSON.stringify(value);
      if (!paths.has(path)) paths.set(path, shown);
      else if (paths.get(path) !== shown) paths.set(path, null);
    }
  }
  // Fields that differ between the runs come first.
  const differing = [...paths]
    .filter(([, value]) => value === null)
    .map(([path]) => path)
    .sort();
  const same = [...paths]
    .filter(([, value]) => value !== null)
    .map(([path]) => path)
    .sort();
  const names = [...metrics].sort();
  const groups = [
    ["Run", coreColumns.map(({ key, title }) => [key, title])],
    ["Last value", names.map((name) => [name, name])],
    ["Best value", names.map((name) => [`best:${name}`, name])],
    ["Spec, differs", differing.map((path) => [path, path])],
    ["Spec, same in all", same.map((path) => [path, path])],
  ];
  const toggle = (key) => {
    const next = chosen.includes(key) ? chosen.filter((each) => each !== key) : [...chosen, key];
    setParams({ cols: next.join(",") === kDefaultColumns.join(",") ? "" : next.join(",") });
  };
  const fits = (label) => label.toLowerCase().includes(text.toLowerCase());
  return html`<div class="choices">
    <input
      class="input"
      type="search"
      placeholder="Find a column"
      aria-label="Find a column"
      value=${text}
      onInput=${(event) => setText(event.target.value)}
    />
    <div class="choices-list" tabindex="0" role="group" aria-label="Columns">
      ${groups.map(([title, items]) => {
        const shown = items.filter(([, label]) => fits(label));
        return (
          shown.length > 0 &&
          html`<fieldset key=${title}>
            <legend>${title}</legend>
            ${shown.map(
              ([key, label]) =>
                html`<label class="check" key=${key}>
                  <input type="checkbox" checked=${chosen.includes(key)} onChange=${() => toggle(key)} />
                  ${label}</label
                >`,
            )}
          </fieldset>`
        );
      })}
    </div>
    <button type="button" class="button button-quiet" onClick=${() => setParams({ cols: "" })}>Usual columns</button>
  </div>`;
}
