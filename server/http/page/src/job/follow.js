// Follows one job.
import { useEffect, useState } from "preact/hooks";
import { openStream } from "../stream.js";

// Returns {job, error, isDeleted, show}; `show` takes a newer state of the job from the answer of a call, because a
// watch does not tell of notes and tags.
export function useJob(name) {
  const [state, setState] = useState({ job: null, error: null, isDeleted: false });
  useEffect(
    () =>
      openStream(
        "JobService/WatchJobs",
        { names: [name] },
        {
          onMessage: ({ job, deleted }) =>
            setState((old) => (deleted ? { ...old, isDeleted: true } : { job, error: null, isDeleted: false })),
          onError: (error) => setState((old) => ({ ...old, error })),
        },
      ),
    [name],
  );
  const show = (job) => setState((old) => ({ ...old, job }));
  return { ...state, show };
}
