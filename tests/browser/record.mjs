// Runs jobs in a yard of its own, visits what the kept pictures show, and keeps the server's answers:
//   node record.mjs --bin ../../build/release/bin && node pictures.mjs --update
// It is needed when the page makes calls that were not recorded, or when the pictures are to show other jobs.
import { writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { Camera } from "./camera.mjs";
import { kPictures, kRecordingFile } from "./pictures_list.mjs";
import { record, slower, withUsers } from "./recording.mjs";
import { Yard } from "./yard.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const { values: flags } = parseArgs({
  options: {
    bin: { type: "string", default: join(root, "build/release/bin") },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});

// A second of the recorded yard is so many seconds in the pictures.
const kSlower = 120;
const kSettleMs = 2000;

const kMlp = `
name: mlp
model: {mlp: {hidden: [64]}}
data: {dataset: glyphs, train_size: 12000}
train: {epochs: 6, global_batch: 48, replicas: 6}
optimizer: {sgd: {lr: 0.02, momentum: 0.9}}
devices: 1
`;

const kWide = [
  "--set",
  "model.mlp.hidden=[1024,512]",
  "--set",
  "train.global_batch=192",
  "--set",
  "train.epochs=3",
];

const kTalks = `
i=0
while [ $i -lt 900 ]; do
  i=$((i + 1))
  echo "step $i"
  loss=$(awk "BEGIN {srand($i); print 2 * exp(-$i / 60) + 0.3 * rand()}")
  echo "{\\"step\\": $i, \\"total_steps\\": 900, \\"metrics\\": {\\"train.loss\\": $loss}}" \\
    >> $TRAINYARD_RUN_DIR/metrics.jsonl
  sleep 0.1
done`;

const kFails = `
for i in $(seq 1 60); do echo "reading shard $i of 60"; done
printf '\\033[1;31mTraceback\\033[0m (most recent call last):\\n  File "train.py", line 12\\n' >&2
sleep 8
exit 3`;

// The worker of a person runs the jobs of that person alone, so the jobs get other owners in what is kept.
const users = {};

const yard = await Yard.start({ bin: flags.bin, page: join(root, "server/http/page") });
let door;
let camera;
try {
  const file = await yard.spec("mlp.yaml", kMlp);
  const run = async (user, name, ...words) => {
    const job = await yard.submit(file, "--name", name, ...words);
    users[`jobs/${job}`] = user;
    await yard.run("wait", String(job));
  };
  await run("anna", "mlp-lr0.1", "--set", "optimizer.sgd.lr=0.1");
  await run("anna", "mlp-lr0.02");
  await run("anna", "mlp-lr0.005", "--set", "optimizer.sgd.lr=0.005");
  await run("bert", "wide-on-1", ...kWide);
  await run("bert", "wide-on-2", ...kWide, "--devices", "2");
  await run("bert", "wide-on-3", ...kWide, "--devices", "3");
  const script = async (user, name, text, ...words) => {
    const job = await yard.script(name, text, ...words);
    users[`jobs/${job}`] = user;
    return job;
  };
  const failing = await script("cleo", "reads-shards", kFails);
  await script("anna", "sleeps", "sleep 5", "--devices", "2");
  await yard.run("wait", String(failing)).catch(() => {});
  const sweep = await yard.spec("sweep.yaml", kMlp);
  await yard.run(
    "sweep",
    "run",
    sweep,
    "--name",
    "find-rate",
    "--sweep",
    "optimizer.sgd.lr=log(1e-3, 1)",
    "--sweep",
    "train.global_batch=[24, 48, 96]",
    "--maximize",
    "test.accuracy",
    "--search",
    "asha",
    "--trials",
    "9",
    "--set",
    "train.epochs=4",
    "--set",
    "train.replicas=1",
    "--set",
    "data.train_size=2000",
    "--set",
    "sweep.factor=3",
  );
  await yard.run("verify", "2");
  console.log(await yard.run("ls"));
  await script("bert", "talks", kTalks, "--devices", "2", "--time-limit", "60s");
  await script("cleo", "one-more", "sleep 30", "--time-limit", "40s");
  await script("anna", "waits", "sleep 10", "--devices", "2", "--time-limit", "20s");
  await script("cleo", "waits-for-all", "sleep 10", "--devices", "3", "--time-limit", "15s");
  const kCourse = ["--for", "project:course", "--devices", "1", "--start", "+45s", "--end", "+130s"];
  await yard.run("reservations", "create", "course", ...kCourse);
  await new Promise((done) => setTimeout(done, 8000));

  const answers = {};
  door = await record({ socket: yard.socket, dist: join(root, "server/http/page/dist"), answers });
  camera = await Camera.start({ executable: flags.chromium, url: door.url });
  const now = Date.now() + kSettleMs;
  const changes = ({ 0: name }) => ["queue", "schedule", "devices", "runs"].includes(name);
  for (const [name, path, ready, look] of kPictures.toSorted((a, b) => changes(b) - changes(a))) {
    console.log(`records ${name}`);
    const page = await camera.open(path, ready, look);
    await page.waitForTimeout(kSettleMs);
  }
  const kept = { now, answers: slower(withUsers(answers, users, "anna"), now, kSlower) };
  await writeFile(join(here, kRecordingFile), gzipSync(JSON.stringify(kept), { level: 9 }));
  console.log(`${Object.keys(answers).length} answers were recorded`);
} finally {
  door?.close();
  await camera?.close();
  await yard.end();
}
