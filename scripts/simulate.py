#!/usr/bin/env python3
"""Lets the simulator live through further seeds, and adds them to the tally in docs/reliability.md.

  scripts/simulate.py --bin build/release/bin --hours 2000

It goes on with the seed after the last one of the tally (tests/sim/tally.json), runs blocks of seeds on all processors, and
stops after so many pool-hours. A seed that breaks a promise is printed and counted, and the exit code is 1 then:
`sim --seed N --trace` tells its story, and tests/sim/README.md says how it is kept. The tally is written after each block, so
that it may be killed.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from sections import replace_section  # noqa: E402

TALLY = ROOT / "tests/sim/tally.json"
FIRST_SEED = 100_000  # the tests have those before
BLOCK = 40
LAST_LINE = re.compile(r"(\d+) seeds, ([\d.]+) pool-hours, (\d+) broken")


def read_tally():
    if TALLY.exists():
        return json.loads(TALLY.read_text())
    return {"next_seed": FIRST_SEED, "seeds": 0, "hours": 0.0, "broken": 0, "runs": []}


def simulate(binary, first):
    done = subprocess.run([binary, "--seeds", f"{first}..{first + BLOCK - 1}"], capture_output=True, text=True)
    found = LAST_LINE.search(done.stdout)
    if found is None:
        raise RuntimeError(f"seeds from {first} on ended with code {done.returncode}: {done.stderr[-2000:]}")
    for line in done.stdout.splitlines():
        if line.startswith("seed "):
            print(line, flush=True)
    return int(found[1]), float(found[2]), int(found[3])


def table(tally):
    rows = ["| date | commit | seeds | pool-hours | seeds that broke a promise |", "|---|---|---:|---:|---:|"]
    for run in tally["runs"]:
        rows.append(f"| {run['date']} | {run['commit']} | {run['seeds']:,} | {run['hours']:,.0f} | {run['broken']} |")
    rows.append(f"| all | | {tally['seeds']:,} | {tally['hours']:,.0f} | {tally['broken']} |")
    return "\n".join(rows)


def row_of(tally, date, commit):
    """The row of this commit and day."""
    runs = tally["runs"]
    if not runs or (runs[-1]["date"], runs[-1]["commit"]) != (date, commit):
        runs.append({"date": date, "commit": commit, "seeds": 0, "hours": 0.0, "broken": 0})
    return runs[-1]


def write(tally):
    temporary = TALLY.with_suffix(".tmp")
    temporary.write_text(json.dumps(tally, indent=1) + "\n")
    os.replace(temporary, TALLY)
    replace_section(ROOT / "docs/reliability.md", "simulated", table(tally))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--hours", type=float, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    tally = read_tally()
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    row = row_of(tally, datetime.date.today().isoformat(), commit.stdout.strip())
    run = {"seeds": 0, "hours": 0.0, "broken": 0}
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    waiting = []
    first = tally["next_seed"]
    try:
        while run["hours"] < options.hours:
            # The blocks are taken over in their order, so that the tally has no gap.
            while len(waiting) < 2 * options.jobs:
                waiting.append(pool.submit(simulate, options.bin / "sim", first))
                first += BLOCK
            seeds, hours, broken = waiting.pop(0).result()
            for tallied in (run, row, tally):
                tallied["seeds"] += seeds
                tallied["hours"] += hours
                tallied["broken"] += broken
            tally["next_seed"] += seeds
            write(tally)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    print(f"{run['seeds']} seeds, {run['hours']:,.0f} pool-hours, {run['broken']} broken; "
          f"{tally['hours']:,.0f} pool-hours altogether")
    return 1 if run["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
