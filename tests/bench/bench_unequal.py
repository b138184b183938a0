#!/usr/bin/env python3
"""One batch over two unequal devices: a processor of its own, and one that is shared with busy programs, so that it has a
half, a third, ... of its time. Ranks that host replicas by measured speed against an even split, and against the sum of
what each device does by itself beside the same programs.

Each run is a real attempt: supervisor and trainers by a run directory, without a server.
usage: bench_unequal.py --bin DIR [--model wrn-10-2|convnet] [--busy 1,2] [--rounds 3] [--reproducibility statistical|bitwise]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import run_dirs

# Name: model, steps, those of them before the measured ones. Steps of the convnet are about as long as the slices in which
# a shared processor is given out, those of wrn-10-2 ten times as long.
MODELS = {"wrn-10-2": ({"wide_resnet": {"depth": 10, "width": 2, "classes": 10, "input": [1, 28, 28]}}, 130, 50),
          "convnet": ({"convnet": {"channels": [32, 64], "classes": 10, "input": [1, 28, 28]}}, 400, 100)}
DATA = {"dataset": "glyphs", "train_size": 20000, "test_size": 100}
BATCH = 128
BUSY = "import os\nos.sched_setaffinity(0, {1})\nwhile True: pass"


class BusyPrograms:
    """Share processor 1."""

    def __init__(self, count):
        self.processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def run(args, scratch, cpus, replicas):
    path = os.path.join(scratch, "run")
    model, steps, warm_up = MODELS[args.model]
    train = {"reproducibility": f"REPRODUCIBILITY_{args.reproducibility.upper()}"}
    run_dirs.write_run_dir(path, run_dirs.spec_of(model, DATA, BATCH, steps, replicas, **train), cpus)
    run_dirs.finish(run_dirs.start(args.bin, path), path)
    # The time of the whole stretch is measured, because a shared processor gives its time in slices.
    points = [(step, time) for step, _, time in run_dirs.series(path, "train.loss") if step >= warm_up]
    speed = (points[-1][0] - points[0][0]) * BATCH / (points[-1][1] - points[0][1])
    with open(os.path.join(path, "ranks/0/progress.json")) as file:
        hosting = [h["replicas"] for h in json.load(file).get("hosting", [])]
    return speed, hosting


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--busy", default="1,2", help="how many busy programs share processor 1, one table row each")
    parser.add_argument("--model", default="wrn-10-2", choices=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reproducibility", default="statistical", choices=["statistical", "bitwise"])
    args = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        print("skipped: needs two processors")
        return
    print(f"{args.model}, 1x28x28, global batch {BATCH}, {args.reproducibility}, one thread a device, samples/s, middle of "
          f"{args.rounds}")
    print(f"{'busy programs':>13} {'solo 0':>8} {'solo 1':>8} {'sum':>8} {'even':>8} {'':>6} {'by speed':>9} {'':>6}  replicas")
    with tempfile.TemporaryDirectory() as scratch:
        for busy in map(int, args.busy.split(",")):
            with BusyPrograms(busy):
                cases = {"0": ([[0]], 32), "1": ([[1]], 32), "even": ([[0], [1]], 2), "speed": ([[0], [1]], 32)}
                speeds = {name: [] for name in cases}
                for _ in range(args.rounds):
                    for name, (cpus, replicas) in cases.items():
                        speed, hosting = run(args, scratch, cpus, replicas)
                        speeds[name].append(speed)
            solo0, solo1, even, by_speed = (statistics.median(speeds[name]) for name in cases)
            total = solo0 + solo1
            print(f"{busy:13} {solo0:8,.0f} {solo1:8,.0f} {total:8,.0f} {even:8,.0f} {even / total:6.1%} "
                  f"{by_speed:9,.0f} {by_speed / total:6.1%}  {hosting}", flush=True)


if __name__ == "__main__":
    main()
