// Asks for the attempts of the jobs that do not say them themselves, and keeps what cannot change any more.
import { useEffect, useState } from "preact/hooks";
import { call, forEachOf } from "../api.js";
import { lastPart, millis, word } from "../pure/format.js";

// Each job is a call, so only so many of the newest ones are asked for.
const kJobsMax = 200;
const kCallsAtOnce = 3;

const known = new Map();
const versionOf = ({ attempt, state }) => `${attempt} ${state}`;

// Returns a function that gives the attempts of a row, or nothing if they are not known yet.
export function useAttemptsOf(rows) {
  const [, setTurn] = useState(0);
  const wanted = rows
    .filter((row) => known.get(row.uid)?.version !== versionOf(row))
    .sort((a, b) => b.id - a.id)
    .slice(0, kJobsMax);
  const key = wanted.map((row) => `${row.uid} ${versionOf(row)}`).join();
  useEffect(() => {
    const abort = new AbortController();
    forEachOf(wanted, kCallsAtOnce, async (row) => {
      if (abort.signal.aborted) return;
      try {
        const answer = await call("JobService/ListAttempts", { parent: row.name }, { signal: abort.signal });
        known.set(row.uid, { version: versionOf(row), attempts: (answer.attempts ?? []).map(plain) });
        setTurn((old) => old + 1);
      } catch {
        // The job was deleted, or the next change of the list asks again.
      }
    });
    return () => abort.abort();
  }, [key]);
  return (row) => known.get(row.uid)?.attempts;
}

const plain = ({ name, state, placement, create_time: created, start_time: started, end_time: ended }) => ({
  number: Number(lastPart(name)),
  places: placement ?? [],
  begin: millis(created) ?? millis(started),
  end: millis(ended),
  state: word(state, "ATTEMPT_STATE_"),
});
