// Turns numbers, times and states of the API into the texts that people read.

const kUnits = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
];

// "2 d 3 h", "4 m 05 s", "12.3 s", "340 ms".
export function duration(seconds) {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) seconds = 0;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  for (const [index, [unit, length]] of kUnits.entries()) {
    if (whole < length) continue;
    const [next, nextLength] = kUnits[index + 1] ?? ["s", 1];
    const rest = Math.floor((whole % length) / nextLength);
    return `${Math.floor(whole / length)} ${unit} ${String(rest).padStart(next === "h" ? 1 : 2, "0")} ${next}`;
  }
  return `${whole} s`;
}

// The seconds of a duration of the API, "12.5s"; undefined if it is unset.
export function seconds(text) {
  if (!text) return undefined;
  const value = Number.parseFloat(text);
  return Number.isNaN(value) ? undefined : value;
}

// The milliseconds of a time of the API; undefined if it is unset.
export function millis(time) {
  if (!time) return undefined;
  const value = Date.parse(time);
  return Number.isNaN(value) ? undefined : value;
}

// "now", "3 s ago", "5 m ago", "2 h ago", "4 d ago".
export function ago(ms, now) {
  if (ms === undefined) return "–";
  const passed = Math.max(0, (now - ms) / 1000);
  if (passed < 1) return "now";
  if (passed < 60) return `${Math.floor(passed)} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} m ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} d ago`;
}

// A time in the zone of the browser: "2026-11-28 10:05:12".
export function clock(ms) {
  if (ms === undefined) return "–";
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

// A number with four digits that count: "0.9032", "1,234", "3.21e-7".
export function number(value) {
  if (value === undefined || value === null || value === "") return "–";
  const parsed = asNumber(value);
  if (Number.isNaN(parsed)) return "NaN";
  if (!Number.isFinite(parsed)) return parsed > 0 ? "∞" : "−∞";
  const size = Math.abs(parsed);
  if (size === 0) return "0";
  if (Number.isInteger(parsed) && size < 1e9) return parsed.toLocaleString("en-US");
  if (size < 1e-4 || size >= 1e9) return parsed.toExponential(2);
  if (size >= 1000) return parsed.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return String(Number(parsed.toPrecision(4)));
}

// A number of the API: JSON of protobuf has texts for large, infinite and missing numbers.
export function asNumber(value) {
  if (typeof value === "number") return value;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  if (value === undefined || value === null || value === "") return NaN;
  return Number(value);
}

// The value of a metric, by its name: accuracies are percentages.
export function metric(name, value) {
  if (value === undefined || value === null) return "–";
  const parsed = asNumber(value);
  if (isShare(name) && Number.isFinite(parsed)) return `${(parsed * 100).toFixed(parsed === 1 ? 0 : 1)}%`;
  return number(parsed);
}

// True for metrics that are shares between 0 and 1.
export function isShare(name) {
  return /(^|\.)(accuracy|top\d+|hidden_fraction|utilization|memory_utilization)$/.test(name);
}

// Says "more" for metrics whose larger values are better, "less" for those whose smaller ones are, and "" where neither
// is known.
export function direction(name) {
  if (/(accuracy|top\d+|samples_per_s|reward|score|f1|auc)$/.test(name)) return "more";
  if (/(loss|error|perplexity|ppl|[wc]er|mse|mae|seconds|bytes)$/.test(name)) return "less";
  return "";
}

const kByteUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// "340 B", "1.2 MiB".
export function bytes(value) {
  let size = asNumber(value);
  if (Number.isNaN(size)) return "–";
  let unit = 0;
  while (size >= 1024 && unit + 1 < kByteUnits.length) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${kByteUnits[unit]}`;
}

// "running" of "JOB_STATE_RUNNING".
export function word(value, prefix) {
  return (value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");
}

export const jobState = (value) => word(value, "JOB_STATE_") || "unknown";
export const isActive = (state) => /QUEUED|STARTING|RUNNING|STOPPING|SUSPENDED/.test(state ?? "");

// The last part of a resource's name: "12" of "jobs/12".
export const lastPart = (name) => (name ?? "").split("/").pop();

// "job" or "jobs" with its number.
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${Number(count) === 1 ? one : many}`;

const kSignals = {
  129: "SIGHUP",
  130: "SIGINT",
  131: "SIGQUIT",
  132: "SIGILL",
  134: "SIGABRT",
  135: "SIGBUS",
  136: "SIGFPE",
  137: "SIGKILL",
  139: "SIGSEGV",
  141: "SIGPIPE",
  143: "SIGTERM",
};

// "exit code 3", "killed by SIGKILL (exit code 137)"; empty if no rank has ended.
export function exitText(code) {
  if (!code) return "";
  const signal = kSignals[code];
  return signal ? `killed by ${signal} (exit code ${code})` : `exit code ${code}`;
}
