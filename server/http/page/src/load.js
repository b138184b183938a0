// Loads answers of calls for a view, and keeps the old ones while new ones come.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { isHidden, returns } from "./connection.js";

// Returns {data, error, reload} of a call. It is made again when `key` changes, when the server is back, and each
// `everyMs` while the page is visible.
export function useCall(method, request, { key = "", everyMs, isOff = false } = {}) {
  const [state, setState] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(request);
  latest.current = request;
  const wanted = JSON.stringify(request);
  useEffect(() => {
    if (isOff) return undefined;
    const abort = new AbortController();
    const load = async () => {
      try {
        const data = await call(method, latest.current, { signal: abort.signal });
        if (!abort.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (!abort.signal.aborted) setState((old) => ({ data: old.data, error }));
      }
    };
    const soon = setTimeout(load, 0);
    const timer = everyMs ? setInterval(() => !isHidden.value && load(), everyMs) : null;
    return () => {
      abort.abort();
      clearTimeout(soon);
      clearInterval(timer);
    };
  }, [method, wanted, key, turn, isOff, returns.value]);
  return { ...state, reload: () => setTurn((old) => old + 1) };
}

// Returns a value that follows another one at most each `ms`, the last one always.
export function useThrottled(value, ms) {
  const [shown, setShown] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + ms - Date.now());
    const timer = setTimeout(() => {
      last.current = Date.now();
      setShown(value);
    }, wait);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return shown;
}
