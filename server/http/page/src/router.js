// Keeps the state of every view in the address, so that each view is a link.
import { signal } from "@preact/signals";
import { html } from "./html.js";

const read = () => ({ path: location.pathname, params: new URLSearchParams(location.search) });

// The present address: {path, params}.
export const route = signal(read());

addEventListener("popstate", () => {
  route.value = read();
});

// Goes to another view.
export function go(to, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  route.value = read();
  if (!replace) scrollTo(0, 0);
}

export const param = (name) => route.value.params.get(name) ?? "";

// The address of the present view with other parameters; empty ones are left out.
export function withParams(changes, path = route.value.path) {
  const params = new URLSearchParams(route.value.params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined || value === false) params.delete(name);
    else params.set(name, String(value));
  }
  const query = params.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return query === "" ? path : `${path}?${query}`;
}

// Changes parameters of the present view without a new entry in the history.
export const setParams = (changes) => go(withParams(changes), { replace: true });

// A list in a parameter: "1,2,3".
export const listOf = (text) => (text ? text.split(",").filter((item) => item !== "") : []);

// A link within the page. Clicks with a modifier open a tab, as everywhere.
export function Link({ href, children, ...rest }) {
  const click = (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return html`<a href=${href} onClick=${click} ...${rest}>${children}</a>`;
}

export const jobPath = (name) => `/jobs/${name.split("/")[1]}`;
