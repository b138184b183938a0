// Reads the timelines that ranks write about single steps, and sums up what a step was spent on.

const kKinds = ["compute", "comm", "wait", "data"];

// The span of a line {"name", "cat", "ph": "X", "ts", "dur", "args": {"step"}}, or nothing. Ranks of users' programs
// may write anything.
export function spanOf(line) {
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return undefined;
  }
  const { name, cat, ph, ts, dur, args } = event ?? {};
  if (ph !== "X" || typeof name !== "string" || !Number.isFinite(ts) || !Number.isFinite(dur) || dur < 0)
    return undefined;
  if (!Number.isInteger(args?.step)) return undefined;
  return { name, kind: kKinds.includes(cat) ? cat : "other", begin: ts, end: ts + dur, step: args.step };
}

// Adds the spans of lines to a map of steps to maps of ranks to spans.
export function addLines(steps, rank, lines) {
  for (const line of lines) {
    const span = spanOf(line);
    if (!span) continue;
    if (!steps.has(span.step)) steps.set(span.step, new Map());
    const ranks = steps.get(span.step);
    if (!ranks.has(rank)) ranks.set(rank, []);
    ranks.get(rank).push(span);
  }
  return steps;
}

// The length of what spans cover, in their unit.
export function covered(spans) {
  let sum = 0;
  let reached = -Infinity;
  for (const { begin, end } of spans.toSorted((a, b) => a.begin - b.begin)) {
    sum += Math.max(0, end - Math.max(begin, reached));
    reached = Math.max(reached, end);
  }
  return sum;
}

// Sums up what each rank spent a step on, in microseconds: {begin, end, ranks: [{rank, lanes, length, compute, comm, wait,
// data, hidden}]}. A rank waits in the lane in which it computes. `hidden` is the share of the communication for which it
// did not wait, and undefined without communication.
export function stepOf(ranks) {
  let begin = Infinity;
  let end = -Infinity;
  const all = [...ranks]
    .sort(([a], [b]) => a - b)
    .map(([rank, spans]) => {
      const of = (...kinds) => spans.filter(({ kind }) => kinds.includes(kind));
      const first = spans.reduce((least, span) => Math.min(least, span.begin), Infinity);
      const last = spans.reduce((most, span) => Math.max(most, span.end), -Infinity);
      begin = Math.min(begin, first);
      end = Math.max(end, last);
      const comm = covered(of("comm", "wait"));
      const wait = covered(of("wait"));
      return {
        rank,
        lanes: [
          ["compute", of("compute", "wait", "other")],
          ["comm", of("comm")],
          ["data", of("data")],
        ].filter(([, list]) => list.length > 0),
        length: last - first,
        compute: covered(of("compute")),
        comm,
        wait,
        data: covered(of("data")),
        hidden: comm > 0 ? 1 - wait / comm : undefined,
      };
    });
  return { begin, end, ranks: all };
}
