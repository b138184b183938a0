// Takes pictures of the page that are the same on every machine: with fonts, a clock and a zone of their own.
import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import pixelmatch from "pixelmatch";
import { chromium } from "playwright-core";
import { PNG } from "pngjs";

const kWaitMs = 20000;
const kFonts = join(dirname(fileURLToPath(import.meta.url)), "node_modules/dejavu-fonts-ttf/ttf");
const kFontFiles = ["DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"];

export class Camera {
  static async start({ executable, url, now }) {
    const camera = new Camera();
    camera.url = url;
    camera.now = now;
    camera.folder = await mkdtemp(join(tmpdir(), "ty-camera-"));
    // Only these fonts exist for this browser, so every family falls back to the first one.
    for (const font of kFontFiles) await copyFile(join(kFonts, font), join(camera.folder, font));
    const config = join(camera.folder, "fonts.conf");
    await writeFile(
      config,
      `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>${camera.folder}</dir>` +
        `<cachedir>${camera.folder}</cachedir>${alias("sans-serif", "DejaVu Sans")}` +
        `${alias("monospace", "DejaVu Sans Mono")}</fontconfig>`,
    );
    camera.browser = await chromium.launch({
      executablePath: executable,
      args: ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb"],
      env: { ...process.env, FONTCONFIG_FILE: config },
    });
    return camera;
  }

  // Opens an address and waits until `ready` is there; returns the page.
  async open(path, ready, { isDark = false, width = 1360, height = 860, at } = {}) {
    await this.context?.close();
    this.context = await this.browser.newContext({
      viewport: { width, height },
      colorScheme: isDark ? "dark" : "light",
      reducedMotion: "reduce",
      timezoneId: "UTC",
      locale: "en-US",
    });
    const page = await this.context.newPage();
    page.setDefaultTimeout(kWaitMs);
    if (this.now) await page.clock.setFixedTime(this.now);
    await page.goto(this.url + path);
    await page.locator(ready).first().waitFor();
    if (at) await page.getByRole("figure", { name: at }).scrollIntoViewIfNeeded();
    await page.waitForLoadState("load");
    return page;
  }

  async close() {
    await this.browser.close();
    await rm(this.folder, { recursive: true, force: true });
  }
}

const alias = (name, font) =>
  `<match target="pattern"><test name="family"><string>${name}</string></test>` +
  `<edit name="family" mode="assign" binding="same"><string>${font}</string></edit></match>`;

// Compares two pictures: {share, difference}, the share of the pixels that differ and a picture of them. Pictures of
// different sizes differ in all of them.
export function compare(expected, actual) {
  const left = PNG.sync.read(expected);
  const right = PNG.sync.read(actual);
  const { width, height } = left;
  if (width !== right.width || height !== right.height) return { share: 1, difference: null };
  const difference = new PNG({ width, height });
  const count = pixelmatch(left.data, right.data, difference.data, width, height, { threshold: 0.1 });
  return { share: count / (width * height), difference: PNG.sync.write(difference) };
}
