// Keeps of a job what a table needs, so that thousands of jobs fit into a page.
import { millis, seconds } from "./pure/format.js";
import { flatten, modelOf, peopleForm } from "./pure/spec.js";

export function row(job) {
  const spec = job.resolved_spec ?? job.spec ?? {};
  return {
    name: job.name,
    id: Number(job.name.split("/")[1]),
    uid: job.uid,
    title: spec.name ?? "",
    state: job.state,
    user: job.user ?? "",
    project: spec.project ?? "",
    model: modelOf(spec),
    dataset: spec.data?.dataset ?? "",
    devices: spec.devices?.count ?? 0,
    priority: spec.priority ?? 0,
    attempt: job.attempt ?? 0,
    placement: job.placement ?? [],
    limit: seconds(spec.time_limit),
    preemptions: job.preemptions ?? 0,
    step: Number(job.progress?.step ?? 0),
    totalSteps: Number(job.progress?.total_steps ?? 0),
    eta: seconds(job.progress?.eta),
    rate: job.progress?.samples_per_s,
    created: millis(job.create_time),
    started: millis(job.start_time),
    ended: millis(job.end_time),
    deviceTime: seconds(job.device_time),
    reason: job.queue_reasons?.[0] ?? job.failure?.message ?? "",
    failure: job.failure,
    note: job.note ?? "",
    tags: [...(spec.tags ?? []), ...(job.added_tags ?? [])],
    sweep: job.provenance?.trial ? Number(job.provenance.trial.split("/")[1]) : undefined,
    verified: job.verified,
    metrics: job.final_metrics ?? {},
    etag: job.etag,
    spec,
  };
}

const leavesOf = new WeakMap();

// The fields of the row's spec by path, in the form in which people write them.
export function leaves(row) {
  let result = leavesOf.get(row.spec);
  if (!result) {
    result = flatten(peopleForm(row.spec));
    leavesOf.set(row.spec, result);
  }
  return result;
}

// The time for which a job ran, in seconds, until now if it runs.
export function took(row, now) {
  if (row.started === undefined) return undefined;
  if (row.ended !== undefined) return (row.ended - row.started) / 1000;
  return Math.max(0, (now - row.started) / 1000);
}
