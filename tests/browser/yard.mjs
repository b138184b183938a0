// Starts a server, a worker and the page of a test, all below a temporary folder, and ends them again.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);
const kCommandMsMax = 90000;

export class Yard {
  static async start({ bin, page }) {
    const yard = new Yard();
    yard.bin = bin;
    yard.page = page;
    yard.folder = await mkdtemp(join(tmpdir(), "ty-page-"));
    yard.state = join(yard.folder, "state");
    yard.socket = join(yard.state, "server", "server.sock");
    await mkdir(join(yard.folder, "home"));
    yard.env = {
      PATH: process.env.PATH,
      HOME: join(yard.folder, "home"),
      TRAINYARD_SERVER: `unix:${yard.socket}`,
      LC_ALL: "C.UTF-8",
    };
    await yard.up();
    return yard;
  }

  // Runs the command line and returns what it prints, without the last line's end.
  async run(...words) {
    const { stdout } = await execute(join(this.bin, "trainyard"), words, {
      cwd: this.folder,
      env: this.env,
      timeout: kCommandMsMax,
      maxBuffer: 64 << 20,
    });
    return stdout.trimEnd();
  }

  up() {
    return this.run(
      "up",
      "--detach",
      "--state-dir",
      this.state,
      "--cpu-devices",
      "3",
      "--threads-per-device",
      "1",
      "--share-cpus",
    );
  }

  // Stops the daemons and leaves the jobs to their supervisors, as a crash does.
  away() {
    return this.run("down", "--state-dir", this.state, "--force");
  }

  async spec(name, content) {
    await writeFile(join(this.folder, name), content);
    return join(this.folder, name);
  }

  // Submits, and returns the number of the job.
  async submit(...words) {
    const name = await this.run("-q", "submit", ...words);
    return Number(/jobs\/(\d+)/.exec(name)[1]);
  }

  // Submits a shell script as a program.
  script(name, text, ...flags) {
    return this.submit("--name", name, ...flags, "--", "sh", "-c", text);
  }

  // Serves the page, for those who have the token if one is given; returns {url, close}.
  async serve(token) {
    const child = spawn(
      process.execPath,
      [join(this.page, "dev.mjs"), "--socket", this.socket, "--port", "0", ...(token ? ["--token", token] : [])],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    const url = await new Promise((resolve, reject) => {
      child.once("exit", (status) => reject(new Error(`dev.mjs ended with ${status}`)));
      child.stdout.once("data", (text) => resolve(String(text).trim().replace(/#.*/, "").replace(/\/$/, "")));
    });
    return { url, close: () => child.kill() };
  }

  async end() {
    try {
      await this.run("down", "--state-dir", this.state, "--cancel");
    } catch {
      await this.away().catch((error) => console.error(`the daemons could not be stopped: ${error.message}`));
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}
