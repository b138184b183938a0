// Runs a job again with changes.
import { useMemo } from "preact/hooks";
import { call } from "../api.js";
import { html } from "../html.js";
import { leaves, row } from "../job_row.js";
import { useCall } from "../load.js";
import { jobPath, Link } from "../router.js";
import { ErrorBox } from "../widgets.js";
import { Form } from "./form.js";

export function Clone({ id }) {
  const name = `jobs/${id}`;
  const { data: job, error } = useCall("JobService/GetJob", { name });
  const checkpoints = useCall("CheckpointService/ListCheckpoints", { parent: name });
  const one = useMemo(() => job && row(job), [job]);
  if (!job) {
    return html`<main class="view" id="main">
      ${error ? html`<${ErrorBox} error=${error} />` : html`<div class="loading">Loading ${name}</div>`}
    </main>`;
  }
  const request = (changes, from) => ({ name, changes, from_checkpoint: from });
  return html`<${Form} source=${{
    key: name,
    heading: `Clone ${one.title} with changes`,
    crumbs: html`<${Link} href="/">Runs</${Link}> / <${Link}
      href=${jobPath(name)}>${id} ${one.title}</${Link}> / clone`,
    action: "Submit the clone",
    fields: leaves(one),
    checkpoints: checkpoints.data?.checkpoints ?? [],
    check: (changes, from, signal) =>
      call("JobService/CloneJob", { ...request(changes, from), validate_only: true }, { signal }),
    submit: async (changes, from, requestId) =>
      (await call("JobService/CloneJob", { ...request(changes, from), request_id: requestId })).job,
  }} />`;
}
