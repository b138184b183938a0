// The checks, in the order in which they run. Later ones use the jobs of earlier ones.
import assert from "node:assert/strict";

const kMlp = `
name: mlp
model: {mlp: {hidden: [32]}}
data: {dataset: glyphs, train_size: 2000}
train: {epochs: 5, global_batch: 50}
optimizer: {sgd: {lr: 0.02, momentum: 0.9}}
devices: 1
`;

const kHostile = `<script>globalThis.hacked=1</script><img src=x onerror="globalThis.hacked=1">`;

const kHostileSpan = JSON.stringify({ name: kHostile, cat: "<b>", ph: "X", ts: 5, dur: 9, args: { step: 7 } });

// A program that reports a value each 200 ms and writes to its log, until it is cancelled. It also has a timeline.
const kTalks = `
printf '%s\\n' '${kHostileSpan}' >> \$TRAINYARD_RUN_DIR/../trace.jsonl
i=0
while [ $i -lt 3000 ]; do
  i=$((i + 1))
  printf '\\033[32mstep\\033[0m %d \\033[1mloss\\033[0m ${kHostile}\\n' $i
  loss=$(awk "BEGIN {srand($i); print 2 * exp(-$i / 60) + 0.3 * rand()}")
  echo "{\\"step\\": $i, \\"total_steps\\": 3000, \\"metrics\\": {\\"train.loss\\": $loss}}" >> \$TRAINYARD_RUN_DIR/metrics.jsonl
  sleep 0.2
done`;

const kFails = `
for i in $(seq 1 60); do echo "reading shard $i of 60"; done
printf '\\033[1;31mTraceback\\033[0m (most recent call last):\\n  File "train.py", line 12\\n' >&2
echo '${kHostile}' >&2
exit 3`;

const jobs = {};
const needed = (check) => Object.assign(check, { isNeeded: true });
const count = (browser, selector) => browser.page.locator(selector).count();

