// Reads server-sent events from pieces of text (https://html.spec.whatwg.org/multipage/server-sent-events.html).
// A browser's own EventSource gives up at the first answer that is no stream, and does not say what the answer was.
export function eventParser(onEvent, onComment = () => {}) {
  let rest = "";
  let event = { type: "message", data: [], id: undefined };
  const line = (text) => {
    if (text === "") {
      if (event.data.length > 0) onEvent({ type: event.type, data: event.data.join("\n"), id: event.id });
      event = { type: "message", data: [], id: undefined };
      return;
    }
    if (text.startsWith(":")) {
      onComment();
      return;
    }
    const colon = text.indexOf(":");
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "data") event.data.push(value);
    else if (field === "event") event.type = value;
    else if (field === "id") event.id = value;
  };
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const each of lines) line(each.endsWith("\r") ? each.slice(0, -1) : each);
  };
}
