// Follows one job.
import { useEffect, useState } from "preact/hooks";
import { openStream } from "../stream.js";

// Returns {job, error, isDeleted}.
export function useJob(name) {
  const [state, setState] = useState({ job: null, error: null, isDeleted: false });
  useEffect(
    () =>
      openStream("JobService/WatchJobs", { names: [name] }, {
        onMessage: ({ job, deleted }) =>
          setState((old) => (deleted ? { ...old, isDeleted: true } : { job, error: null, isDeleted: false })),
        onError: (error) => setState((old) => ({ ...old, error })),
      }),
    [name],
  );
  return state;
}
