// Opens the streams of many tabs, as the page opens them, and measures what processor time they cost the server:
//   node tabs.mjs --bin ../../build/release/bin --tabs 200 --jobs 10000 --running 50 --seconds 30
// The tabs belong to four people at four addresses, since one may have 128 connections. Half of them show the list
// of runs, and the others a job that runs. It uses ports of loopback and a folder of its own, and ends what it
// has started.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { Agent, request } from "node:https";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const { values: flags } = parseArgs({
  options: {
    bin: { type: "string", default: join(root, "build/release/bin") },
    tabs: { type: "string", default: "200" },
    jobs: { type: "string", default: "10000" },
    running: { type: "string", default: "50" },
    seconds: { type: "string", default: "30" },
  },
});
const tabCount = Number(flags.tabs);
const seconds = Number(flags.seconds);

const kPeople = ["anna", "bert", "cleo", "dora"];
const kStartMsMax = 180000;
const kOpenMsMax = 60000;
const kTicksPerSecond = 100;
const kWait = (ms) => new Promise((done) => setTimeout(done, ms));
const execute = promisify(execFile);

// A job that reports a loss each second, as long as it is measured.
const kReports = `
i=0
while [ $i -lt 600 ]; do
  i=$((i + 1))
  echo "{\\"step\\": $i, \\"total_steps\\": 600, \\"metrics\\": {\\"train.loss\\": 0.$i}}" \\
    >> $TRAINYARD_RUN_DIR/metrics.jsonl
  sleep 1
done`;

const folder = await mkdtemp(join(tmpdir(), "ty-tabs-"));
const socket = join(folder, "server.sock");
const env = { PATH: process.env.PATH, HOME: folder, TRAINYARD_SERVER: `unix:${socket}`, LC_ALL: "C.UTF-8" };
const daemons = [];
const streams = [];
let first;

const run = async (...words) => {
  const { stdout } = await execute(join(flags.bin, "trainyard"), words, { env, maxBuffer: 64 << 20 });
  return stdout.trimEnd();
};

function start(name, ...words) {
  const child = spawn(join(flags.bin, name), words, { env, stdio: "ignore" });
  daemons.push(child);
  return child;
}

async function until(what, condition) {
  for (const deadline = Date.now() + kStartMsMax; Date.now() < deadline;) {
    if (await condition().catch(() => false)) return;
    await kWait(200);
  }
  throw new Error(`${what} did not happen within ${kStartMsMax / 1000} s`);
}

const freePort = () =>
  new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

// The processor time of a process until now, in seconds: user and system, of all its threads.
async function processorTime(pid) {
  const fields = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / kTicksPerSecond;
}

// What every request says, of calls and of streams.
const options = (port, { token, address }, method, body) => ({
  host: "127.0.0.1",
  port,
  path: `/trainyard.v1.${method}`,
  method: "POST",
  localAddress: address,
  agent: new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] }),
  headers: {
    "Content-Type": "application/json",
    Authorization: `Bearer ${token}`,
    "Content-Length": Buffer.byteLength(body),
    Host: `127.0.0.1:${port}`,
  },
});

function call(port, person, method, message) {
  const body = JSON.stringify(message);
  return new Promise((done, fail) => {
    const outgoing = request(options(port, person, method, body), async (response) => {
      let text = "";
      for await (const piece of response) text += piece;
      outgoing.destroy();
      if (response.statusCode === 200) done(JSON.parse(text));
      else fail(new Error(`${method}: ${text}`));
    });
    outgoing.on("error", fail);
    outgoing.end(body);
  });
}

// Opens a stream as the page does; returns {bytes, events, isOpen}, which grow.
function openTab(port, person, method, body) {
  const tab = { bytes: 0, events: 0, isOpen: false };
  const outgoing = request(options(port, person, method, body), (response) => {
    if (response.statusCode !== 200) tab.error = `status ${response.statusCode}`;
    tab.isOpen = response.statusCode === 200;
    response.on("data", (piece) => {
      tab.bytes += piece.length;
      tab.events += String(piece).match(/^data:/gm)?.length ?? 0;
    });
    response.on("close", () => {
      tab.isOpen = false;
    });
  });
  outgoing.on("error", (error) => {
    tab.isOpen = false;
    tab.error ??= error.message;
  });
  outgoing.end(body);
  streams.push(outgoing);
  return tab;
}

