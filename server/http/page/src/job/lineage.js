// From which jobs a job descends, and which descend from it; and who has run it again.
import { html, classes } from "../html.js";
import { useCall } from "../load.js";
import { lastPart, metric, millis, word } from "../pure/format.js";
import { treeOf } from "../pure/lineage.js";
import { jobPath, Link } from "../router.js";
import { ErrorBox, State, Time, Verified } from "../widgets.js";

export function Lineage({ job }) {
  const { data, error } = useCall("JobService/GetLineage", { name: job.name }, { key: job.state });
  const verifications = useCall(
    "JobService/ListVerifications",
    { name: job.name },
    { key: job.state, isOff: !job.verified },
  );
  const roots = treeOf(data?.nodes ?? []);
  return html`<div class="stack">
    <section class="panel" aria-label="Lineage">
      <div class="panel-head">
        <h2>Lineage</h2>
        ${data?.is_cut && html`<span class="dim">the nearest jobs only</span>`}
      </div>
      <${ErrorBox} error=${error} />
      <ul class="tree panel-body">
        ${roots.map((node) => html`<${Node} key=${node.name} node=${node} here=${job.name} />`)}
      </ul>
    </section>
    ${
      (verifications.data?.verifications ?? []).length > 0 &&
      html`<section class="panel scroll-x" aria-label="Verifications">
        <div class="panel-head"><h2>Run again</h2></div>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">Result</th>
              <th scope="col">When</th>
              <th scope="col">On</th>
              <th scope="col">Because</th>
            </tr>
          </thead>
          <tbody>
            ${verifications.data.verifications.map(
              (one) => html`<tr key=${one.job}>
        <td><${Link} href=${`/${one.job}`}>${lastPart(one.job)}</${Link}></td>
        <td><${Result} result=${one.result} /></td><td class="nowrap"><${Time} ms=${millis(one.time)} /></td>
        <td>${one.devices}</td><td>${(one.reasons ?? []).map((reason) =>
          html`<p key=${reason}>${reason}</p>`)}</td></tr>`,
            )}
          </tbody>
        </table>
      </section>`
    }
  </div>`;
}

function Result({ result }) {
  const name = word(result, "VERIFICATION_RESULT_");
  return html`<span
    class=${classes(
      "state",
      /identical|equivalent/.test(name)
        ? "state-succeeded"
        : name === "pending" ? "state-queued" : "state-failed",
    )}
    >${name}</span
  >`;
}

function Node({ node, here }) {
  const best = Object.entries(node.final_metrics ?? {})
    .filter(([name]) => name.startsWith("test."))
    .sort(([a], [b]) => a.localeCompare(b))[0];
  return html`<li>
    <div class=${classes("tree-node", node.name === here && "tree-here")}>
      ${node.kinds.map((kind) => html`<span class="tag" key=${kind}>${kind}</span>`)}
      ${
        node.name.startsWith("jobs/")
          ? html`<${Link} href=${jobPath(node.name)}>${lastPart(node.name)} ${node.title ?? "(deleted)"}</${Link}>`
          : html`<span>${node.name}</span>`
      }
      ${node.state && html`<${State} state=${node.state} />`}
      <span class="dim">${node.user}</span>
      ${best && html`<span class="num">${best[0]} ${metric(best[0], best[1])}</span>`}
      <${Verified} verified=${node.verified} />
    </div>
    ${
      node.children.length > 0 &&
      html`<ul>
        ${node.children.map((child) => html`<${Node} key=${child.name} node=${child} here=${here} />`)}
      </ul>`
    }
  </li>`;
}
