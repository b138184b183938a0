#!/usr/bin/env python3
"""What a job costs a program of the user's own: from `trainyard run` to its exit, and what the pool adds to a command.

Starts a server and a worker of its own (`trainyard up`), and times `trainyard run -q -- COMMAND` on the idle pool beside the
same command without Trainyard. The ratio of the two matters for long programs, and the difference for short ones.
usage: bench_program.py --bin DIR [--runs 30]
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time


def timed(words, env):
    begin = time.monotonic()
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.monotonic() - begin) * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    cli = os.path.join(args.bin, "trainyard")
    with tempfile.TemporaryDirectory() as state:
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{state}/server/server.sock", HOME=state)

        def run(*words):
            subprocess.run([cli, *words], env=env, check=True, capture_output=True)

        run("up", "--detach", "--state-dir", state, "--cpu-devices", "2", "--threads-per-device", "1")
        try:
            print(f"{'':44} {'p50 ms':>8} {'max ms':>8}")
            for label, words in (
                ("trainyard version", [cli, "version"]),
                ("trainyard ls", [cli, "ls"]),
                ("trainyard run -q -- true", [cli, "run", "-q", "--", "true"]),
                ("trainyard run -q --devices 2 -- true", [cli, "run", "-q", "--devices", "2", "--", "true"]),
                ("trainyard run -q -- sleep 2", [cli, "run", "-q", "--", "sleep", "2"]),
            ):
                runs = args.runs if "sleep" not in label else 5
                times = [timed(words, env) for _ in range(runs)]
                print(f"{label:44} {statistics.median(times):8.1f} {max(times):8.1f}")
        finally:
            run("down", "--state-dir", state)


if __name__ == "__main__":
    main()
