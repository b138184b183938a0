// Runs a saved spec, as it was or with changes.
import { useMemo } from "preact/hooks";
import { call } from "../api.js";
import { html } from "../html.js";
import { useCall } from "../load.js";
import { differencesOf } from "../pure/differences.js";
import { withChanges } from "../pure/edits.js";
import { lastPart } from "../pure/format.js";
import { flatten, peopleForm } from "../pure/spec.js";
import { Link, param } from "../router.js";
import { ErrorBox } from "../widgets.js";
import { Form } from "./form.js";

export function RunSpec({ name }) {
  const version = param("version");
  const { data: saved, error } = useCall("SpecService/GetSavedSpec", {
    name: `specs/${name}${version ? `/versions/${version}` : ""}`,
  });
  const spec = useMemo(() => peopleForm(saved?.resolved_spec ?? saved?.spec ?? {}), [saved]);
  const fields = useMemo(() => flatten(spec), [spec]);
  if (!saved) {
    return html`<main class="view" id="main">
      ${error ? html`<${ErrorBox} error=${error} />` : html`<div class="loading">Loading ${name}</div>`}
    </main>`;
  }
  const request = (changes) => ({ spec: withChanges(spec, changes), options: { saved_spec: saved.name } });
  return html`<${Form} source=${{
    key: saved.name,
    heading: `Run ${name}@${lastPart(saved.name)}`,
    crumbs: html`<${Link} href="/specs">Saved specs</${Link}> / <${Link}
      href=${`/specs/${name}`}>${name}</${Link}> / run`,
    action: "Submit the job",
    fields,
    check: async (changes, from, signal) => {
      const job = await call("JobService/CreateJob", { ...request(changes), validate_only: true }, { signal });
      return { job, differences: differencesOf(fields, flatten(peopleForm(job.resolved_spec))) };
    },
    submit: (changes, from, requestId) =>
      call("JobService/CreateJob", { ...request(changes), request_id: requestId }),
  }} />`;
}
