// Takes pictures of the page with recorded answers, and compares them with those that are kept in docs/images. A
// picture of which more than 1 % of the pixels differ fails, and is kept beside the expected one.
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";
import { needTools } from "./tools.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const { values: flags } = parseArgs({
  options: {
    out: { type: "string", default: join(root, "build/pictures") },
    update: { type: "boolean", default: false },
    only: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
needTools(here, flags.chromium);
const { Camera, compare } = await import("./camera.mjs");
const { kPictures, kRecordingFile } = await import("./pictures_list.mjs");
const { replay } = await import("./recording.mjs");

const kShareMax = 0.01;
// Charts and answers come one after the other; a picture is taken again until it is the expected one, or this often.
const kTries = 12;
const kTryMs = 300;

const kept = JSON.parse(gunzipSync(await readFile(join(here, kRecordingFile))));
const missing = [];
const door = await replay({ dist: join(root, "server/http/page/dist"), answers: kept.answers, missing });
const camera = await Camera.start({ executable: flags.chromium, url: door.url, now: kept.now });
const take = (page) => page.screenshot({ animations: "disabled", caret: "hide" });
let failed = 0;

// Takes a picture once two in a row are the same.
async function settled(page) {
  let before = await take(page);
  for (let turn = 0; turn < kTries; ++turn) {
    await page.waitForTimeout(kTryMs);
    const next = await take(page);
    if (turn > 2 && before.equals(next)) return next;
    before = next;
  }
  return before;
}

async function check(name, page) {
  const file = join(root, "docs/images", `page-${name}.png`);
  if (flags.update) {
    await writeFile(file, await settled(page));
    return "kept";
  }
  if (!existsSync(file)) throw new Error(`there is no ${file}; run pictures.mjs --update, and look at it`);
  const expected = await readFile(file);
  let actual;
  let result;
  for (let turn = 0; turn < kTries; ++turn) {
    await page.waitForTimeout(turn === 0 ? 0 : kTryMs);
    actual = await take(page);
    result = compare(expected, actual);
    if (result.share <= kShareMax) return `${(result.share * 100).toFixed(2)} % differ`;
  }
  await mkdir(flags.out, { recursive: true });
  await writeFile(join(flags.out, `${name}-expected.png`), expected);
  await writeFile(join(flags.out, `${name}-actual.png`), actual);
  if (result.difference) await writeFile(join(flags.out, `${name}-difference.png`), result.difference);
  throw new Error(
    `${(result.share * 100).toFixed(2)} % of the pixels differ; look at ${join(flags.out, name)}-*.png, and run ` +
      "pictures.mjs --update if the change is meant",
  );
}

try {
  for (const [name, path, ready, look] of kPictures) {
    if (flags.only && !name.includes(flags.only)) continue;
    try {
      const page = await camera.open(path, ready, look);
      const result = await check(name, page);
      if (missing.length > 0) throw new Error("the page has made other calls than those that were recorded");
      console.log(`ok      ${name}: ${result}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.message}`);
      for (const call of new Set(missing.splice(0))) console.log(`        not recorded: ${call}`);
    }
  }
  // The comparison notices a page without its content.
  const [name, path, ready, look] = kPictures[0];
  const page = await camera.open(path, ready, look);
  await page.evaluate(() => document.getElementById("main").remove());
  const expected = await readFile(join(root, "docs/images", `page-${name}.png`));
  if (compare(expected, await take(page)).share <= kShareMax) {
    failed += 1;
    console.log("FAILED  a page without its content is not noticed");
  }
} finally {
  await camera.close();
  door.close();
}
console.log(failed === 0 ? "all pictures are as expected" : `${failed} pictures differ`);
process.exit(failed === 0 ? 0 : 1);
