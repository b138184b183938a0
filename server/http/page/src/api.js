// Makes calls of the API, which docs/http.md describes, and reads its errors.
import { heard, isSignedOut, lost } from "./connection.js";

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.message || `the server answered with status ${status}`);
    this.status = status;
    this.code = body?.code ?? "unknown";
    const details = body?.details ?? [];
    const debug = (type) => details.find((detail) => detail.type === type)?.debug;
    this.reason = debug("google.rpc.ErrorInfo")?.reason ?? "";
    // The fields that are wrong: [{field, description}].
    this.violations = debug("google.rpc.BadRequest")?.fieldViolations ?? [];
  }
}

export const pathOf = (method) => `/trainyard.v1.${method}`;

// The answer's body as an error; the body may be that of a proxy, and no JSON.
export async function errorOf(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    // The status says enough.
  }
  if (response.status === 401) isSignedOut.value = true;
  return new ApiError(response.status, body);
}

// True for answers that say nothing about the request: the server is away or starts.
export const isAway = (error) =>
  !(error instanceof ApiError) || [502, 503, 504].includes(error.status) || error.code === "unavailable";

const kCallMsMax = 30000;

// Calls "JobService/GetJob" with a request, and returns the answer.
export async function call(method, request = {}, { signal } = {}) {
  const deadline = AbortSignal.timeout(kCallMsMax);
  let response;
  try {
    response = await fetch(pathOf(method), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    });
  } catch (error) {
    if (!signal?.aborted) lost();
    throw error;
  }
  if (response.ok) {
    const answer = await response.json();
    heard();
    return answer;
  }
  const error = await errorOf(response);
  if (isAway(error)) lost();
  else heard();
  throw error;
}

// A sentence for people about an error of a call.
export function sayError(error) {
  if (error instanceof ApiError) return error.message;
  return "The server does not answer.";
}

// Calls a function for each item, a few at a time, and returns the results in order.
export async function forEachOf(items, limit, action) {
  const results = new Array(items.length);
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await action(items[index], index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, work));
  return results;
}
