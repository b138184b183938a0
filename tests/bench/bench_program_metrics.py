#!/usr/bin/env python3
"""How many lines of metrics a program may write a second without loss, and when the last of them is on the server.

Starts a server and a worker of its own (`trainyard up`). A program appends lines to its metrics.jsonl at a given rate, or
all at once, and every point is counted afterwards.
usage: bench_program_metrics.py --bin DIR [--seconds 5] [--burst 1000000]
"""
import argparse
import os
import subprocess
import tempfile
import time

WRITER = """
import os, sys, time
rate, lines = int(sys.argv[1]), int(sys.argv[2])
begin = time.monotonic()
with open(os.environ["TRAINYARD_RUN_DIR"] + "/metrics.jsonl", "a", buffering=1) as file:
    for step in range(1, lines + 1):
        file.write('{"step": %d, "metrics": {"loss": 0.5}}\\n' % step)
        if rate and step % 100 == 0:
            time.sleep(max(0, begin + step / rate - time.monotonic()))
print(time.monotonic() - begin)
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--burst", type=int, default=1_000_000, help="lines that are written as fast as it goes")
    args = parser.parse_args()
    cli = os.path.join(args.bin, "trainyard")
    with tempfile.TemporaryDirectory() as state:
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{state}/server/server.sock", HOME=state)
        script = os.path.join(state, "writer.py")
        with open(script, "w") as file:
            file.write(WRITER)

        def run(*words):
            return subprocess.run([cli, *words], env=env, check=True, capture_output=True, text=True).stdout

        run("up", "--detach", "--state-dir", state, "--cpu-devices", "1", "--threads-per-device", "1")
        try:
            print(f"{'lines':>10} {'lines/s':>10} {'wrote s':>9} {'stored s':>9} {'points':>10} {'lost':>6}")
            for rate, lines in ((10_000, 10_000 * args.seconds), (0, args.burst)):
                begin = time.monotonic()
                wrote = float(run("run", "-q", "--", "python3", script, str(rate), str(lines)))
                # Following ends once every point of the job has come.
                points = run("metrics", "-f", "last", "--metric", "loss", "-o", "jsonl").count("\n")
                stored = time.monotonic() - begin
                print(f"{lines:10} {lines / wrote:10.0f} {wrote:9.1f} {stored:9.1f} {points:10} {lines - points:6}")
        finally:
            run("down", "--state-dir", state)


if __name__ == "__main__":
    main()
