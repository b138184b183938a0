// Puts together who has computed which replicas, from what each checkpoint and the present progress say.

// The moments at which the division is known, in order of steps: [{step, isNow, counts}]. `states` are the contents of
// checkpoints' state.json; those of before that are like the one before them are left out.
export function momentsOf(states, progress) {
  const moments = states
    .map((state) => ({ step: Number(state?.step), counts: state?.hosting }))
    .filter(({ step, counts }) => Number.isFinite(step) && isCounts(counts));
  // Each stage of a pipeline hosts the same replicas, so the first one says all.
  const now = (progress?.hosting ?? []).filter(({ stage = 0 }) => stage === 0).map(({ replicas = 0 }) => replicas);
  if (isCounts(now)) moments.push({ step: Number(progress.step ?? 0), counts: now, isNow: true });
  return moments
    .sort((a, b) => a.step - b.step || (a.isNow ? 1 : -1))
    .filter((one, index, all) => one.isNow || index === 0 || String(one.counts) !== String(all[index - 1].counts));
}

const kReplicasMax = 4096;

const isCounts = (counts) =>
  Array.isArray(counts) &&
  counts.length > 0 &&
  counts.every((count) => Number.isInteger(count) && count >= 0) &&
  counts.reduce((sum, count) => sum + count, 0) <= kReplicasMax;
