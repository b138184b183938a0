#!/usr/bin/env python3
"""Data parallelism on this machine: samples/s of the convnet on 1 and 2 CPU ranks, alternating.

Each run is a real attempt: supervisor, trainers, Gloo, by a run directory and without a server. A third column runs two
independent one-rank jobs at once: what the machine gives two ranks that need not talk.
usage: bench_scaling.py --bin DIR [--batch 64] [--runs 5] [--steps 600]
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

WARM_UP_STEPS = 50


def write_run_dir(path, ranks, batch, steps, first_cpu=0):
    os.makedirs(path)
    assignment = {
        "format": 1, "job": 1, "attempt": 1, "fencing_token": 1, "world_size": ranks,
        "ranks": [{"rank": r, "local_rank": r, "device": f"cpu-{r}", "device_type": "cpu",
                   "cpus": [first_cpu + r], "threads": 1} for r in range(ranks)],
        "backend": "cpu", "interface": "lo", "dataset_dir": "", "resume_from": "",
        "spec": {
            "name": "scaling", "model": {"convnet": {"channels": [32, 64], "classes": 10, "input": [1, 28, 28]}},
            "data": {"dataset": "glyphs", "normalize": "NORMALIZE_DATASET", "train_size": 8000, "test_size": 100},
            "train": {"steps": steps, "global_batch": batch, "replicas": ranks, "seed": 1, "precision": "PRECISION_F32"},
            "optimizer": {"sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0}},
            "schedule": {"warmup_epochs": 0, "constant": {}},
            "checkpoint": {"every": {"steps": steps}, "keep": {"last": 1}},
            "evaluate": {"every": {"steps": steps}}}}
    with open(os.path.join(path, "assignment.json"), "w") as file:
        json.dump(assignment, file)


def start(binary_dir, path):
    return subprocess.Popen([os.path.join(binary_dir, "trainyard-supervisor"), "--run_dir", path],
                            stderr=subprocess.DEVNULL)


def samples_per_second(path, batch):
    """Between the end of the warm-up and the last step, from the times in metrics.jsonl."""
    times = {}
    with open(os.path.join(path, "ranks/0/metrics.jsonl")) as file:
        for line in file:
            point = json.loads(line)
            if point["name"] == "train.loss":
                times[point["step"]] = point["time"]
    first, last = WARM_UP_STEPS, max(times)
    return (last - first) * batch / ((times[last] - times[first]) / 1e6)


def measure(binary_dir, scratch, jobs, ranks, batch, steps):
    paths = [os.path.join(scratch, f"run-{i}") for i in range(jobs)]
    for i, path in enumerate(paths):
        shutil.rmtree(path, ignore_errors=True)
        write_run_dir(path, ranks, batch, steps, first_cpu=i * ranks)
    processes = [start(binary_dir, path) for path in paths]
    for process in processes:
        if process.wait(timeout=600) != 0:
            raise SystemExit(f"a run failed; see {scratch}")
    return sum(samples_per_second(path, batch) for path in paths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        print("skipped: needs two processors")
        return
    cases = {"1 rank": (1, 1), "2 ranks": (1, 2), "2 jobs of 1 rank": (2, 1)}
    speeds = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(args.runs):
            for name, (jobs, ranks) in cases.items():
                speeds[name].append(measure(args.bin, scratch, jobs, ranks, args.batch, args.steps))
    base = statistics.median(speeds["1 rank"])
    print(f"convnet 32/64, 1x28x28, global batch {args.batch}, one thread a rank, median of {args.runs}")
    print(f"{'':18} {'samples/s':>12} {'ratio':>7}")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(f"{name:18} {median:12,.0f} {median / base:6.2f}x")


if __name__ == "__main__":
    main()
