// The list of sweeps.
import { sayError } from "../api.js";
import { now } from "../connection.js";
import { html } from "../html.js";
import { useCall } from "../load.js";
import { ago, duration, lastPart, metric, millis, number, seconds, word } from "../pure/format.js";
import { Link } from "../router.js";
import { Empty } from "../widgets.js";

export const objectiveOf = (sweep) => sweep.spec?.sweep?.maximize ?? sweep.spec?.sweep?.minimize ?? "";

export function SweepState({ state }) {
  const name = word(state, "SWEEP_STATE_");
  return html`<span class=${`state state-${name === "stopped" ? "suspended" : name}`}>${name}</span>`;
}

export function Sweeps() {
  const { data, error } = useCall("SweepService/ListSweeps", { page_size: 500 }, { everyMs: 4000 });
  const sweeps = data?.sweeps ?? [];
  return html`<main class="view" id="main">
    <div class="view-head"><h1>Sweeps</h1></div>
    ${error && !data && html`<${Empty} title="Sweeps cannot be shown">${sayError(error)}</${Empty}>`}
    ${
      data &&
      sweeps.length === 0 &&
      html`<${Empty} title="No sweeps yet">Begin one from a terminal:
      <pre class="command">trainyard sweep run jobs/sweep-fashion-mnist.yaml</pre></${Empty}>`
    }
    ${
      sweeps.length > 0 &&
      html`<section class="panel scroll-x" aria-label="Sweeps">
        <table class="table">
          <thead>
            <tr>
              <th scope="col" class="right">#</th>
              <th scope="col">State</th>
              <th scope="col">Name</th>
              <th scope="col">Owner</th>
              <th scope="col">Search</th>
              <th scope="col">Objective</th>
              <th scope="col" class="right">Best</th>
              <th scope="col">Best job</th>
              <th scope="col" class="right">Trials</th>
              <th scope="col" class="right">Device time</th>
              <th scope="col" class="right">Began</th>
            </tr>
          </thead>
          <tbody>
            ${sweeps.map((sweep) => {
              const objective = objectiveOf(sweep);
              const best = sweep.trials?.[0];
              return html`<tr key=${sweep.name}><td class="right">${lastPart(sweep.name)}</td><td>
                <${SweepState} state=${sweep.state} /></td>
          <td><${Link} class="row-link" href=${`/sweeps/${lastPart(sweep.name)}`}>${sweep.title}</${Link}></td>
            <td>${sweep.user}</td>
          <td>${word(sweep.spec?.sweep?.search, "SWEEP_SEARCH_")}</td>
            <td>${sweep.spec?.sweep?.minimize ? "least" : "most"} ${objective}</td>
          <td class="right">${(sweep.best_trial ?? 0) < 0 ? "–" : metric(objective, sweep.best_value ?? 0)}</td>
          <td>${best?.job && html`<${Link} href=${`/${best.job}`}>${lastPart(best.job)}</${Link}>`}</td>
          <td class="right">${number(sweep.trials_ended ?? 0)} of ${number(sweep.trials_total ?? 0)}</td>
          <td class="right">${duration(seconds(sweep.device_time))}</td><td
            class="right nowrap">${ago(millis(sweep.create_time), now.value)}</td></tr>`;
            })}
          </tbody>
        </table>
      </section>`
    }
  </main>`;
}
