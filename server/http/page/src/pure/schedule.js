// Places attempts of jobs on the devices that they held, and those that are expected, in a picture over the time.

// The bars of jobs in a part of the time: one for each attempt, with the places of its ranks. `attemptsOf` returns the
// attempts of a job, or nothing if they are not known; a job of one attempt says enough itself.
export function barsOf(rows, attemptsOf, { from, to, now }) {
  const bars = [];
  for (const row of rows) {
    if (row.attempt === 0) continue;
    for (const one of attemptsOf(row) ?? ownAttempt(row)) {
      const isOver = one.end !== undefined;
      const expected = isOver ? undefined : expectedEnd(row, one.begin, now);
      const end = one.end ?? now;
      if (one.begin === undefined || one.begin > to || (expected ?? end) < from) continue;
      bars.push({ row, ...one, end, isOver, expected });
    }
  }
  return bars.sort((a, b) => a.begin - b.begin || a.row.id - b.row.id);
}

function ownAttempt({ attempt, placement, started, ended, state }) {
  return [{ number: attempt, places: placement, begin: started, end: ended, state: endWord(state) }];
}

const endWord = (state) => (state ?? "").replace("JOB_STATE_", "").toLowerCase();

// The time at which a running attempt is expected to end: by its speed, or else by the limit of its job.
export function expectedEnd({ eta, limit }, begin, now) {
  if (eta !== undefined) return now + eta * 1000;
  if (limit !== undefined && begin !== undefined) return Math.max(now, begin + limit * 1000);
  return undefined;
}

// True if a job does not say all of its attempts itself.
export const needsAttempts = ({ attempt, started }) => attempt > 1 || (attempt === 1 && started === undefined);

// The lanes of the picture: the devices of each worker in their order, then devices that are gone and were held.
export function lanesOf(workers, bars) {
  const lanes = new Map();
  const add = (worker, device, type = "") => {
    const key = `${worker}/${device}`;
    if (!lanes.has(key)) lanes.set(key, { key, worker, device, type, bars: [] });
    return lanes.get(key);
  };
  for (const { name, devices } of workers)
    for (const { name: device, type } of devices ?? []) add(name, device, type);
  for (const bar of bars) for (const { worker, device = "" } of bar.places) add(worker, device).bars.push(bar);
  // A device that is gone stands with the others of its worker.
  const order = [...new Set([...lanes.values()].map(({ worker }) => worker))];
  return order.flatMap((worker) => [...lanes.values()].filter((lane) => lane.worker === worker));
}

// The lanes of jobs that wait and have an expected start, the earliest first.
export function expectedLanes(rows, explanations, { to }) {
  return rows
    .map((row) => ({ row, begin: Date.parse(explanations[row.name]?.start_time ?? "") }))
    .filter(({ begin }) => begin <= to)
    .map(({ row, begin }) => ({
      row,
      begin,
      basis: explanations[row.name].start_basis ?? "",
      end: row.limit === undefined ? undefined : begin + row.limit * 1000,
    }))
    .sort((a, b) => a.begin - b.begin || a.row.id - b.row.id);
}

// The reservations of a part of the time, by the keys of the lanes of their devices, the earliest first.
export function reservedOf(reservations, { from, to, now }) {
  const byLane = new Map();
  for (const { name, start_time: start, end_time: end, devices, subjects } of reservations) {
    const one = { name, subjects: subjects ?? [], begin: Date.parse(start ?? "") || now, end: Date.parse(end) };
    if (one.begin > to || one.end < from) continue;
    for (const { worker, device } of devices ?? []) {
      const key = `${worker}/${device}`;
      byLane.set(key, [...(byLane.get(key) ?? []), one].sort((a, b) => a.begin - b.begin));
    }
  }
  return byLane;
}

const kTickSeconds = [60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800];

// Round times of the browser's zone, at most `most` of them: [{at, text}].
export function timeTicks(from, to, most) {
  const step = 1000 * (kTickSeconds.find((each) => (to - from) / 1000 / each <= most) ?? 604800);
  const offset = new Date(from).getTimezoneOffset() * 60000;
  const two = (value) => String(value).padStart(2, "0");
  const ticks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
    const date = new Date(at);
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
    ticks.push({ at, text: step >= 86400000 ? day : time === "00:00" ? day : time });
  }
  return ticks;
}
