// Holds the browser of the checks, and notices what must never happen: errors of scripts, refusals of the policy,
// dialogs, and scripts that texts of users brought along.
import assert from "node:assert/strict";
import { join } from "node:path";
import axe from "axe-core";
import { chromium } from "playwright-core";

const kWaitMs = 20000;

export class Browser {
  #complaints = [];

  static async start({ executable, yard, shots }) {
    const browser = new Browser();
    browser.shots = shots;
    browser.playwright = await chromium.launch({ executablePath: executable, args: ["--no-sandbox"] });
    browser.server = await yard.serve();
    await browser.look({});
    return browser;
  }

  // Opens a window of another kind.
  async look({ isDark = false, width = 1360, height = 860 }) {
    await this.context?.close();
    this.context = await this.playwright.newContext({
      viewport: { width, height },
      colorScheme: isDark ? "dark" : "light",
      acceptDownloads: true,
    });
    this.page = await this.context.newPage();
    this.page.setDefaultTimeout(kWaitMs);
    this.page.on("pageerror", (error) => this.#complaints.push(`a script failed: ${error.stack}`));
    this.page.on("dialog", (dialog) => {
      this.#complaints.push(`a dialog opened: ${dialog.message()}`);
      dialog.dismiss();
    });
    this.page.on("console", (message) => {
      if (/Content Security Policy|Refused to/.test(message.text())) this.#complaints.push(message.text());
    });
  }

  async open(path) {
    await this.page.goto(this.server.url + path);
  }

  // Waits until the text is in sight.
  async sees(text, within = "body") {
    await this.page.locator(within).getByText(text).first().waitFor({ state: "visible" });
  }

  // Waits until a condition within the page holds.
  async until(condition, argument) {
    await this.page.waitForFunction(condition, argument, { timeout: kWaitMs });
  }

  params() {
    return new URL(this.page.url()).searchParams;
  }

  // Fails if anything went wrong since the last call.
  expectQuiet() {
    const complaints = this.#complaints.splice(0);
    assert.deepEqual(complaints, []);
  }

  // Fails if axe finds serious faults of accessibility.
  async expectAccessible(name) {
    await this.page.evaluate(axe.source);
    const { violations } = await this.page.evaluate(() =>
      globalThis.axe.run(document, {
        resultTypes: ["violations"],
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
      }),
    );
    const serious = violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(
        ({ id, nodes }) =>
          `${name}: ${id}: ${nodes
            .slice(0, 4)
            .map(({ html, failureSummary }) => `${html.slice(0, 160)} (${failureSummary.split("\n").slice(1, 2)})`)
            .join("; ")}`,
      );
    assert.deepEqual(serious, []);
  }

  async shot(name, { isLoud = true } = {}) {
    if (!this.shots) return;
    try {
      await this.page.screenshot({ path: join(this.shots, `page-${name}.png`) });
    } catch (error) {
      if (isLoud) throw error;
    }
  }

  // The content of the file that a click hands out.
  async download(click) {
    const [download] = await Promise.all([this.page.waitForEvent("download"), click()]);
    const pieces = [];
    for await (const piece of await download.createReadStream()) pieces.push(piece);
    return { name: download.suggestedFilename(), content: Buffer.concat(pieces) };
  }

  async close() {
    this.server?.close();
    await this.playwright?.close();
  }
}
