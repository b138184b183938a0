// Finds the view of a path.
import { html } from "./html.js";
import { SavedSpec, Specs } from "./catalogue/specs.js";
import { Usage } from "./catalogue/usage.js";
import { Clone } from "./clone/clone.js";
import { RunSpec } from "./clone/run_spec.js";
import { Compare } from "./compare/compare.js";
import { Job } from "./job/job.js";
import { Devices } from "./pool/devices.js";
import { Queue } from "./pool/queue.js";
import { Schedule } from "./pool/schedule.js";
import { Runs } from "./runs.js";
import { Link } from "./router.js";
import { Sweep } from "./sweeps/sweep.js";
import { Sweeps } from "./sweeps/sweeps.js";
import { Empty } from "./widgets.js";

const views = [
  [/^\/(?:runs|jobs)?\/?$/, () => ({ view: Runs, title: "Runs", props: { key: "runs" } })],
  [/^\/jobs\/(\d+)\/?$/, (id) => ({ view: Job, title: `Job ${id}`, props: { id, key: `job-${id}` } })],
  [/^\/compare\/?$/, () => ({ view: Compare, title: "Compare", props: { key: "compare" } })],
  [/^\/queue\/?$/, () => ({ view: Queue, title: "Queue", props: {} })],
  [/^\/schedule\/?$/, () => ({ view: Schedule, title: "Schedule", props: {} })],
  [/^\/devices\/?$/, () => ({ view: Devices, title: "Devices", props: {} })],
  [/^\/jobs\/(\d+)\/clone\/?$/, (id) => ({ view: Clone, title: `Clone ${id}`, props: { id, key: `clone-${id}` } })],
  [/^\/sweeps\/?$/, () => ({ view: Sweeps, title: "Sweeps", props: {} })],
  [/^\/sweeps\/(\d+)\/?$/, (id) => ({ view: Sweep, title: `Sweep ${id}`, props: { id, key: `sweep-${id}` } })],
  [/^\/specs\/?$/, () => ({ view: Specs, title: "Specs", props: {} })],
  [
    /^\/specs\/([A-Za-z0-9_.-]+)\/?$/,
    (name) => ({ view: SavedSpec, title: name, props: { name, key: `spec-${name}` } }),
  ],
  [
    /^\/specs\/([A-Za-z0-9_.-]+)\/run\/?$/,
    (name) => ({ view: RunSpec, title: `Run ${name}`, props: { name, key: `run-${name}` } }),
  ],
  [/^\/usage\/?$/, () => ({ view: Usage, title: "Usage", props: {} })],
];

export function viewOf(path) {
  for (const [pattern, make] of views) {
    const match = pattern.exec(path);
    if (match) return make(...match.slice(1));
  }
  return { view: NotFound, title: "Not found", props: { path } };
}

const NotFound = ({ path }) => html`<main class="view" id="main">
  <${Empty} title="There is no such page">Nothing is at ${path}. <${Link} href="/">All runs</${Link}></${Empty}>
    </main>`;
