// Asks why the first jobs of the queue wait, and when they are expected to start.
import { useEffect, useState } from "preact/hooks";
import { call, forEachOf } from "../api.js";

// Each explanation is a call, so only so many of the first jobs get one.
const kExplained = 25;
const kCallsAtOnce = 3;

// The answers of ExplainJob by the names of the jobs.
export function useExplanations(queue) {
  const [all, setAll] = useState({});
  const jobs = queue.slice(0, kExplained);
  const key = jobs.map(({ name, etag }) => `${name}@${etag}`).join();
  useEffect(() => {
    const abort = new AbortController();
    forEachOf(jobs, kCallsAtOnce, async ({ name }) => {
      try {
        const answer = await call("JobService/ExplainJob", { name }, { signal: abort.signal });
        if (!abort.signal.aborted) setAll((old) => ({ ...old, [name]: answer }));
      } catch {
        // The job has started meanwhile, or the next round asks again.
      }
    });
    return () => abort.abort();
  }, [key]);
  return all;
}
