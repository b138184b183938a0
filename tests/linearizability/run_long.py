#!/usr/bin/env python3
"""Runs many rounds of linearizability_test, and writes what they found into the documentation.

    run_long.py --bin build/release/bin [--rounds 100] [--docs docs]
"""
import argparse
import os
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from sections import replace_section


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--docs", help="the folder of the documentation; it is left alone by default")
    args = parser.parse_args()
    run = subprocess.run([os.path.join(args.bin, "linearizability_test"), "--gtest_filter=Linearizability.Users*"],
                         stdout=subprocess.PIPE, text=True, env={**os.environ, "TRAINYARD_LINEARIZABILITY": str(args.rounds)})
    print(run.stdout)
    line = re.search(r"^histories=.*$", run.stdout, re.MULTILINE)
    if run.returncode != 0 or line is None:
        sys.exit("the test failed")
    counts = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line[0])}
    if args.docs:
        rows = [("histories, each with a server of its own", "histories"), ("operations", "operations"),
                ("of these broken by a kill, with unknown outcome", "unknown"),
                ("jobs, for each of which an order was searched", "jobs"), ("kills of the server", "kills"),
                ("anomalies", "anomalies"), ("searches that were given up", "undecided")]
        table = "\n".join(["| what | count |", "|---|---|"] + [f"| {what} | {counts[key]:,} |" for what, key in rows])
        replace_section(os.path.join(args.docs, "reliability.md"), "linearizability", table)


if __name__ == "__main__":
    main()
