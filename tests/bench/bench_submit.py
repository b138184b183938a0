#!/usr/bin/env python3
"""From `submit` to the first finished step on an idle local pool, and the time of other commands.

Starts a server and a worker of its own (`trainyard up`), submits a convnet on generated glyphs again and again, and takes the
time between starting the command and the first point of train.loss, both by this machine's clock.
usage: bench_submit.py --bin DIR [--runs 15]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

SPEC = """name: first-step
model: {convnet: {channels: [32, 64]}}
data: {dataset: glyphs, train_size: %d, test_size: 200}
train: {steps: 20, global_batch: 64}
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
devices: %d
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    cli = os.path.join(args.bin, "trainyard")
    with tempfile.TemporaryDirectory() as state:
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{state}/server/server.sock", HOME=state)

        def run(*words):
            return subprocess.run([cli, *words], env=env, check=True, capture_output=True, text=True).stdout

        run("up", "--detach", "--state_dir", state, "--cpu_devices", "2", "--threads_per_device", "1")
        try:
            print(f"{'':44} {'p50 ms':>8} {'max ms':>8}")
            for devices, size in ((1, 2000), (1, 20000), (2, 20000)):
                spec = os.path.join(state, "spec.yaml")
                with open(spec, "w") as file:
                    file.write(SPEC % (size, devices))
                times = []
                for _ in range(args.runs):
                    begin = time.time()
                    job = run("submit", spec, "-o", "name").strip()
                    run("wait", job)
                    series = json.loads(run("metrics", job, "--metric", "train.loss", "-o", "json"))
                    first = series[0]["points"][0]["time"]
                    stamp = time.strptime(first.split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")
                    fraction = float("0." + (first.rstrip("Z").split(".") + ["0"])[1])
                    times.append((time.mktime(stamp) - time.timezone + fraction - begin) * 1e3)
                label = f"submit to first step, {devices} device(s), {size} samples"
                print(f"{label:44} {statistics.median(times):8.0f} {max(times):8.0f}")
            for words in (("ls",), ("show", "last"), ("version",), ("--help",)):
                times = []
                for _ in range(args.runs):
                    begin = time.monotonic()
                    run(*words)
                    times.append((time.monotonic() - begin) * 1e3)
                label = "trainyard " + " ".join(words)
                print(f"{label:44} {statistics.median(times):8.0f} {max(times):8.0f}")
        finally:
            subprocess.run([cli, "down", "--state_dir", state, "--cancel"], env=env, capture_output=True)


if __name__ == "__main__":
    main()
