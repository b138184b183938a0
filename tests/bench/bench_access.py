#!/usr/bin/env python3
"""Compares two builds of the server, call by call: what it costs to know who calls and to decide what they may do.

Both servers run at the same time, and their rounds alternate, so that whatever else the machine does meets both.
usage: bench_access.py --before DIR --after DIR [--rounds 15]      folders with trainyard-server; bench_service is in --after
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile

# A round of each: command, flags, the figure, its unit.
ROUNDS = [("get", dict(jobs=4000), "p50_ms", "us a call, median"),
          ("unary", dict(jobs=300), "rate", "jobs/s, one client"),
          ("unary", dict(jobs=2000, clients=32), "rate", "jobs/s, 32 clients"),
          ("stream", dict(jobs=5000), "rate", "jobs/s, one stream")]


def load(binaries, command, address, **flags):
    words = [os.path.join(binaries, "bench_service"), command, address]
    for name, value in flags.items():
        words += [f"--{name}", str(value)]
    result = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    result["rate"] = result["count"] / max(result["seconds"], 1e-9)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before")
    parser.add_argument("--after", "--bin")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.before is None:
        print("skipped: it compares with an older build, whose folder --before names")
        return
    with tempfile.TemporaryDirectory() as scratch:
        servers = {}
        for name, folder in (("before", options.before), ("after", options.after)):
            state = os.path.join(scratch, name)
            process = subprocess.Popen([os.path.join(folder, "trainyard-server"), "--state_dir", state],
                                       stderr=subprocess.DEVNULL)
            servers[name] = (process, f"unix:{state}/server.sock")
        try:
            for _, address in servers.values():
                load(options.after, "ready", address)
                load(options.after, "unary", address, jobs=1)
            for command, flags, figure, unit in ROUNDS:
                figures = {name: [] for name in servers}
                for _ in range(options.rounds):
                    for name, (_, address) in servers.items():
                        figures[name].append(load(options.after, command, address, **flags)[figure])
                before, after = (statistics.median(figures[name]) for name in ("before", "after"))
                scale = 1000 if figure == "p50_ms" else 1
                print(f"{command:<8} before {before * scale:>10,.1f}  after {after * scale:>10,.1f}  {unit}, "
                      f"ratio {after / before:.3f}", flush=True)
        finally:
            for process, _ in servers.values():
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


if __name__ == "__main__":
    main()
