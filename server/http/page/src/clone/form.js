// The form of a spec that is run again with changes: its fields, what differs, and what would happen, before anything
// is submitted.
import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "../connection.js";
import { html, classes } from "../html.js";
import { duration, millis } from "../pure/format.js";
import { changesOf, editsOf, isCommonField, paramsOf } from "../pure/edits.js";
import { leafText } from "../pure/spec.js";
import { go, jobPath, route, withParams } from "../router.js";
import { maySubmit } from "../session.js";
import { ErrorBox } from "../widgets.js";

const kCheckMs = 350;

// `source` is what is run again: {key, heading, crumbs, fields, checkpoints, check, submit}. `check(changes, from,
// signal)` returns {job, differences} of what would be submitted, and `submit(changes, from, requestId)` the new job.
export function Form({ source }) {
  const { heading, crumbs, fields, checkpoints } = source;
  const [edits, setEdits] = useState(() => editsOf(route.value.params.getAll("set")));
  const [from, setFrom] = useState(route.value.params.get("from") ?? "");
  const [find, setFind] = useState("");
  const [check, setCheck] = useState({ isBusy: true });
  const [isSending, setSending] = useState(false);
  const [sendError, setSendError] = useState(null);
  // A form that is sent twice makes one job.
  const requestId = useRef(newId());
  const changes = changesOf(edits, fields);
  const wanted = JSON.stringify([source.key, changes, from]);

  useEffect(() => {
    const params = paramsOf(edits, fields);
    const url = new URL(withParams({ from }), location.origin);
    url.searchParams.delete("set");
    for (const each of params) url.searchParams.append("set", each);
    history.replaceState(null, "", url.pathname + url.search);
    requestId.current = newId();
    const abort = new AbortController();
    setCheck((old) => ({ ...old, isBusy: true }));
    const timer = setTimeout(async () => {
      try {
        const answer = await source.check(changes, from, abort.signal);
        setCheck({ answer, of: wanted });
      } catch (error) {
        if (!abort.signal.aborted) setCheck({ error, of: wanted });
      }
    }, kCheckMs);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [wanted]);

  const set = (path, text) => setEdits((old) => ({ ...old, [path]: text }));
  const reset = (path) => setEdits(({ [path]: dropped, ...rest }) => rest);
  const wrong = new Map(
    (check.error?.violations ?? []).map(({ field, description }) => [field.replace(/^spec\./, ""), description]),
  );
  const isChecked = check.answer && check.of === wanted && !check.isBusy;
  const submit = async (event) => {
    event.preventDefault();
    if (!isChecked) return;
    setSending(true);
    setSendError(null);
    try {
      go(jobPath((await source.submit(changes, from, requestId.current)).name));
    } catch (error) {
      setSendError(error);
      setSending(false);
    }
  };

  const paths = [...new Set([...Object.keys(fields), ...Object.keys(edits)])];
  const fits = (path) => path.toLowerCase().includes(find.toLowerCase());
  const common = paths.filter((path) => isCommonField(path) || path in edits);
  const others = paths.filter((path) => !common.includes(path) && fits(path));
  const field = (path) =>
    html`<${Field}
      key=${path}
      path=${path}
      value=${leafText(fields[path])}
      edit=${edits[path]}
      wrong=${wrong.get(path)}
      onEdit=${(text) => set(path, text)}
      onReset=${() => reset(path)}
    />`;
  return html`<main class="view" id="main">
    <p class="crumbs">${crumbs}</p>
    <div class="view-head"><h1>${heading}</h1></div>
    ${!maySubmit() && html`<p class="warn">Your role permits no submissions.</p>`}
    <form class="grid-2 clone-grid" onSubmit=${submit}>
      <div class="stack">
        <section class="panel" aria-label="Common fields"><div class="panel-head"><h2>Often changed</h2></div>
          <div class="fields">${common.map(field)}
            ${checkpoints && html`<div class="field-row"><label class="field-path" for="from">from checkpoint</label>
              <select id="from" class="select field-input" value=${from}
                onChange=${(event) => setFrom(event.target.value)}>
                <option value="">as the job itself began</option>
                ${checkpoints.toReversed().map(({ name, step, is_best: isBest }) =>
                  html`<option key=${name} value=${name}>step ${step}${isBest ? ", the best" : ""}</option>`)}
              </select></div>`}</div></section>
        <section class="panel" aria-label="All other fields"><div class="panel-head"><h2>All others</h2>
          <input class="input log-search" type="search" placeholder="Find a field" aria-label="Find a field"
            value=${find}
            onInput=${(event) => setFind(event.target.value)} /></div>
          <div class="fields">${others.map(field)}<${AddField} known=${paths} onAdd=${set} /></div></section>
      </div>
      <aside class="panel clone-side" aria-label="What would be submitted">
        <div class="panel-head"><h2>What would be submitted</h2>${check.isBusy &&
          html`<span class="dim">checking</span>`}</div>
        <div class="panel-body stack" aria-live="polite">
          <${Dry} check=${check} />
          <${ErrorBox} error=${sendError} />
          <button class="button button-primary clone-submit" disabled=${!isChecked || isSending || !maySubmit()}>
            ${isSending ? "Submitting" : source.action}</button>
        </div></aside>
    </form>
  </main>`;
}

function Field({ path, value, edit, wrong, onEdit, onReset }) {
  const isChanged = edit !== undefined && edit !== value;
  const isLong = value.length > 60 || value.includes("\n");
  const id = `field-${path}`;
  const shared = {
    id,
    class: classes("input field-input mono", isChanged && "field-changed", wrong && "input-wrong"),
    value: edit ?? value,
    "aria-invalid": Boolean(wrong),
    "aria-describedby": wrong ? `${id}-wrong` : undefined,
    spellcheck: false,
    onInput: (event) => onEdit(event.target.value),
  };
  return html`<div class="field-row">
    <label class="field-path mono" for=${id}>${path}</label>
    ${isLong ? html`<textarea rows="4" ...${shared}></textarea>` : html`<input ...${shared} />`}
    ${
      isChanged &&
      html`<button
        type="button"
        class="button button-quiet button-small"
        onClick=${onReset}
        title=${`Undo the change of ${path}`}
      >
        was ${value.length > 18 ? `${value.slice(0, 18)}…` : value || "unset"}
      </button>`
    }
    ${wrong && html`<p class="field-wrong" id=${`${id}-wrong`}>${wrong}</p>`}
  </div>`;
}

function AddField({ known, onAdd }) {
  const [path, setPath] = useState("");
  const add = () => {
    if (path.trim() && !known.includes(path.trim())) onAdd(path.trim(), "");
    setPath("");
  };
  return html`<div class="field-row">
    <input
      class="input field-path mono"
      placeholder="another field: time_limit"
      aria-label="Path of another field"
      value=${path}
      onInput=${(event) => setPath(event.target.value)}
      onKeyDown=${(event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          add();
        }
      }}
    />
    <button type="button" class="button" onClick=${add}>Add the field</button>
  </div>`;
}

function Dry({ check }) {
  if (check.error) {
    const violations = check.error.violations ?? [];
    if (violations.length === 0) return html`<${ErrorBox} error=${check.error} />`;
    return html`<div class="error-box" role="alert">
      <ul class="violations">
        ${violations.map(
          ({ field, description }) => html`<li key=${field}><code>${field}</code> ${description}</li>`,
        )}
      </ul>
    </div>`;
  }
  if (!check.answer) return html`<p class="dim">…</p>`;
  const { job, differences = [] } = check.answer;
  const explanation = job?.explanation ?? {};
  const start = millis(explanation.start_time);
  return html` ${
    differences.length === 0
      ? html`<p class="dim">Nothing differs.</p>`
      : html`<table class="table diff-list">
          <thead>
            <tr>
              <th scope="col">Field</th>
              <th scope="col">Was</th>
              <th scope="col">Becomes</th>
            </tr>
          </thead>
          <tbody>
            ${differences.map(
              ({ path, left_json: left, right_json: right }) =>
                html`<tr key=${path}>
                  <th scope="row" class="mono">
                    ${path.split(".").map((part, index) => html`${index > 0 && html`.<wbr />`}${part}`)}
                  </th>
                  <td class="mono diff-was">${left || "–"}</td>
                  <td class="mono diff-is">${right || "–"}</td>
                </tr>`,
            )}
          </tbody>
        </table>`
  }
  ${(job?.warnings ?? []).map((warning) => html`<p class="warn" key=${warning}>${warning}</p>`)}
  ${
    explanation.infeasible
      ? html`<p class="worse">No known workers can ever hold it.</p>`
      : start !== undefined && start - now.value < 2000 && !explanation.reasons?.length
        ? html`<p>It would start at once: ${explanation.start_basis}.</p>`
        : html`<ul class="reasons">
              ${(explanation.reasons ?? []).map((reason) => html`<li key=${reason}>${reason}</li>`)}
            </ul>
            ${
              start !== undefined
                ? html`<p>It would start in ${duration((start - now.value) / 1000)}: ${explanation.start_basis}.</p>`
                : html`<p class="dim">
                    No start can be foretold${explanation.start_basis ? `: ${explanation.start_basis}` : ""}.
                  </p>`
            }`
  }`;
}

const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
