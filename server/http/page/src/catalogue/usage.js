// Shows what users and projects have used, and what their jobs take on the server's disk.
import { sayError } from "../api.js";
import { html, classes } from "../html.js";
import { useCall } from "../load.js";
import { bytes, duration, lastPart, number, seconds } from "../pure/format.js";
import { Link, param, setParams } from "../router.js";
import { Empty, State } from "../widgets.js";

const stored = (one) => Number(one?.checkpoints ?? 0) + Number(one?.logs ?? 0) + Number(one?.metrics ?? 0);

export function Usage() {
  const by = param("by") === "project" ? "project" : "user";
  const usage = useCall(
    "SharingService/ListUsage",
    { group: by === "project" ? "USAGE_GROUP_PROJECT" : "USAGE_GROUP_USER", largest_jobs: 15 },
    { everyMs: 15000 },
  );
  const shares = useCall("SharingService/ListShares", {}, { everyMs: 15000 });
  const subjects = usage.data?.usage ?? [];
  const most = Math.max(1, ...subjects.map((one) => seconds(one.device_time) ?? 0));
  const largest = usage.data?.largest_jobs ?? [];
  return html`<main class="view" id="main">
    <div class="view-head">
      <h1>Usage</h1>
      <span class="spacer"></span>
      <div class="chips" role="group" aria-label="Added up">
        ${["user", "project"].map(
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
    ${usage.error && !usage.data &&
      html`<${Empty} title="The usage cannot be shown">${sayError(usage.error)}</${Empty}>`}
    <div class="stack">
      <section class="panel scroll-x" aria-label="Used and stored">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">${by === "user" ? "User" : "Project"}</th>
              <th scope="col" class="right">Jobs</th>
              <th scope="col" class="right">Device time</th>
              <th scope="col" class="bar-column"><span class="only-read">Share</span></th>
              <th scope="col" class="right">Checkpoints</th>
              <th scope="col" class="right">Logs</th>
              <th scope="col" class="right">Metrics</th>
              <th scope="col" class="right">On the disk</th>
              <th scope="col" class="right">Limit</th>
            </tr>
          </thead>
          <tbody>
            ${subjects
              .toSorted((a, b) => (seconds(b.device_time) ?? 0) - (seconds(a.device_time) ?? 0))
              .map(
                (one) =>
                  html`<tr key=${one.subject}>
                    <td>
                      ${
                        by === "user"
                          ? html`<${Link}
                            href=${`/?user=${encodeURIComponent(one.subject.slice(5))}`}
                            >${one.subject.slice(5)}</${Link}>`
                          : one.subject.slice(8) || html`<span class="dim">none</span>`
                      }
                    </td>
                    <td class="right">${number(one.jobs ?? 0)}</td>
                    <td class="right">${duration(seconds(one.device_time) ?? 0)}</td>
                    <td class="bar-column">
                      <span
                        class="usage-bar"
                        style=${{ width: `${(100 * (seconds(one.device_time) ?? 0)) / most}%` }}
                      ></span>
                    </td>
                    <td class="right">${bytes(one.stored?.checkpoints ?? 0)}</td>
                    <td class="right">${bytes(one.stored?.logs ?? 0)}</td>
                    <td class="right">${bytes(one.stored?.metrics ?? 0)}</td>
                    <td class="right">${bytes(stored(one.stored))}</td>
                    <td class="right">
                      ${Number(one.stored_bytes_max ?? 0) > 0 ? bytes(one.stored_bytes_max) : "–"}
                    </td>
                  </tr>`,
              )}
          </tbody>
        </table>
      </section>
      ${
        (shares.data?.shares ?? []).length > 0 &&
        html`<section class="panel scroll-x" tabindex="0" aria-label="Fair share">
          <div class="panel-head">
            <h2>Fair share</h2>
            <span class="dim">what was used a week ago counts half</span>
          </div>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">User</th>
                <th scope="col">Project</th>
                <th scope="col" class="right">Counted device time</th>
                <th scope="col" class="right">Weight</th>
                <th scope="col" class="right">Devices now</th>
                <th scope="col" class="right">Jobs that wait</th>
              </tr>
            </thead>
            <tbody>
              ${shares.data.shares.map(
                (one) =>
                  html`<tr key=${`${one.user}/${one.project}`}>
                    <td>${one.user}</td>
                    <td>${one.project ?? ""}</td>
                    <td class="right">${duration(seconds(one.device_time) ?? 0)}</td>
                    <td class="right">${one.weight ?? 1}</td>
                    <td class="right">${one.devices ?? 0}</td>
                    <td class="right">${number(one.queued_jobs ?? 0)}</td>
                  </tr>`,
              )}
            </tbody>
          </table>
        </section>`
      }
      ${
        largest.length > 0 &&
        html`<section class="panel scroll-x" aria-label="Largest jobs">
          <div class="panel-head"><h2>Largest jobs</h2></div>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">State</th>
                <th scope="col">Owner</th>
                <th scope="col" class="right">Checkpoints</th>
                <th scope="col" class="right">Logs</th>
                <th scope="col" class="right">Metrics</th>
                <th scope="col" class="right">In all</th>
              </tr>
            </thead>
            <tbody>
              ${largest.map(
                (
                  one,
                ) => html`<tr key=${one.job}><td><${Link}
                  href=${`/${one.job}`}>${lastPart(one.job)} ${one.display_name}</${Link}></td><td>
                    <${State} state=${one.state} /></td>
          <td>${one.user}</td><td class="right">${bytes(one.stored?.checkpoints ?? 0)}</td><td
            class="right">${bytes(one.stored?.logs ?? 0)}</td>
          <td class="right">${bytes(one.stored?.metrics ?? 0)}</td><td class="right">${bytes(stored(one.stored))}</td>
            </tr>`,
              )}
            </tbody>
          </table>
        </section>`
      }
    </div>
  </main>`;
}
