// Gets the packages of the tests, and ends with 77, as a skipped test does, if something is missing.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const kInstallMsMax = 120000;

export function skip(reason) {
  console.log(`SKIPPED: ${reason}`);
  process.exit(77);
}

export function needTools(here, chromium) {
  if (!existsSync(chromium)) skip(`there is no ${chromium}; apt-get install chromium`);
  const { dependencies } = JSON.parse(readFileSync(join(here, "package.json")));
  if (Object.keys(dependencies).every((name) => existsSync(join(here, "node_modules", name)))) return;
  try {
    execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
      cwd: here,
      stdio: "pipe",
      timeout: kInstallMsMax,
    });
  } catch (error) {
    skip(
      "the packages of tests/browser are not there, and npm ci cannot get them: " +
        String(error.message).split("\n")[0],
    );
  }
}
