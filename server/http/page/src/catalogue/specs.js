// The catalogue of saved specs.
import { useMemo, useState } from "preact/hooks";
import { sayError } from "../api.js";
import { html } from "../html.js";
import { useCall } from "../load.js";
import { clock, lastPart, metric, millis } from "../pure/format.js";
import { flatten, leafText, peopleForm } from "../pure/spec.js";
import { Link, param, setParams } from "../router.js";
import { maySubmit } from "../session.js";
import { useDebounced } from "../virtual.js";
import { download, Empty } from "../widgets.js";

const nameOf = (spec) => spec.name.split("/")[1];

export function Specs() {
  const [text, setText] = useState(param("q"));
  useDebounced(text, 250, (value) => value !== param("q") && setParams({ q: value }));
  const { data, error } = useCall("SpecService/ListSavedSpecs", { page_size: 1000, text: param("q") });
  const specs = data?.specs ?? [];
  return html`<main class="view" id="main">
    <div class="view-head">
      <h1>Saved specs</h1>
      <span class="spacer"></span>
      <input
        class="input log-search"
        type="search"
        placeholder="Find a spec"
        aria-label="Find a spec"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
      />
    </div>
    ${error && !data && html`<${Empty} title="The specs cannot be shown">${sayError(error)}</${Empty}>`}
    ${
      data &&
      specs.length === 0 &&
      html`<${Empty} title="No saved specs">Save the spec of a job:
      <pre class="command">trainyard specs save 12 NAME</pre></${Empty}>`
    }
    ${
      specs.length > 0 &&
      html`<section class="panel scroll-x" aria-label="Saved specs">
        <table class="table specs-table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">By</th>
              <th scope="col">Model</th>
              <th scope="col">Data set</th>
              <th scope="col">Note</th>
              <th scope="col">Result</th>
            </tr>
          </thead>
          <tbody>
            ${specs.map((spec) => {
              const result = Object.entries(spec.result?.final_metrics ?? {})
                .filter(([name]) => name.startsWith("test."))
                .sort()[0];
              return html`<tr key=${spec.name}><td class="nowrap"><${Link} class="row-link"
                href=${`/specs/${nameOf(spec)}`}>${nameOf(spec)}</${Link}>
            <span class="dim"> @${lastPart(spec.name)}</span>${(spec.tags ?? []).map((tag) =>
              html`<span class="tag" key=${tag}>${tag}</span>`)}</td>
          <td class="nowrap">${spec.user}</td><td>${spec.model}</td><td>${spec.dataset}</td>
          <td class="spec-note"><p>${spec.note}</p></td><td
            class="nowrap">${result && `${result[0]} ${metric(...result)}`}</td></tr>`;
            })}
          </tbody>
        </table>
      </section>`
    }
  </main>`;
}

export function SavedSpec({ name }) {
  const version = param("version");
  const versions = useCall("SpecService/ListSavedSpecs", { parent: `specs/${name}` });
  const { data: spec, error } = useCall("SpecService/GetSavedSpec", {
    name: `specs/${name}${version ? `/versions/${version}` : ""}`,
  });
  const fields = useMemo(() => flatten(peopleForm(spec?.resolved_spec ?? spec?.spec ?? {})), [spec]);
  const chosen = useMemo(() => flatten(peopleForm(spec?.spec ?? {})), [spec]);
  if (!spec) {
    return html`<main class="view" id="main">
      ${error ? html`<${Empty} title="The spec cannot be shown">${sayError(error)}</${Empty}>` :
        html`<div class="loading">Loading</div>`}
    </main>`;
  }
  const number = lastPart(spec.name);
  return html`<main class="view" id="main">
    <p class="crumbs"><${Link} href="/specs">Saved specs</${Link}> / ${name}</p>
    <div class="view-head"><h1>${name}</h1><label class="control">Version
      <select class="select" value=${number} onChange=${(event) => setParams({ version: event.target.value })}>
        ${(versions.data?.specs ?? [spec]).map((one) =>
          html`<option key=${one.name} value=${lastPart(one.name)}>${lastPart(one.name)}</option>`)}
      </select></label><span class="spacer"></span>
      ${maySubmit() &&
        html`<${Link} class="button button-primary" href=${`/specs/${name}/run?version=${number}`}>Run</${Link}>`}
      <button type="button" class="button"
        onClick=${() =>
          download(`${name}-${number}.json`, JSON.stringify(peopleForm(spec.spec), null, 2), "application/json")}
        >Save as JSON</button></div>
    <div class="grid-2"><section class="panel" aria-label="Fields"><table class="table config-table"><tbody>
      ${Object.entries(fields).map(
        ([path, value]) =>
          html`<tr key=${path}>
            <th scope="row" class="mono">${path}</th>
            <td class=${path in chosen ? "mono chosen" : "mono dim"}>${leafText(value)}</td>
          </tr>`,
      )}</tbody></table></section>
      <div class="stack"><section class="panel panel-body" aria-label="About"><dl class="facts"><div><dt>By</dt>
        <dd>${spec.user}</dd></div>
        <div><dt>Saved</dt><dd>${clock(millis(spec.create_time))}</dd></div>
        ${spec.result?.job &&
          html`<div><dt>Of job</dt><dd><${Link} href=${`/${spec.result.job}`}>${lastPart(spec.result.job)}</${Link}>
            </dd></div>`}
        ${Object.entries(spec.result?.final_metrics ?? {})
          .slice(0, 4)
          .map(
            ([key, value]) =>
              html`<div key=${key}>
                <dt>${key}</dt>
                <dd>${metric(key, value)}</dd>
              </div>`,
          )}</dl>
        ${spec.note && html`<p class="note-text spec-about">${spec.note}</p>`}
        <p>Or run it from a terminal:</p><pre class="command">trainyard run ${name}@${number}</pre></section></div></div>
  </main>`;
}