try {
  const port = await freePort();
  const server = start(
    "trainyard-server",
    "--state_dir",
    join(folder, "server"),
    "--listen",
    `unix:${socket}`,
    "--listen",
    `tls:127.0.0.1:${port}`,
    "--tls_names",
    "127.0.0.1",
  );
  await until("a server that answers", () => run("whoami"));
  start(
    "trainyard-worker",
    "--server",
    `unix:${socket}`,
    "--state_dir",
    join(folder, "worker"),
    "--cpu_devices",
    flags.running,
    "--threads_per_device",
    "1",
    "--share_cpus",
  );
  await until("a worker", async () => /cpu-0/.test(await run("devices", "ls")));
  const people = [];
  for (const [index, user] of kPeople.entries()) {
    const file = join(folder, `${user}.token`);
    await run("tokens", "create", "--user", user, "--output-file", file);
    people.push({ token: (await readFile(file, "utf8")).trim(), address: `127.0.0.${index + 2}` });
  }
  const waiting = Number(flags.jobs) - Number(flags.running);
  if (waiting > 0) {
    await run("-q", "submit", "--name", "later", "--array", String(waiting), "--begin", "+20h", "--", "true");
  }
  const array = ["-q", "submit", "--name", "reports", "--array", flags.running, "--", "sh", "-c", kReports];
  first = Number(/jobs\/(\d+)/.exec(await run(...array))[1]);
  const all = Number(flags.running);
  const list = (message) => call(port, people[0], "JobService/ListJobs", message);
  const runningNow = async () => (await list({ page_size: 1000, states: ["JOB_STATE_RUNNING"] })).jobs.length;
  await until("jobs that run", async () => (await runningNow()) >= all);
  await kWait(3000);

  const measure = async () => {
    const begin = await processorTime(server.pid);
    const at = Date.now();
    await kWait(seconds * 1000);
    return (((await processorTime(server.pid)) - begin) / ((Date.now() - at) / 1000)) * 100;
  };
  const alone = await measure();
  // The page watches from the newest change that its first list has.
  const { jobs: listed } = await list({ page_size: 100 });
  const revision = String(listed.reduce((most, { etag }) => Math.max(most, Number(etag)), 0));
  const tabs = [];
  for (let index = 0; index < tabCount; ++index) {
    const person = people[index % people.length];
    tabs.push(
      index % 2 === 0
        ? openTab(port, person, "JobService/WatchJobs", JSON.stringify({ start_revision: revision }))
        : openTab(
            port,
            person,
            "JobService/WatchJobs",
            JSON.stringify({ names: [`jobs/${first + (index % all)}`] }),
          ),
    );
    await kWait(10);
  }
  const deadline = Date.now() + kOpenMsMax;
  while (tabs.some(({ isOpen, error }) => !isOpen && !error) && Date.now() < deadline) await kWait(200);
  const wrong = tabs.filter(({ isOpen }) => !isOpen);
  if (wrong.length > 0)
    throw new Error(`${wrong.length} tabs are not open: ${wrong[0].error ?? "no answer came"}`);
  await kWait(3000);
  const eventsBefore = tabs.reduce((sum, { events }) => sum + events, 0);
  const bytesBefore = tabs.reduce((sum, { bytes }) => sum + bytes, 0);
  const withTabs = await measure();
  const events = tabs.reduce((sum, { events }) => sum + events, 0) - eventsBefore;
  const bytes = tabs.reduce((sum, { bytes }) => sum + bytes, 0) - bytesBefore;
  if (tabs.some(({ isOpen }) => !isOpen)) throw new Error("tabs were closed while they were measured");
  console.log(`${flags.jobs} jobs, ${all} of them running and reporting each second`);
  console.log(`without tabs    ${alone.toFixed(1)} % of a processor`);
  console.log(`with ${tabCount} tabs   ${withTabs.toFixed(1)} % of a processor`);
  console.log(
    `sent            ${(events / seconds).toFixed(0)} events/s, ${(bytes / seconds / 1024).toFixed(0)} KiB/s`,
  );
} finally {
  for (const stream of streams) stream.destroy();
  if (first !== undefined) await run("-q", "cancel", "--array", String(first)).catch(() => {});
  await kWait(2000);
  for (const child of daemons.reverse()) {
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGTERM");
    await Promise.race([ended, kWait(10000)]);
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  }
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
