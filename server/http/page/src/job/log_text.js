// Shows a line of a log: pieces of text with the names of their styles, and marks what was searched.
import { html } from "../html.js";

export function LogText({ pieces, find }) {
  return pieces.map(
    ({ text, classes }, index) =>
      html`<span key=${index} class=${classes || undefined}>${find ? marked(text, find) : text}</span>`,
  );
}

function marked(text, find) {
  const parts = [];
  const lower = text.toLowerCase();
  let at = 0;
  for (let hit = lower.indexOf(find); hit >= 0; hit = lower.indexOf(find, at)) {
    parts.push(text.slice(at, hit), html`<mark key=${hit}>${text.slice(hit, hit + find.length)}</mark>`);
    at = hit + find.length;
  }
  parts.push(text.slice(at));
  return parts;
}
