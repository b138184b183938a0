// Finds what happened to a job on the axis of its curves.
import { lastPart, millis } from "./format.js";
import { stepAt } from "./points.js";

// Returns [{x, kind}] of events and attempts. On the axis of steps, what has only a time stands where the longest
// series was then.
export function marksOf(events, attempts, { axis, begin, longest }) {
  const marks = [];
  const place = (kind, time, step) => {
    const x = axis === "time" ? (time - begin) / 1000 : (step ?? stepAt(longest, time));
    if (x !== undefined && Number.isFinite(x)) marks.push({ x, kind });
  };
  for (const { type, message, time } of events) {
    if (type === "CHECKPOINT_COMMITTED") {
      const step = /step (\d+)/.exec(message ?? "")?.[1];
      place("checkpoint", millis(time), step === undefined ? undefined : Number(step));
    } else if (type === "JOB_SUSPENDED") {
      place("suspension", millis(time));
    }
  }
  for (const attempt of attempts) {
    const number = Number(lastPart(attempt.name));
    if (number > 1 && attempt.start_time) {
      place("restart", millis(attempt.start_time), Number(attempt.resumed_from_step ?? 0));
    }
    if (attempt.state === "ATTEMPT_STATE_PREEMPTED" && !events.some(({ type }) => type === "JOB_SUSPENDED")) {
      place("preemption", millis(attempt.end_time));
    }
    if (/FAILED|LOST/.test(attempt.state ?? "")) place("failure", millis(attempt.end_time));
  }
  return marks;
}
