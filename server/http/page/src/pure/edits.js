// Turns what somebody typed into the form of a clone into changes for the server, and into parameters of the address.
import { leafText, typedJson } from "./spec.js";

// The edits in parameters "optimizer.sgd.lr=0.02".
export function editsOf(params) {
  const edits = {};
  for (const param of params) {
    const equals = param.indexOf("=");
    if (equals > 0) edits[param.slice(0, equals)] = textOf(param.slice(equals + 1));
  }
  return edits;
}

// A value that is JSON text stands in the form without its quotes.
function textOf(value) {
  if (!/^".*"$/s.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

const changed = (edits, fields) => Object.entries(edits).filter(([path, text]) => text !== leafText(fields[path]));

// Texts of people, which stay texts even if they look like numbers.
const kTexts = /^(name|description|project|retain|program\.script)$/;

// The changes of edits that differ from the fields: [{path, value_json}]. An empty text unsets a field.
export function changesOf(edits, fields) {
  return changed(edits, fields).map(([path, text]) => ({
    path,
    value_json: kTexts.test(path) && text !== "" ? JSON.stringify(text) : typedJson(text),
  }));
}

export const paramsOf = (edits, fields) => changed(edits, fields).map(([path, text]) => `${path}=${text}`);

// The fields that people change most often.
const kCommonFields = [
  /^(name|description|priority|time_limit|devices\.count)$/,
  /^train\.(epochs|steps|global_batch|seed)$/,
  /^optimizer\.\w+\.(lr|weight_decay)$/,
  /^program\.(params\..+|command|script)$/,
];

export const isCommonField = (path) => kCommonFields.some((pattern) => pattern.test(path));

// A copy of a spec in people's form with changes: a path's last part gets its value, or is taken out if there is none.
export function withChanges(spec, changes) {
  const copy = structuredClone(spec);
  for (const { path, value_json: json } of changes) {
    const parts = path.match(/[^.[\]]+/g) ?? [];
    const last = parts.pop();
    if (last === undefined) continue;
    let place = copy;
    for (const part of parts) {
      const inner = own(place, part);
      // A word stands for a choice without fields: "constant" for {constant: {}}.
      if (inner === null || typeof inner !== "object") {
        put(place, part, typeof inner === "string" && inner !== "" ? { [inner]: {} } : {});
      }
      place = own(place, part);
    }
    if (json === "") delete place[last];
    else put(place, last, JSON.parse(json));
  }
  return copy;
}

const own = (place, part) => (Object.hasOwn(place, part) ? place[part] : undefined);

// A path is what somebody has typed or put into a link, so "__proto__" is a name like others.
const put = (place, part, value) =>
  Object.defineProperty(place, part, { value, enumerable: true, configurable: true, writable: true });
