// Finds the view of a path.
import { html } from "./html.js";
import { Compare } from "./compare/compare.js";
import { Job } from "./job/job.js";
import { Devices } from "./pool/devices.js";
import { Queue } from "./pool/queue.js";
import { Runs } from "./runs.js";
import { Link } from "./router.js";
import { Empty } from "./widgets.js";

const views = [
  [/^\/(?:runs|jobs)?\/?$/, () => ({ view: Runs, title: "Runs", props: { key: "runs" } })],
  [/^\/jobs\/(\d+)\/?$/, (id) => ({ view: Job, title: `Job ${id}`, props: { id, key: `job-${id}` } })],
  [/^\/compare\/?$/, () => ({ view: Compare, title: "Compare", props: { key: "compare" } })],
  [/^\/queue\/?$/, () => ({ view: Queue, title: "Queue", props: {} })],
  [/^\/devices\/?$/, () => ({ view: Devices, title: "Devices", props: {} })],
];

export function viewOf(path) {
  for (const [pattern, make] of views) {
    const match = pattern.exec(path);
    if (match) return make(...match.slice(1));
  }
  return { view: NotFound, title: "Not found", props: { path } };
}

const NotFound = ({ path }) => html`<main class="view" id="main">
  <${Empty} title="There is no such page">Nothing is at ${path}. <${Link} href="/">All runs</${Link}></${Empty}></main>`;
