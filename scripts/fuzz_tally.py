#!/usr/bin/env python3
"""Adds up how often each fuzz target was run, and writes the table of docs/reliability.md.

    fuzz_tally.py add TARGET EXECUTIONS SECONDS BROKEN     adds a run
    fuzz_tally.py report                                   writes the table
"""
import fcntl
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TALLY = os.path.join(ROOT, "tests/fuzz/tally.json")
PAGE = os.path.join(ROOT, "docs/reliability.md")
TARGETS = os.path.join(ROOT, "tests/fuzz/targets")
BEGIN, END = "<!-- fuzz begin -->", "<!-- fuzz end -->"


def read_tally():
    if not os.path.exists(TALLY):
        return {}
    with open(TALLY) as file:
        return json.load(file)


def add(target, executions, seconds, broken):
    # Targets run side by side. The lock is that of this script, and goes when it is closed.
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tally = read_tally()
        entry = tally.setdefault(target, {"executions": 0, "seconds": 0, "broken": 0})
        entry["executions"] += executions
        entry["seconds"] += seconds
        entry["broken"] += broken
        with open(TALLY + ".tmp", "w") as file:
            json.dump(tally, file, indent=2, sort_keys=True)
            file.write("\n")
        os.replace(TALLY + ".tmp", TALLY)


def subject(target):
    """Returns the first sentences of the target's source, which say what it feeds."""
    lines = []
    with open(os.path.join(TARGETS, target + ".cc")) as source:
        for line in source:
            if not line.startswith("//"):
                break
            lines.append(line[2:].strip())
    return re.split(r"(?<=\.) ", " ".join(lines))[0]


def table():
    tally = read_tally()
    rows = ["| target | what it does | executions | minutes | inputs that broke something |", "|---|---|---:|---:|---:|"]
    total = {"executions": 0, "seconds": 0, "broken": 0}
    for name in sorted(os.listdir(TARGETS)):
        target = name[: -len(".cc")]
        entry = tally.get(target, {"executions": 0, "seconds": 0, "broken": 0})
        for key in total:
            total[key] += entry[key]
        rows.append(
            f"| `{target}` | {subject(target)} | {entry['executions']:,} | {entry['seconds'] // 60} | {entry['broken']} |"
        )
    rows.append(f"| all | | {total['executions']:,} | {total['seconds'] // 60} | {total['broken']} |")
    return "\n".join(rows)


def report():
    with open(PAGE) as page:
        text = page.read()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    with open(PAGE, "w") as page:
        page.write(text[:begin] + "\n" + table() + "\n" + text[end:])


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "add":
        add(sys.argv[2], *(int(number) for number in sys.argv[3:]))
    elif sys.argv[1:] == ["report"]:
        report()
    else:
        sys.exit(__doc__)


main()
