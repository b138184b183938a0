// Records what a server answers to the page, and answers the same again later, so that the page looks the same.
import { createServer, request as httpRequest } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const kTypes = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
// What a stream has said by then is recorded of it.
const kStreamMs = 1500;
const kAnswerMsMax = 20000;

// The fields of a request on which its answer depends. A page may ask for more or fewer jobs and points at a time.
const kKeyFields = ["name", "names", "parent", "states", "where", "order_by", "stream", "rank", "changes", "text"];

export function keyOf(path, body) {
  let request = {};
  try {
    request = JSON.parse(body || "{}");
  } catch {
    // A body that is no JSON is like none.
  }
  const parts = kKeyFields
    .filter((field) => request[field] !== undefined && request[field] !== "" && request[field].length !== 0)
    .map((field) => `${field}=${JSON.stringify(request[field])}`);
  return [path, ...parts].join(" ");
}

const isCall = (path) => /^\/(trainyard\.v1\.|files\/)/.test(path);
const isStream = (headers) => /event-stream/.test(headers["content-type"] ?? "");

async function bodyOf(incoming) {
  const pieces = [];
  for await (const piece of incoming) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

async function serveFile(dist, path, response) {
  const isAsset = path.startsWith("/assets/");
  const name = isAsset ? normalize(path).replace(/^[/\\]+/, "") : "index.html";
  try {
    const content = await readFile(join(dist, name));
    response.writeHead(200, { "Content-Type": kTypes[extname(name)] ?? "application/octet-stream" });
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
}

function listen(answer, dist) {
  return new Promise((resolve) => {
    const server = createServer(async (incoming, response) => {
      const { pathname } = new URL(incoming.url, "http://x");
      if (isCall(pathname)) await answer(pathname, incoming, response, await bodyOf(incoming));
      else await serveFile(dist, pathname, response);
    });
    server.listen(0, "127.0.0.1", () =>
      resolve({
        url: `http://127.0.0.1:${server.address().port}`,
        close: () => {
          server.close();
          server.closeAllConnections();
        },
      }),
    );
  });
}

// Serves the page beside the server of a socket, and puts its answers into `answers`.
export function record({ socket, dist, answers }) {
  const ask = (incoming, body) =>
    new Promise((resolve, reject) => {
      const { cookie, host, connection, "content-length": length, ...headers } = incoming.headers;
      const outgoing = httpRequest(
        {
          socketPath: socket,
          path: incoming.url,
          method: incoming.method,
          headers: { ...headers, host: "localhost" },
        },
        (received) => {
          const pieces = [];
          const end = () => {
            clearTimeout(timer);
            outgoing.destroy();
            const content = Buffer.concat(pieces).toString();
            resolve({ status: received.statusCode, stream: isStream(received.headers) || undefined, content });
          };
          const timer = setTimeout(end, isStream(received.headers) ? kStreamMs : kAnswerMsMax);
          received.on("data", (piece) => pieces.push(piece));
          received.on("end", end);
          received.on("error", end);
        },
      );
      outgoing.on("error", reject);
      outgoing.end(body);
    });
  return listen(async (path, incoming, response, body) => {
    const { status, stream, content } = await ask(incoming, body);
    // The first answer counts: what is asked for first is what changes.
    answers[keyOf(path, body)] ??= { status, stream, content };
    response.writeHead(status, { "Content-Type": stream ? "text/event-stream" : "application/json" });
    response.end(content);
  }, dist);
}

// Serves the page with recorded answers. `missing` gets the calls to which none was recorded.
export function replay({ dist, answers, missing }) {
  return listen(async (path, incoming, response, body) => {
    const key = keyOf(path, body);
    const answer = answers[key];
    if (!answer) {
      missing.push(key);
      response.writeHead(501, { "Content-Type": "application/json" });
      response.end('{"code":"unimplemented","message":"this call was not recorded"}');
      return;
    }
    response.writeHead(answer.status, {
      "Content-Type": answer.stream ? "text/event-stream" : "application/json",
    });
    // A stream that has not ended goes on, and says nothing more.
    if (answer.stream && !/^event: end$/m.test(answer.content)) response.write(answer.content || ":\n\n");
    else response.end(answer.content);
  }, dist);
}

const kTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const kSpan = /^\d+(\.\d+)?s$/;

// Answers of a yard that was `times` as slow: jobs of a second look like those of people.
export function slower(answers, now, times) {
  return changed(answers, (value) => {
    if (typeof value === "string" && kTime.test(value)) {
      return new Date(now + (Date.parse(value) - now) * times).toISOString();
    }
    if (typeof value === "string" && kSpan.test(value)) return `${Math.round(Number.parseFloat(value) * times)}s`;
    if (typeof value?.samples_per_s === "number") value.samples_per_s /= times;
    if (value?.name === "samples_per_s" && typeof value.value === "number") value.value /= times;
    if (/[.]seconds/.test(value?.name ?? "") && typeof value.value === "number") value.value *= times;
    return value;
  });
}

// Answers in which jobs are those of other users: `users` has them by the names of the jobs, and all else is `other`'s.
export function withUsers(answers, users, other) {
  return changed(answers, (value) => {
    if (typeof value?.user === "string" && value.user !== "(trainyard)") value.user = users[value.name] ?? other;
    if (/^user:/.test(value?.actor ?? "")) value.actor = `user:${other}`;
    return value;
  });
}

// Answers in which each value went through a function, the inner ones first.
function changed(answers, change) {
  const walk = (value) => {
    if (Array.isArray(value)) return value.map(walk);
    if (value === null || typeof value !== "object") return change(value);
    return change(Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, walk(inner)])));
  };
  const inJson = (text) => {
    try {
      return JSON.stringify(walk(JSON.parse(text)));
    } catch {
      return text;
    }
  };
  const inStream = (text) => text.replace(/^data: (.*)$/gm, (line, json) => `data: ${inJson(json)}`);
  return Object.fromEntries(
    Object.entries(answers).map(([key, answer]) => [
      key,
      { ...answer, content: (answer.stream ? inStream : inJson)(answer.content) },
    ]),
  );
}