export const checks = [
  [
    "a real server has real jobs",
    needed(async (browser, yard) => {
      const file = await yard.spec("mlp.yaml", kMlp);
      jobs.runs = [];
      for (const [lr, width] of [
        [0.1, 32],
        [0.02, 64],
        [0.005, 128],
      ]) {
        jobs.runs.push(
          await yard.submit(
            file,
            "--name",
            `mlp-${width}-lr${lr}`,
            "--set",
            `optimizer.sgd.lr=${lr}`,
            "--set",
            `model.mlp.hidden[0]=${width}`,
            "--set",
            'tags=["grid"]',
          ),
        );
      }
      jobs.wide = await yard.submit(file, "--name", "mlp-wide", "--devices", "2", "--set", "train.replicas=4",
        "--set", "train.global_batch=48");
      await yard.run("wait", ...jobs.runs.map(String), String(jobs.wide));
      jobs.failed = await yard.script(
        "fails-early",
        kFails,
        "--set",
        `description="${kHostile.replaceAll('"', "'")}"`,
      );
      jobs.talks = await yard.script("talks", kTalks, "--time-limit", "20m", "--devices", "2");
      jobs.waits = await yard.script("waits", "sleep 1", "--devices", "3", "--project", "vision");
    }),
  ],

  [
    "who is not signed in is told how, and signs in with a token and out",
    async (browser, yard) => {
      const server = await yard.serve("tyk_0123abcd");
      const { page } = browser;
      const giveToken = async (token) => {
        await page.getByLabel("Token").fill(token);
        await page.getByRole("button", { name: "Sign in" }).click();
      };
      try {
        await page.goto(server.url + "/queue");
        await browser.sees("trainyard web");
        await browser.expectAccessible("signed out");
        await giveToken("no token");
        await browser.sees("this is no token");
        await giveToken("tyk_of_nobody");
        await browser.sees("The token is not valid");
        await giveToken("tyk_0123abcd");
        await page.getByRole("heading", { name: "Queue" }).waitFor();
        await page.goto(server.url + "/");
        await browser.sees("fails-early");
        await page.getByRole("button", { name: "Account" }).click();
        await page.getByRole("button", { name: "Sign out" }).click();
        await browser.sees("trainyard web");
        await page.goto(server.url + "/");
        await browser.sees("trainyard web");
      } finally {
        server.close();
      }
    },
  ],

  [
    "the list shows runs, and keeps what was chosen in the address",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open("/");
      await browser.sees("fails-early");
      await page.getByRole("button", { name: "test.accuracy" }).click();
      await browser.until(() => new URLSearchParams(location.search).get("sort") === "-test.accuracy");
      const values = await page.locator(".run-table tbody td:nth-child(7)").allInnerTexts();
      const numbers = values.map(Number.parseFloat).filter(Number.isFinite);
      assert.equal(numbers.length, 4);
      assert.deepEqual(
        numbers,
        numbers.slice().sort((a, b) => b - a),
      );
      await page.keyboard.press("/");
      await page.keyboard.type("test.accuracy > 0 and lr < 0.05");
      await browser.until(() => document.querySelectorAll(".run-table tbody tr[data-job]").length === 3);
      await page.getByLabel("Filter runs").fill("usr = anna");
      await browser.sees("did you mean 'user'");
      await page.getByLabel("Filter runs").fill("");
      await page.getByRole("button", { name: "Failed" }).click();
      await browser.until(() => document.querySelectorAll(".run-table tbody tr[data-job]").length === 1);
      await page.getByRole("button", { name: "All", exact: true }).click();
      await page.getByRole("button", { name: "Columns" }).click();
      await page.getByLabel("Find a column").fill("optimizer.sgd.lr");
      await page.getByLabel("optimizer.sgd.lr").check();
      await page.getByLabel("Find a column").fill("test.accuracy");
      await page.getByRole("group", { name: "Best value" }).getByLabel("test.accuracy").check();
      await page.keyboard.press("Escape");
      assert.match(browser.params().get("cols"), /optimizer\.sgd\.lr,best:test\.accuracy/);
      await browser.until(() => /0\.005/.test(document.querySelector(".run-table").innerText));
      await browser.until(() => (document.querySelector(".run-table").innerText.match(/\d%/g) ?? []).length >= 6);
      await page.reload();
      await browser.until(() => /0\.005/.test(document.querySelector(".run-table").innerText));
      const { name, content } = await browser.download(async () => {
        await page.getByRole("button", { name: "Save" }).click();
        await page.getByRole("button", { name: "Table as CSV" }).click();
      });
      assert.equal(name, "runs.csv");
      assert.match(String(content), /^id,state,name/);
      await browser.expectAccessible("runs");
      await browser.shot("runs");
    },
  ],

  [
    "a run that is submitted appears by itself",
    async (browser, yard) => {
      await browser.open("/");
      await browser.sees("fails-early");
      jobs.late = await yard.script("appears-later", "sleep 600", "--begin", "+10h");
      await browser.sees("appears-later");
      await yard.run("cancel", String(jobs.late));
      await browser.until(
        (id) => /cancelled/.test(document.querySelector(`tr[data-job="${id}"]`).innerText),
        jobs.late,
      );
    },
  ],

  [
    "keys move, select and open",
    async (browser) => {
      const { page } = browser;
      await browser.open("/");
      await browser.sees("fails-early");
      await page.keyboard.press("j");
      await page.keyboard.press("x");
      await page.keyboard.press("j");
      await page.keyboard.press("x");
      await browser.sees("2 runs selected");
      await page.keyboard.press("?");
      await browser.sees("show these keys");
      await browser.expectAccessible("keys");
      await page.keyboard.press("Escape");
      await page.keyboard.press("c");
      await page.getByRole("heading", { name: "2 runs compared" }).waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("d");
      await page.getByRole("heading", { name: "Devices" }).waitFor();
    },
  ],

  [
    "a failed job says first why it failed",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.failed}`);
      const failure = page.getByRole("region", { name: "Failure" });
      await failure.getByText("PROGRAM_FAILED").waitFor();
      await failure.getByText("exit code 3", { exact: false }).first().waitFor();
      await failure.getByText("reading shard 60 of 60").waitFor();
      assert.equal(await failure.locator(".log-line").count(), 20);
      assert.equal(await failure.locator(".ansi-red").first().innerText(), "Traceback");
      const box = await failure.boundingBox();
      assert.ok(box.y < 140, "the failure is at the top");
      await failure.getByRole("link", { name: "Whole log" }).click();
      await page.getByLabel("Search the log").fill("shard 7 ");
      await browser.sees("1 of 1");
      await page.locator(".log-number").nth(3).click();
      assert.match(browser.params().get("at"), /^1\/0\/\d+$/);
      await browser.open(`/jobs/${jobs.failed}`);
      await failure.getByText("reading shard 60 of 60").waitFor();
      await browser.expectAccessible("failed job");
      await browser.shot("failure");
    },
  ],

  [
    "texts of users are never markup",
    async (browser, yard) => {
      const { page } = browser;
      await yard.run("note", String(jobs.failed), `${kHostile} note`);
      await yard.run("specs", "save", String(jobs.runs[0]), "good-one", "--note", `${kHostile} spec`);
      for (const path of [
        `/jobs/${jobs.failed}`,
        `/jobs/${jobs.failed}?tab=logs`,
        `/jobs/${jobs.failed}?tab=attempts`,
        `/jobs/${jobs.failed}?tab=config`,
        `/jobs/${jobs.failed}/clone`,
        "/specs",
        "/specs/good-one",
        `/compare?jobs=${jobs.failed},${jobs.talks}`,
        "/?cols=id,name,note,reason",
        `/jobs/${jobs.talks}?tab=logs`,
      ]) {
        await browser.open(path);
        await browser.until(() =>
          /<script>globalThis\.hacked=1<\/script>/.test(
            document.body.innerText +
              [...document.querySelectorAll("input, textarea")].map(({ value }) => value).join(),
          ),
        );
        assert.equal(await page.evaluate(() => globalThis.hacked), undefined, path);
        assert.equal(await page.evaluate(() => document.querySelectorAll("#page script, #page img").length), 0, path);
      }
    },
  ],

  [
    "curves can be smoothed, zoomed, frozen and saved",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.runs[1]}`);
      const chart = page.getByRole("figure", { name: "loss" });
      await chart.locator("canvas").waitFor();
      await browser.until(() => {
        const canvas = document.querySelector(".chart canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, index) => index % 4 === 3 && value > 0).length > 2000;
      });
      await page.locator("input[type=range]").fill("0.9");
      await browser.until(() => new URLSearchParams(location.search).get("smooth") === "0.9");
      const over = chart.locator(".u-over");
      const box = await over.boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + 60);
      await browser.until(() => /at step \d+/.test(document.querySelector(".legend").innerText));
      await page.mouse.click(box.x + box.width / 2, box.y + 60);
      await browser.sees("frozen");
      const at = await page.locator(".legend-head").first().innerText();
      await page.mouse.move(box.x + 20, box.y + 60);
      assert.equal(await page.locator(".legend-head").first().innerText(), at);
      assert.equal(await page.locator(".legend-head").nth(1).innerText(), at);
      await page.getByRole("button", { name: "Release the cursor" }).click();
      await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.6, box.y + 50, { steps: 4 });
      await page.mouse.up();
      await browser.until(() => /^\d/.test(new URLSearchParams(location.search).get("zoom") ?? ""));
      await page.getByRole("button", { name: "Whole axis" }).click();
      await page.getByRole("button", { name: "Time", exact: true }).click();
      await page.getByLabel("Log axis").check();
      assert.equal(browser.params().get("x"), "time");
      assert.equal(browser.params().get("log"), "1");
      const save = (item) =>
        browser.download(async () => {
          await page.getByRole("button", { name: "Save loss" }).click();
          await page.getByRole("button", { name: item }).click();
        });
      assert.match(String((await save("Points as CSV")).content), /^series,seconds,value\r\n/);
      const points = JSON.parse(String((await save("Points as JSON")).content));
      assert.equal(points.find(({ series }) => series === "train.loss").values.length, 200);
      assert.equal((await save("Picture as PNG")).content.subarray(1, 4).toString(), "PNG");
      await page.getByRole("button", { name: "Step", exact: true }).click();
      await page.getByLabel("Log axis").uncheck();
      await chart.locator("canvas").waitFor();
      await browser.expectAccessible("curves");
      await browser.shot("curves");
    },
  ],

  [
    "the parts of a job are there",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.runs[1]}?tab=config`);
      await browser.sees("optimizer.sgd.lr");
      await browser.expectAccessible("config");
      await page.getByRole("tab", { name: "Files" }).click();
      const { content } = await browser.download(() =>
        page.getByRole("link", { name: "model.safetensors" }).first().click(),
      );
      assert.ok(content.length > 10000);
      await browser.expectAccessible("files");
      await page.getByRole("tab", { name: "History" }).click();
      await browser.sees("checkpoint committed");
      await browser.expectAccessible("history");
      await page.getByRole("tab", { name: "Lineage" }).click();
      await page.locator(".tree-here").waitFor();
      await browser.expectAccessible("lineage");
    },
  ],

  [
    "a running job goes on before one's eyes",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.talks}`);
      const steps = () =>
        page
          .locator(".facts-progress")
          .innerText()
          .then((text) => Number(/step ([\d,]+)/.exec(text)[1].replace(",", "")));
      await page.locator(".facts-progress").waitFor();
      const before = await steps();
      await browser.until(
        (step) =>
          Number(/step ([\d,]+)/.exec(document.querySelector(".facts-progress").innerText)[1].replace(",", "")) >
          step,
        before + 5,
      );
      const points = () =>
        page
          .locator(".chart-plot")
          .first()
          .getAttribute("aria-label")
          .then((text) => Number(/(\d+) points/.exec(text)[1]));
      await page.locator(".chart canvas").first().waitFor();
      const old = await points();
      await browser.until(
        (count) =>
          Number(/(\d+) points/.exec(document.querySelector(".chart-plot").getAttribute("aria-label"))[1]) > count,
        old + 3,
      );
      await page.getByRole("tab", { name: "Logs" }).click();
      await browser.sees("live");
      const lines = () => page.locator(".log-line").last().innerText();
      await page.locator(".log-line").first().waitFor();
      const last = await lines();
      await browser.until((text) => [...document.querySelectorAll(".log-line")].at(-1).innerText !== text, last);
      await page.getByRole("combobox", { name: "Rank" }).selectOption("1");
      await page.locator(".log-line").first().waitFor();
      await browser.expectAccessible("logs");
      await browser.shot("logs");
    },
  ],

  [
    "notes and tags can be written",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.runs[0]}`);
      await page.getByRole("button", { name: "Write a note" }).click();
      await page.getByRole("textbox", { name: "Note" }).fill("diverges with the new warm-up");
      await page.getByRole("button", { name: "Save the note" }).click();
      await page.locator(".note-text").getByText("diverges with the new warm-up").waitFor();
      await page.getByRole("textbox", { name: "Add a tag" }).fill("paper");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Remove the tag paper" }).waitFor();
      assert.match(await yard.run("note", String(jobs.runs[0])), /diverges/);
      await page.getByRole("button", { name: "Remove the tag paper" }).click();
      await page.getByRole("button", { name: "Remove the tag paper" }).waitFor({ state: "detached" });
    },
  ],

  [
    "runs are compared",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/compare?jobs=${jobs.runs.join(",")}`);
      await page.getByRole("heading", { name: "3 runs compared" }).waitFor();
      const config = page.getByRole("region", { name: "Config" });
      await config.getByText("lr", { exact: true }).waitFor();
      assert.equal(await config.locator("tbody tr").count(), 2);
      await config.getByLabel("Only what differs").uncheck();
      await browser.until(() => document.querySelectorAll(".diff-table tbody tr").length > 20);
      await config.getByLabel("Only what differs").check();
      await page.getByRole("button", { name: "Make baseline" }).first().click();
      assert.equal(browser.params().get("base"), String(jobs.runs[0]));
      await browser.until(() => document.querySelectorAll(".legend-delta").length >= 2);
      const accuracies = await page
        .getByRole("figure", { name: "test.accuracy" })
        .locator(".legend-value")
        .allInnerTexts();
      assert.deepEqual(
        accuracies,
        accuracies.slice().sort((a, b) => Number.parseFloat(b) - Number.parseFloat(a)),
      );
      await page.getByRole("textbox", { name: "Add runs by number" }).fill(String(jobs.failed));
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "4 runs compared" }).waitFor();
      await page.getByRole("button", { name: `Remove run ${jobs.failed}` }).click();
      await page.getByRole("heading", { name: "3 runs compared" }).waitFor();
      await page.locator(".chart canvas").first().waitFor();
      await browser.expectAccessible("compare");
      await browser.shot("compare");
      await page
        .getByRole("link", { name: `${jobs.runs[1]} mlp` })
        .first()
        .click();
      await page.getByRole("heading", { name: "mlp-64-lr0.02" }).waitFor();
    },
  ],

  [
    "the queue says why a job waits, and the map who holds the devices",
    async (browser) => {
      const { page } = browser;
      await browser.open("/queue");
      await browser.sees("needs 3 devices");
      await browser.sees("Would start now: with");
      await browser.expectAccessible("queue");
      await browser.shot("queue");
      await browser.open(`/jobs/${jobs.waits}`);
      await page.getByRole("region", { name: "Why it waits" }).getByText("needs 3 devices").waitFor();
      await browser.open("/devices");
      await page.locator(".device-held").nth(1).waitFor();
      assert.equal(await count(browser, ".device-held"), 2);
      assert.equal(await count(browser, ".device-free"), 1);
      await page.getByRole("button", { name: "By job" }).click();
      await page.locator(".owners").getByText("talks").waitFor();
      await browser.expectAccessible("devices");
      await browser.shot("devices");
    },
  ],

  [
    "the schedule shows who held what, who is expected when, and what is reserved",
    async (browser, yard) => {
      const { page } = browser;
      // Its project is that of the job that waits, which it does not keep back.
      const kSoon = ["--for", "project:vision", "--devices", "1", "--start", "+15m", "--end", "+20m"];
      await yard.run("reservations", "create", "course", ...kSoon);
      await browser.open("/queue");
      await page.getByRole("link", { name: "Schedule" }).last().click();
      await page.getByRole("button", { name: "1 h", exact: true }).click();
      await page.getByRole("button", { name: "By job" }).click();
      assert.equal(browser.params().get("span"), "1h");
      const figure = page.getByRole("figure", { name: "Schedule" });
      await figure.getByRole("link", { name: `${jobs.talks} talks, attempt 1` }).nth(1).waitFor();
      await figure.getByRole("link", { name: `${jobs.failed} fails-early, attempt 1` }).first().waitFor();
      await figure.getByRole("link", { name: `${jobs.waits} waits of` }).waitFor();
      assert.equal(await figure.locator(".gantt-bar").count(), 3 + 2 + 1 + 2 + 1);
      await figure.getByRole("link", { name: `${jobs.talks} talks` }).first().hover();
      await figure.locator(".gantt-marked").getByText(/talks, attempt 1 of .*, running, .* expected to end/).waitFor();
      await figure.getByRole("img", { name: /^reservation course for project:vision, from / }).hover();
      await figure.locator(".gantt-marked").getByText("reservation course").waitFor();
      await yard.run("reservations", "rm", "course");
      await figure.getByRole("group", { name: "Picture of the schedule" }).focus();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowDown");
      assert.ok(await page.evaluate(() => document.activeElement.matches(".gantt-bar")));
      const save = async (item) => {
        await page.mouse.move(0, 0);
        return browser.download(async () => {
          await page.getByRole("button", { name: "Save the schedule" }).click();
          await page.getByRole("button", { name: item }).click();
        });
      };
      const rows = JSON.parse(String((await save("Attempts as JSON")).content));
      const talks = rows.filter(({ job }) => job === jobs.talks);
      assert.deepEqual(talks.map(({ rank, is_expected: isExpected }) => [rank, isExpected]), [[0, true], [1, true]]);
      assert.notEqual(talks[0].device, talks[1].device);
      assert.ok(Date.parse(talks[0].end) > Date.now());
      const waits = rows.find(({ job }) => job === jobs.waits);
      assert.ok(Math.abs(Date.parse(waits.begin) - Date.parse(talks[0].end)) < 120000);
      assert.match(String((await save("Attempts as CSV")).content), /^job,name,user,attempt,state,rank,worker,device,/);
      assert.equal((await save("Picture as PNG")).content.subarray(1, 4).toString(), "PNG");
      await browser.expectAccessible("schedule");
      await browser.shot("schedule");
      await page.getByRole("button", { name: "Earlier" }).click();
      await page.getByRole("button", { name: "Earlier" }).click();
      await browser.until(() => Number(new URLSearchParams(location.search).get("until")) > 0);
      await browser.until(() => document.querySelectorAll(".gantt-bar").length === 0);
      await page.keyboard.press("0");
      await figure.getByRole("link", { name: `${jobs.talks} talks` }).first().focus();
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "talks" }).waitFor();
      await page.getByRole("tab", { name: "Curves" }).waitFor();
    },
  ],

  [
    "a step has a timeline of its ranks",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.wide}`);
      await page.getByRole("tab", { name: "Timeline" }).waitFor();
      await page.keyboard.press("7");
      const figure = page.getByRole("figure", { name: "Timeline of the step" });
      await figure.locator(".span-compute").first().waitFor();
      assert.equal(await figure.locator("tbody tr").count(), 2);
      assert.match(await figure.locator("tbody").innerText(), /\d+ [µm]s/);
      const first = await figure.getByRole("heading").innerText();
      await page.keyboard.press("]");
      await browser.until((title) => document.querySelector("figure h2").innerText !== title, first);
      await page.keyboard.press("+");
      await figure.getByRole("button", { name: "Whole step" }).click();
      await figure.locator(".span-place").first().hover();
      await figure.locator(".gantt-marked").getByText(/^rank \d: .* after the beginning/).waitFor();
      const { content } = await browser.download(async () => {
        await page.getByRole("button", { name: "Save the timeline" }).click();
        await page.getByRole("button", { name: "Spans as CSV" }).click();
      });
      assert.match(String(content), /^step,rank,kind,name,begin_us,end_us\r\n\d+,0,/);
      await browser.expectAccessible("timeline");
      await browser.shot("timeline");
      await page.getByRole("tab", { name: "History" }).click();
      await page.getByRole("region", { name: "Who computes what" }).getByText("rank 1: 2").first().waitFor();
      await browser.expectAccessible("replicas");
      await browser.shot("replicas");
      // The lines of a user's program are texts like others.
      await browser.open(`/jobs/${jobs.talks}?tab=timeline`);
      await browser.sees("Step 7");
      await page.locator(".gantt-text").getByText("<script>globalThis").first().waitFor();
      assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
      await browser.open(`/jobs/${jobs.failed}?tab=timeline`);
      await browser.sees("No timeline");
    },
  ],

  [
    "runs on more devices show how they scale",
    async (browser) => {
      const { page } = browser;
      await browser.open(`/compare?jobs=${jobs.runs[0]},${jobs.wide}`);
      const figure = page.getByRole("figure", { name: "Scaling" });
      await figure.locator("circle").nth(1).waitFor();
      assert.deepEqual(await figure.locator("tbody td:nth-child(2)").allInnerTexts(), ["1", "2"]);
      assert.equal(await figure.locator("tbody td:nth-child(4)").first().innerText(), "1.00");
      const { content } = await browser.download(async () => {
        await page.getByRole("button", { name: "Save the scaling" }).click();
        await page.getByRole("button", { name: "Scaling as JSON" }).click();
      });
      assert.deepEqual(JSON.parse(String(content)).map(({ devices }) => devices), [1, 2]);
      await browser.expectAccessible("scaling");
      await browser.shot("scaling");
    },
  ],

  [
    "a saved spec is run with a change",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open("/specs/mlp-glyphs");
      await page.getByRole("link", { name: "Run", exact: true }).click();
      const side = page.getByRole("complementary", { name: "What would be submitted" });
      await side.getByText("Nothing differs").waitFor();
      await page.getByLabel("train.epochs", { exact: true }).fill("-1");
      await side.getByRole("alert").waitFor();
      assert.ok(await side.getByRole("button", { name: "Submit the job" }).isDisabled());
      await page.getByLabel("train.epochs", { exact: true }).fill("1");
      await page.getByLabel("name", { exact: true }).fill("of-a-saved-spec");
      await side.locator(".diff-is").nth(1).waitFor();
      assert.deepEqual(await side.locator(".diff-is").allInnerTexts(), ['"of-a-saved-spec"', "1"]);
      await browser.expectAccessible("run a saved spec");
      await side.getByRole("button", { name: "Submit the job" }).click();
      await page.getByRole("heading", { name: "of-a-saved-spec" }).waitFor();
      const job = JSON.parse(await yard.run("show", "of-a-saved-spec", "-o", "json"));
      assert.match(JSON.stringify(job), /specs\/mlp-glyphs\/versions\/1/);
    },
  ],

  [
    "a clone shows what differs before it is submitted",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open(`/jobs/${jobs.runs[1]}/clone`);
      const side = page.getByRole("complementary", { name: "What would be submitted" });
      await side.getByText("Nothing differs").waitFor();
      await page.getByLabel("optimizer.sgd.lr", { exact: true }).fill("-3");
      await side.getByText("expected above 0").waitFor();
      assert.ok(await side.getByRole("button", { name: "Submit the clone" }).isDisabled());
      await page.getByLabel("optimizer.sgd.lr", { exact: true }).fill("0.03");
      await page.getByLabel("train.epochs", { exact: true }).fill("2");
      await page.getByLabel("name", { exact: true }).fill("cloned-here");
      await side.locator(".diff-is").nth(2).waitFor();
      await side
        .getByText(/It would start|No start can be foretold/)
        .first()
        .waitFor();
      assert.deepEqual(browser.params().getAll("set").toSorted(), [
        "name=cloned-here",
        "optimizer.sgd.lr=0.03",
        "train.epochs=2",
      ]);
      await browser.expectAccessible("clone");
      await browser.shot("clone");
      await side.getByRole("button", { name: "Submit the clone" }).click();
      await page.getByRole("heading", { name: "cloned-here" }).waitFor();
      await page.locator(".view-head .state-succeeded").waitFor();
      assert.match(await yard.run("ls", "--name", "cloned-here", "--columns", "lr"), /0\.03/);
      await page.getByRole("tab", { name: "Lineage" }).click();
      await page.locator(".tree ul .tree-here").waitFor();
    },
  ],

  [
    "a job is cancelled, after a question",
    async (browser, yard) => {
      const { page } = browser;
      const job = await yard.script("to-cancel", "sleep 600", "--begin", "+10h");
      await browser.open(`/jobs/${job}`);
      await page.getByRole("button", { name: "Suspend…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Suspend the job" }).click();
      await page.locator(".view-head .state-suspended").waitFor();
      await page.getByRole("button", { name: "Resume…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Resume the job" }).click();
      await page.locator(".view-head .state-queued").waitFor();
      await page.getByRole("button", { name: "Cancel…" }).click();
      await browser.expectAccessible("question");
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByLabel("Why, for the history").fill("not needed");
      await page.getByRole("button", { name: "Cancel the job" }).click();
      await page.locator(".view-head .state-cancelled").waitFor();
      await page.getByRole("tab", { name: "History" }).click();
      await page.getByRole("region", { name: "Events" }).getByText("not needed").first().waitFor();
    },
  ],

  [
    "a sweep shows its trials",
    async (browser, yard) => {
      const { page } = browser;
      const file = await yard.spec("sweep.yaml", kMlp);
      await yard.run("cancel", String(jobs.waits));
      await yard.run(
        "sweep",
        "run",
        file,
        "--name",
        "find-rate",
        "--sweep",
        "optimizer.sgd.lr=log(1e-3, 1)",
        "--sweep",
        "train.global_batch=[25, 50, 100]",
        "--maximize",
        "test.accuracy",
        "--search",
        "asha",
        "--trials",
        "9",
        "--set",
        "train.epochs=8",
        "--set",
        "train.replicas=1",
        "--set",
        "sweep.factor=3",
      );
      await browser.open("/sweeps");
      await page.getByRole("link", { name: "find-rate" }).click();
      await page.locator(".trial-line").nth(8).waitFor();
      assert.equal(await count(browser, ".rung"), 3);
      await browser.sees("best test.accuracy");
      const trials = page.getByRole("region", { name: "Trials" });
      assert.equal(await trials.locator("tbody tr").count(), 9);
      const values = (await trials.locator("tbody td:nth-child(3)").allInnerTexts()).map(Number.parseFloat);
      assert.deepEqual(
        values,
        values.slice().sort((a, b) => b - a),
      );
      const { content } = await browser.download(async () => {
        await page.getByRole("button", { name: "Save all trials" }).click();
        await page.getByRole("button", { name: "Picture as PNG" }).click();
      });
      assert.equal(content.subarray(1, 4).toString(), "PNG");
      await browser.expectAccessible("sweep");
      await browser.shot("sweep");
      await browser.open("/sweeps");
      await page.getByRole("link", { name: "find-rate" }).waitFor();
      await browser.expectAccessible("sweeps");
    },
  ],

  [
    "saved specs and usage are shown",
    async (browser) => {
      const { page } = browser;
      await browser.open("/specs");
      await page.getByRole("link", { name: "mlp-glyphs" }).waitFor();
      await browser.expectAccessible("specs");
      await page.getByRole("link", { name: "good-one" }).click();
      await browser.sees("trainyard run good-one@1");
      await browser.expectAccessible("saved spec");
      await browser.open("/usage");
      await page.getByRole("region", { name: "Used and stored" }).getByRole("link").first().waitFor();
      await browser.expectAccessible("usage");
      await browser.open("/nothing/here");
      await browser.sees("There is no such page");
    },
  ],

  [
    "a verification has a badge",
    async (browser, yard) => {
      await yard.run("verify", String(jobs.runs[2]));
      await browser.open("/");
      await browser.page.locator(`tr[data-job="${jobs.runs[2]}"] .verified`).getByText("1/1").waitFor();
      await browser.open(`/jobs/${jobs.runs[2]}?tab=lineage`);
      await browser.sees("identical");
    },
  ],

  [
    "thousands of runs scroll",
    async (browser, yard) => {
      const { page } = browser;
      await yard.run("-q", "submit", "--name", "many", "--array", "3000", "--begin", "+20h", "--", "true");
      await browser.open("/");
      await browser.until(() => Number(document.querySelector(".run-table")?.getAttribute("aria-rowcount")) > 3000);
      assert.ok((await count(browser, ".run-table tbody tr")) < 90);
      const ms = await page.evaluate(async () => {
        const scroller = document.querySelector(".table-scroll");
        const begin = performance.now();
        for (let i = 0; i < 30; ++i) {
          scroller.scrollTop = (scroller.scrollHeight * i) / 30;
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        }
        scroller.scrollTop = scroller.scrollHeight;
        return (performance.now() - begin) / 30;
      });
      await browser.until((name) => document.querySelector(".run-table").innerText.includes(name), "mlp-32-lr0.1");
      assert.ok(ms < 400, `a jump takes ${ms} ms`);
      await page.getByLabel("Filter runs").fill("many-2999");
      await browser.until(() => document.querySelectorAll(".run-table tbody tr[data-job]").length === 1);
      await yard.run("cancel", "--all-queued");
    },
  ],

  [
    "an open page survives a restart of the server",
    async (browser, yard) => {
      const { page } = browser;
      await browser.open("/?q=name ~ restart or id < 6");
      await browser.sees("fails-early");
      await yard.away();
      await browser.sees("Disconnected");
      await browser.sees("The server does not answer");
      await browser.expectAccessible("disconnected");
      await browser.shot("disconnected");
      await yard.up();
      await browser.sees("Live");
      await page.locator(".stale").waitFor({ state: "detached" });
      await yard.script("after-restart", "true");
      await browser.sees("after-restart");
    },
  ],

  [
    "dark and small screens work as well",
    async (browser) => {
      await browser.look({ isDark: true });
      for (const [name, path, ready] of [
        ["dark-runs", "/", ".run-table .row-link"],
        ["dark-job", `/jobs/${jobs.runs[1]}?smooth=0.8`, ".chart canvas"],
        ["dark-failure", `/jobs/${jobs.failed}`, ".failure .log-line"],
        ["dark-compare", `/compare?jobs=${jobs.runs.join(",")}&smooth=0.8`, ".chart canvas"],
        ["dark-sweep", "/sweeps/1", ".trial-line"],
        ["dark-devices", "/devices", ".device"],
        ["dark-schedule", "/schedule?span=1h", ".gantt-bar"],
        ["dark-timeline", `/jobs/${jobs.wide}?tab=timeline`, ".span-compute"],
        ["dark-clone", `/jobs/${jobs.runs[1]}/clone`, ".field-row"],
      ]) {
        await browser.open(path);
        await browser.page.locator(ready).first().waitFor();
        await browser.expectAccessible(name);
        await browser.shot(name);
      }
      await browser.look({ width: 390, height: 800 });
      for (const [name, path, ready] of [
        ["phone-runs", "/", ".run-table .row-link"],
        ["phone-job", `/jobs/${jobs.runs[1]}`, ".chart canvas"],
        ["phone-sweep", "/sweeps/1", ".trial-line"],
        ["phone-queue", "/queue", "h1"],
        ["phone-devices", "/devices", ".device"],
        ["phone-schedule", "/schedule?span=1h", ".gantt-bar"],
        ["phone-timeline", `/jobs/${jobs.wide}?tab=timeline`, ".span-compute"],
        ["phone-clone", `/jobs/${jobs.runs[1]}/clone`, ".field-row"],
        ["phone-logs", `/jobs/${jobs.failed}?tab=logs`, ".log-line"],
      ]) {
        await browser.open(path);
        await browser.page.locator(ready).first().waitFor();
        const width = await browser.page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= 391, `${name} is ${width} pixels wide`);
        if (name === "phone-clone")
          assert.ok((await browser.page.locator(".field-input").first().boundingBox()).width > 250);
        await browser.expectAccessible(name);
        await browser.shot(name);
      }
    },
  ],
];
