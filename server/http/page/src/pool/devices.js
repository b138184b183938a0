// The map of the pool: each worker with its devices, coloured by whose job holds them.
import { useMemo } from "preact/hooks";
import { sayError } from "../api.js";
import { now } from "../connection.js";
import { html, classes } from "../html.js";
import { runColour } from "../charts/colours.js";
import { useCall } from "../load.js";
import { ago, bytes, lastPart, millis, number, word } from "../pure/format.js";
import { jobPath, Link, param, setParams } from "../router.js";
import { Empty } from "../widgets.js";

const kEveryMs = 3000;

export function Devices() {
  const { data, error } = useCall("FleetService/ListWorkers", {}, { everyMs: kEveryMs });
  const active = useCall(
    "JobService/ListJobs",
    {
      page_size: 1000,
      states: ["JOB_STATE_RUNNING", "JOB_STATE_STARTING", "JOB_STATE_STOPPING"],
    },
    { everyMs: kEveryMs },
  );
  const workers = data?.workers ?? [];
  const jobs = useMemo(() => new Map((active.data?.jobs ?? []).map((job) => [job.name, job])), [active.data]);
  const jobOf = (device) => device.attempt?.split("/attempts/")[0];
  const by = param("by") === "job" ? "job" : "user";
  const ownerOf = (device) => (by === "job" ? jobOf(device) : (jobs.get(jobOf(device))?.user ?? "unknown"));

  const held = new Map();
  let free = 0;
  let total = 0;
  for (const worker of workers) {
    for (const device of worker.devices ?? []) {
      total += 1;
      if (!device.attempt) free += isUsable(worker, device) ? 1 : 0;
      else held.set(ownerOf(device), (held.get(ownerOf(device)) ?? 0) + 1);
    }
  }
  const owners = [...held].sort((a, b) => b[1] - a[1] || String(a[0]).localeCompare(String(b[0])));
  const colours = new Map(owners.map(([owner], index) => [owner, runColour(index)]));
  return html`<main class="view" id="main">
    <div class="view-head">
      <h1>Devices</h1>
      ${data && html`<span
        class="dim">${number(total - free)} of ${number(total)} in use or set aside, ${number(free)} free</span>`}
      <span class="spacer"></span>
      <div class="chips" role="group" aria-label="Colours">
        ${["user", "job"].map(
          (key) =>
            html`<button
              type="button"
              key=${key}
              class=${classes("chip", by === key && "chip-on")}
              aria-pressed=${by === key}
              onClick=${() => setParams({ by: key === "user" ? "" : key })}
            >
              By ${key}
            </button>`,
        )}
      </div>
    </div>
    ${error && !data && html`<${Empty} title="The devices cannot be shown">${sayError(error)}</${Empty}>`}
    ${data && workers.length === 0 &&
      html`<${Empty} title="No workers">Start one with <code>trainyard up</code>, or on another host.</${Empty}>`}
    <div class="stack">
      ${
        owners.length > 0 &&
        html`<ul class="owners" aria-label="In use by">
          ${owners.map(
            ([owner, count]) =>
              html`<li key=${owner}>
                <span
                  class="owner-dot"
                  style=${{ background: `var(${colours.get(owner)})` }}
                  aria-hidden="true"
                ></span>
                ${by === "job" ?
                  html`<${Link}
                    href=${jobPath(owner)}>${lastPart(owner)} ${jobs.get(owner)?.resolved_spec?.name ?? ""}</${Link}>`
                      : owner}
                <span class="dim num">${count}</span>
              </li>`,
          )}
        </ul>`
      }
      <div class="workers">
        ${workers.map(
          (worker) =>
            html`<${Worker}
              key=${worker.name}
              worker=${worker}
              jobs=${jobs}
              jobOf=${jobOf}
              colourOf=${(device) => colours.get(ownerOf(device))}
            />`,
        )}
      </div>
    </div>
  </main>`;
}

const isUsable = (worker, device) =>
  worker.state === "WORKER_STATE_ACTIVE" &&
  (worker.scheduling ?? "WORKER_SCHEDULING_ELIGIBLE") === "WORKER_SCHEDULING_ELIGIBLE" &&
  !device.quarantine &&
  (device.health ?? "DEVICE_HEALTH_OK") === "DEVICE_HEALTH_OK";

const heldText = (host) =>
  `${number(host.cpus_held ?? 0)} of ${number(host.cpus)} cpus · ` +
  `${bytes(host.memory_bytes_held ?? 0)} of ${bytes(host.memory_bytes)}`;

function Worker({ worker, jobs, jobOf, colourOf }) {
  const state = word(worker.state, "WORKER_STATE_");
  const scheduling = word(worker.scheduling, "WORKER_SCHEDULING_");
  const { host } = worker;
  return html`<section class="panel worker" aria-label=${`Worker ${lastPart(worker.name)}`}>
    <div class="panel-head">
      <h2>${lastPart(worker.name)}</h2>
      ${state !== "active" &&
        html`<span class="state state-failed">${state}, seen ${ago(millis(worker.last_seen_time), now.value)}</span>`}
      ${scheduling !== "eligible" && html`<span class="state state-queued">${scheduling}</span>`}
      <span class="spacer"></span>
      ${host && html`<span
        class="dim num">${heldText(host)}</span>`}
      ${Object.entries(worker.labels ?? {}).map(([key, value]) =>
        html`<span class="tag" key=${key}>${key}=${value}</span>`)}
    </div>
    <ul class="devices">
      ${(worker.devices ?? []).map(
        (device) =>
          html`<${Device}
            key=${device.name}
            device=${device}
            isUsable=${isUsable(worker, device)}
            job=${jobs.get(jobOf(device))}
            jobName=${jobOf(device)}
            colour=${colourOf(device)}
          />`,
      )}
    </ul>
  </section>`;
}

function Device({ device, isUsable, job, jobName, colour }) {
  const { usage } = device;
  const why = device.quarantine || device.health_reason;
  const label = device.name.length > 14 ? `${device.name.slice(0, 4)}…${device.name.slice(-6)}` : device.name;
  return html`<li
    class=${classes("device", jobName ? "device-held" : isUsable ? "device-free" : "device-aside")}
    title=${`${device.product || device.type}, ${bytes(device.memory_bytes ?? 0)}${why ? `: ${why}` : ""}`}
  >
    ${jobName &&
      html`<span class="device-bar" style=${{ background: `var(${colour ?? "--dim"})` }} aria-hidden="true"></span>`}
    <span class="device-name">${label}<span class="dim"> ${device.type}</span></span>
    ${
      jobName
        ? html`<${Link} class="device-job"
          href=${jobPath(jobName)}>${lastPart(jobName)} ${job?.resolved_spec?.name ?? ""}</${Link}>
        <span class="dim">${job?.user ?? ""}</span>`
        : html`<span class="dim">${isUsable ? "free" : why ? "set aside" : "not used"}</span>`
    }
    ${why && html`<span class="device-why">${why}</span>`}
    ${
      usage &&
      html`<span class="dim num device-usage"
        >${[
          usage.utilization !== undefined && `${Math.round(usage.utilization * 100)}%`,
          usage.memory_bytes !== undefined && bytes(usage.memory_bytes),
          usage.temperature_celsius !== undefined && `${Math.round(usage.temperature_celsius)} °C`,
          usage.power_watts !== undefined && `${Math.round(usage.power_watts)} W`,
        ]
          .filter(Boolean)
          .join(" · ")}${usage.slowed_by ? ` · slowed by ${usage.slowed_by}` : ""}</span
      >`
    }
  </li>`;
}
