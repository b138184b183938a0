// Places the trials of a sweep on parallel axes.

// The axis of a parameter: {path, place(json), ticks}. `text` is how the sweep searches it: "log(1e-3, 1)",
// "[32, 64]". Places are 0 at the foot and 1 at the top.
export function axisOf(path, text, jsons) {
  const call = /^\s*(log|uniform|int|log_int)\s*\(([^)]*)\)/.exec(text ?? "");
  if (call) {
    const [low, high] = call[2].split(",").map(Number);
    return { path, ...scale(low, high, call[1].startsWith("log")) };
  }
  // A list: its values stand in their order.
  const values = [...new Set(jsons.filter((json) => json !== undefined))];
  const numbers = values.map(Number);
  if (numbers.every((value) => !Number.isNaN(value))) values.sort((a, b) => Number(a) - Number(b));
  else values.sort();
  const at = (index) => (values.length < 2 ? 0.5 : index / (values.length - 1));
  return {
    path,
    place: (json) => (values.includes(json) ? at(values.indexOf(json)) : undefined),
    ticks: values.slice(0, 12).map((value, index) => ({ at: at(index), text: String(value).replace(/^"|"$/g, "") })),
  };
}

// The axis of the objective.
export function valueAxis(values, format) {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return { place: () => undefined, ticks: [] };
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  return scale(low, high === low ? low + 1e-9 : high, false, format);
}

function scale(low, high, isLog, format = short) {
  const to = (value) => (isLog ? Math.log10(value) : value);
  const place = (json) => {
    const value = Number(json);
    if (json === undefined || Number.isNaN(value) || !Number.isFinite(value)) return undefined;
    return high === low ? 0.5 : Math.min(1, Math.max(0, (to(value) - to(low)) / (to(high) - to(low))));
  };
  const ticks = [];
  if (isLog && Math.log10(high / low) >= 1.5) {
    for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; ++power) {
      ticks.push({ at: place(10 ** power), text: format(10 ** power) });
    }
  } else {
    for (const share of [0, 0.5, 1]) {
      const value = isLog ? low * (high / low) ** share : low + (high - low) * share;
      ticks.push({ at: share, text: format(value) });
    }
  }
  return { place, ticks };
}

const short = (value) =>
  value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)
    ? value.toExponential().replace("e+", "e")
    : String(Number(value.toPrecision(3)));

// Returns how good a value is among all, from 0 to 1.
export function goodness(value, values, isLarge) {
  const finite = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!Number.isFinite(value) || finite.length === 0) return 0;
  if (finite.length === 1) return 1;
  const rank = finite.indexOf(value) / (finite.length - 1);
  return isLarge ? rank : 1 - rank;
}
