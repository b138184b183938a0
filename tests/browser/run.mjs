// Opens the dashboard in a browser, against a real server and a real worker, and checks what a person sees.
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { needTools, skip } from "./tools.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const { values: flags } = parseArgs({
  options: {
    bin: { type: "string", default: join(root, "build/release/bin") },
    shots: { type: "string" },
    only: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});

needTools(here, flags.chromium);
if (!existsSync(join(flags.bin, "trainyard"))) skip(`there is no trainyard in ${flags.bin}; build it, or give --bin`);

const { Yard } = await import("./yard.mjs");
const { Browser } = await import("./browser.mjs");
const { checks } = await import("./checks.mjs");

const kAllMsMax = 8 * 60 * 1000;
const yard = await Yard.start({ bin: flags.bin, page: join(root, "server/http/page") });
let browser;
let failed = 0;
let isTooLate = false;
const watchdog = setTimeout(() => {
  isTooLate = true;
  browser?.close();
}, kAllMsMax);
try {
  browser = await Browser.start({ executable: flags.chromium, yard, shots: flags.shots });
  if (flags.shots) await mkdir(flags.shots, { recursive: true });
  for (const [name, check] of checks) {
    if (flags.only && !name.includes(flags.only) && !check.isNeeded) continue;
    const begin = Date.now();
    try {
      await check(browser, yard);
      browser.expectQuiet();
      console.log(`ok      ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack}`);
      await browser.shot("failed", { isLoud: false });
    }
    if (isTooLate) throw new Error(`the checks took longer than ${kAllMsMax / 1000} s`);
  }
} finally {
  clearTimeout(watchdog);
  await browser?.close();
  await yard.end();
}
console.log(failed === 0 ? "all checks passed" : `${failed} checks failed`);
process.exit(failed === 0 ? 0 : 1);
