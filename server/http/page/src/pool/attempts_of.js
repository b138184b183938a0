// Asks for the attempts of the jobs that do not say them themselves, and keeps what cannot change any more.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../api.js";
import { lastPart, millis, word } from "../pure/format.js";

// Each job is a call, so only so many of the newest ones are asked for, a few at a time.
const kJobsMax = 200;
const kCallsMax = 3;

const known = new Map();
const turn = signal(0);
let waiting = [];
let running = 0;

const versionOf = ({ attempt, state }) => `${attempt} ${state}`;

function work() {
  while (running < kCallsMax && waiting.length > 0) {
    const row = waiting.shift();
    running += 1;
    ask(row).finally(() => {
      running -= 1;
      work();
    });
  }
}

async function ask(row) {
  const version = versionOf(row);
  const old = known.get(row.uid)?.attempts;
  known.set(row.uid, { version, attempts: old });
  try {
    const { attempts = [] } = await call("JobService/ListAttempts", { parent: row.name });
    known.set(row.uid, { version, attempts: attempts.map(plain) });
    turn.value += 1;
  } catch {
    // The job was deleted, or the server is away: its next change asks again.
    known.set(row.uid, { version: "", attempts: old });
  }
}

// Returns a function that gives the attempts of a row, or nothing if they are not known yet.
export function useAttemptsOf(rows) {
  const shown = turn.value;
  const wanted = rows
    .filter((row) => known.get(row.uid)?.version !== versionOf(row))
    .sort((a, b) => b.id - a.id)
    .slice(0, kJobsMax);
  const key = wanted.map((row) => `${row.uid} ${versionOf(row)}`).join();
  useEffect(() => {
    waiting = wanted;
    work();
  }, [key, shown]);
  useEffect(
    () => () => {
      waiting = [];
    },
    [],
  );
  return (row) => known.get(row.uid)?.attempts;
}

const plain = ({ name, state, placement, create_time: created, start_time: started, end_time: ended }) => ({
  number: Number(lastPart(name)),
  places: placement ?? [],
  begin: millis(created) ?? millis(started),
  end: millis(ended),
  state: word(state, "ATTEMPT_STATE_"),
});
