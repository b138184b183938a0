// Draws the rows of the run table that are in sight.
import { useEffect, useRef } from "preact/hooks";
import { now } from "./connection.js";
import { html, classes } from "./html.js";
import { jobState } from "./pure/format.js";
import { setParams } from "./router.js";
import { showRow, useVisibleRows } from "./virtual.js";

const kRowHeight = 30;
const kHeaderHeight = 32;

export function RunTable({ rows, columns, sort, selected, cursor, isLoading, onToggle, onCursor, onSelect }) {
  const scroller = useRef(null);
  const { from, to } = useVisibleRows(scroller, rows.length, kRowHeight);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else showRow(scroller.current, cursor, kRowHeight, kHeaderHeight);
  }, [cursor]);
  const time = now.value;
  const isAll = rows.length > 0 && rows.length <= 64 && rows.every(({ id }) => selected.has(String(id)));

  const header = (column) => {
    const isSorted = sort.replace(/^-/, "") === column.key;
    const isDescending = sort.startsWith("-");
    const next = isSorted ? (isDescending ? column.key : `-${column.key}`) : firstOrder(column);
    return html`<th
      key=${column.key}
      scope="col"
      class=${classes(column.right && "right", isSorted && "sorted")}
      aria-sort=${isSorted ? (isDescending ? "descending" : "ascending") : "none"}
    >
      <button
        type="button"
        class="sort"
        title=${column.hint ?? column.title}
        onClick=${() => setParams({ sort: next === "-id" ? "" : next })}
      >
        <span class="sort-title">${column.title}</span
        ><span class="sort-mark" aria-hidden="true">${isSorted ? (isDescending ? "↓" : "↑") : ""}</span>
      </button>
    </th>`;
  };

  return html`<div class="table-scroll" ref=${scroller} tabindex="0" role="region" aria-label="Runs">
    <table class="table run-table" aria-rowcount=${rows.length + 1} aria-busy=${isLoading}>
      <colgroup>
        <col style=${{ width: "34px" }} />
        ${columns.map(
          (column) =>
            html`<col
              key=${column.key}
              style=${{ width: column.grow ? undefined : `${column.width}px`, minWidth: `${column.width}px` }}
            />`,
        )}
      </colgroup>
      <thead>
        <tr aria-rowindex="1">
          <th scope="col" class="pick">
            <input
              type="checkbox"
              aria-label="Select all runs shown"
              checked=${isAll}
              disabled=${rows.length === 0 || rows.length > 64}
              onChange=${() => onSelect(isAll ? [] : rows)}
            />
          </th>
          ${columns.map(header)}
        </tr>
      </thead>
      <tbody>
        ${
          from > 0 &&
          html`<tr aria-hidden="true" key="above">
            <td colspan=${columns.length + 1} class="gap" style=${{ height: `${from * kRowHeight}px` }}></td>
          </tr>`
        }
        ${rows.slice(from, to).map(
          (row, index) =>
            html` <tr
              key=${row.name}
              aria-rowindex=${from + index + 2}
              data-job=${row.id}
              class=${classes(
                `row-${jobState(row.state)}`,
                from + index === cursor && "cursor",
                selected.has(String(row.id)) && "picked",
              )}
              onPointerDown=${() => onCursor(from + index)}
            >
              <td class="pick">
                <input
                  type="checkbox"
                  aria-label=${`Select run ${row.id}`}
                  checked=${selected.has(String(row.id))}
                  onChange=${() => onToggle(row)}
                />
              </td>
              ${columns.map(
                (column) =>
                  html`<td key=${column.key} class=${classes(column.right && "right")}>
                    ${column.cell(row, time)}
                  </td>`,
              )}
            </tr>`,
        )}
        ${
          to < rows.length &&
          html`<tr aria-hidden="true" key="below">
            <td
              colspan=${columns.length + 1}
              class="gap"
              style=${{ height: `${(rows.length - to) * kRowHeight}px` }}
            ></td>
          </tr>`
        }
      </tbody>
    </table>
    ${isLoading && rows.length === 0 && html`<div class="loading">Loading runs</div>`}
  </div>`;
}

// Numbers begin with the largest, but losses and texts with the smallest.
function firstOrder(column) {
  if (!column.right || /loss|error|perplexity/.test(column.key)) return column.key;
  return `-${column.key}`;
}
