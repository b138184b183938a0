// Follows a stream of server-sent events for as long as the page wants it: over restarts of the server, from the last
// event on. A page that nobody looks at holds no stream, because a browser opens few connections to one server.
import { effect } from "@preact/signals";
import { errorOf, isAway, pathOf } from "./api.js";
import { heard, isHidden, lost } from "./connection.js";
import { eventParser } from "./pure/sse.js";

// The server sends a comment each 15 s, so a stream that is silent for longer is broken.
const kSilenceMsMax = 40000;
const kFirstRetryMs = 400;
const kRetryMsMax = 4000;
const kHiddenMsMax = 10000;

// Opens a stream. onMessage gets each message, onEnd is told when nothing follows, onError gets an error that a retry
// would not mend. Returns a function that closes it.
export function openStream(method, request, { onMessage, onEnd = () => {}, onError = () => {} }) {
  let isClosed = false;
  let lastId;
  let controller = null;
  let retryMs = kFirstRetryMs;
  let timer = null;

  const close = () => {
    isClosed = true;
    controller?.abort();
    clearTimeout(timer);
    stopWatching();
  };

  const again = () => {
    if (isClosed || isHidden.value) return;
    clearTimeout(timer);
    timer = setTimeout(run, retryMs);
    retryMs = Math.min(kRetryMsMax, retryMs * 1.7);
  };

  async function run() {
    if (isClosed || controller) return;
    const mine = (controller = new AbortController());
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => mine.abort(), kSilenceMsMax);
      heard();
    };
    try {
      const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const response = await fetch(pathOf(method), {
        method: "POST",
        headers,
        body: JSON.stringify(request),
        signal: mine.signal,
      });
      if (!response.ok) throw await errorOf(response);
      alive();
      retryMs = kFirstRetryMs;
      let isOver = false;
      const parse = eventParser((event) => {
        if (isClosed) return;
        if (event.type === "end") {
          isOver = true;
          close();
          onEnd();
        } else if (event.type === "error") {
          const body = JSON.parse(event.data);
          if (["unavailable", "deadline_exceeded", "canceled", "resource_exhausted"].includes(body.code)) return;
          isOver = true;
          close();
          onError(new Error(body.message));
        } else {
          if (event.id) lastId = event.id;
          onMessage(JSON.parse(event.data));
        }
      }, alive);
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || isClosed) break;
        alive();
        parse(decoder.decode(value, { stream: true }));
      }
      if (!isOver && !isClosed && !mine.signal.aborted) lost();
    } catch (error) {
      if (!isClosed && !(isHidden.value && mine.signal.aborted)) {
        if (isAway(error)) {
          lost();
        } else {
          close();
          onError(error);
        }
      }
    } finally {
      clearTimeout(silence);
      if (controller === mine) controller = null;
      again();
    }
  }

  let hiddenTimer = null;
  const stopWatching = effect(() => {
    clearTimeout(hiddenTimer);
    if (isHidden.value) {
      hiddenTimer = setTimeout(() => controller?.abort(), kHiddenMsMax);
    } else {
      timer = setTimeout(run, 0);
    }
  });
  return close;
}
