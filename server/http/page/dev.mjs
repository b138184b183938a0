// Serves the built page beside a server on a Unix socket, for development and for the tests of the page:
//   node dev.mjs --socket ~/.local/state/trainyard/server/server.sock --port 8080
// Whoever reaches the port acts as the owner of this process. It listens on 127.0.0.1 alone, answers no other Host, and
// with --token it asks for that token as the server's own port does.
import { createServer, request } from "node:http";
import { readFile } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    socket: { type: "string" },
    port: { type: "string", default: "8080" },
    dist: { type: "string", default: join(dirname(fileURLToPath(import.meta.url)), "dist") },
    token: { type: "string" },
  },
});
if (!values.socket) {
  console.error("dev.mjs: --socket is missing; give the path of the server's socket");
  process.exit(2);
}

const kTypes = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const kPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const sessions = new Set();
const cookieOf = (incoming) => /(?:^|;\s*)session=([0-9a-f]+)/.exec(incoming.headers.cookie ?? "")?.[1];

function answer(response, status, body, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body));
}

function session(incoming, response) {
  if (incoming.method === "DELETE") {
    sessions.delete(cookieOf(incoming));
    answer(response, 200, {});
    return;
  }
  let text = "";
  incoming.on("data", (piece) => {
    text += piece;
  });
  incoming.on("end", () => {
    let given;
    try {
      given = JSON.parse(text).token;
    } catch {
      given = undefined;
    }
    if (!/^tyk_[\w-]+$/.test(given ?? "")) {
      answer(response, 400, { code: "invalid_argument", message: "this is no token" });
      return;
    }
    const id = randomBytes(16).toString("hex");
    if (given === values.token) sessions.add(id);
    answer(response, 200, {}, { "Set-Cookie": `session=${id}; HttpOnly; SameSite=Strict; Path=/` });
  });
}

function forward(incoming, response) {
  const { cookie, host, connection, ...headers } = incoming.headers;
  const outgoing = request(
    {
      socketPath: values.socket,
      path: incoming.url,
      method: incoming.method,
      headers: { ...headers, host: "localhost" },
    },
    (received) => {
      response.writeHead(received.statusCode, received.headers);
      received.on("error", () => response.destroy());
      received.on("aborted", () => response.destroy());
      received.pipe(response);
    },
  );
  outgoing.on("error", () => {
    if (response.headersSent) response.destroy();
    else answer(response, 502, { code: "unavailable", message: "the server does not answer" });
  });
  response.on("close", () => outgoing.destroy());
  incoming.pipe(outgoing);
}

async function file(path, response) {
  const isAsset = path.startsWith("/assets/");
  const name = isAsset ? normalize(path).replace(/^[/\\]+/, "") : "index.html";
  try {
    const content = await readFile(join(values.dist, name));
    answer(response, 200, content, {
      "Content-Type": kTypes[extname(name)] ?? "application/octet-stream",
      "Cache-Control": isAsset ? "public, max-age=31536000, immutable" : "no-cache",
      "Content-Security-Policy": kPolicy,
      "X-Content-Type-Options": "nosniff",
    });
  } catch {
    answer(response, 404, { code: "not_found", message: "there is no such file" });
  }
}

createServer((incoming, response) => {
  const path = decodeURI(new URL(incoming.url, "http://x").pathname);
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(incoming.headers.host ?? "")) {
    answer(response, 421, { code: "invalid_argument", message: "the host is not served here" });
  } else if (path === "/session") {
    session(incoming, response);
  } else if (/^\/(trainyard\.v1\.|files\/)/.test(path)) {
    if (values.token && !sessions.has(cookieOf(incoming))) {
      answer(response, 401, { code: "unauthenticated", message: "nobody is signed in" });
    } else {
      forward(incoming, response);
    }
  } else {
    file(path, response);
  }
}).listen(Number(values.port), "127.0.0.1", function listening() {
  console.log(`http://127.0.0.1:${this.address().port}/`);
});
