// Turns a spec from protobuf's JSON into the form in which people write it, and into a flat list of its fields.

const kEnums = new RegExp(
  "^(PRECISION|NORMALIZE|REPRODUCIBILITY|PIPELINE_SCHEDULE|STEM|SWEEP_SEARCH|PROGRAM_RANKS|ISOLATION|NOTIFY_EVENT" +
    "|ON_CORRUPT)_([A-Z0-9_]+)$",
);

// Texts of users, which stay as they are.
const kTexts = /^(name|description|tags|project|program|notify|outputs|retain|parameters)$/;

// {every: {epochs: "1"}} becomes {every: "1 epoch"}, "600s" becomes "10 min", "PRECISION_F32" becomes "f32".
export function peopleForm(value, key = "") {
  if (kTexts.test(key)) return value;
  if (Array.isArray(value)) return value.map((item) => peopleForm(item, ""));
  if (value !== null && typeof value === "object") {
    const keys = Object.keys(value);
    if (key === "every" && keys.length === 1) return interval(keys[0], value[keys[0]]);
    if (keys.length === 1 && keys[0] === "bytes") return byteSize(Number(value.bytes));
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, peopleForm(item, name)]));
  }
  if (typeof value !== "string") return value;
  if (/^-?\d+$/.test(value) && Number.isSafeInteger(Number(value))) return Number(value);
  if (/^\d+(\.\d+)?s$/.test(value)) return span(Number.parseFloat(value));
  const match = kEnums.exec(value);
  return match ? match[2].toLowerCase() : value;
}

function interval(unit, value) {
  if (unit === "automatic") return "auto";
  if (unit === "time") return span(Number.parseFloat(value));
  const count = Number(value);
  return `${count} ${count === 1 ? unit.slice(0, -1) : unit}`;
}

function span(seconds) {
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= length && seconds % length === 0) return `${seconds / length} ${unit}`;
  }
  return seconds >= 1 || seconds === 0 ? `${seconds} s` : `${Math.round(seconds * 1000)} ms`;
}

function byteSize(bytes) {
  for (const [unit, length] of [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 1024],
  ]) {
    if (bytes >= length && bytes % length === 0) return `${bytes / length} ${unit}`;
  }
  return `${bytes} B`;
}

// The leaves of an object by their paths, in order: {"optimizer.sgd.lr": 0.1}. Lists of plain values are one leaf.
export function flatten(value, path = "", result = {}) {
  if (Array.isArray(value) && value.some((item) => item !== null && typeof item === "object")) {
    value.forEach((item, index) => flatten(item, `${path}[${index}]`, result));
  } else if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    const keys = Object.keys(value);
    if (keys.length === 0 && path !== "") result[path] = value;
    for (const key of keys) flatten(value[key], path === "" ? key : `${path}.${key}`, result);
  } else if (path !== "") {
    result[path] = value;
  }
  return result;
}

// The text of a leaf in a form or a table.
export function leafText(value) {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

// The JSON of what somebody has typed into a field: numbers, lists and words as in a spec file.
export function typedJson(text) {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  try {
    JSON.parse(trimmed);
    return trimmed;
  } catch {
    return JSON.stringify(text);
  }
}

// The kind of the model: "mlp"; "program" for a program.
export const modelOf = (spec) => Object.keys(spec?.model ?? {})[0] ?? (spec?.program ? "program" : "");

// The learning rate, of whichever optimizer.
export const rateOf = (spec) => Object.values(spec?.optimizer ?? {}).find((value) => value?.lr !== undefined)?.lr;
