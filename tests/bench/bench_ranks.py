#!/usr/bin/env python3
"""Data parallelism on this machine: one rank, two ranks, two independent jobs of one rank (what two ranks that need not
talk get together: the ceiling), and PyTorch's DistributedDataParallel over Gloo, in turns, one thread a rank. PyTorch has its best settings
(torch_env.py), in its default layout and in channels_last where the input is images; the better one counts.

Each run of ours is a real attempt: supervisor and trainers by a run directory, without a server.
usage: bench_ranks.py --bin DIR [--nets mlp4m,convnet,...] [--data DIR] [--rounds 3]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import run_dirs
from torch_env import KEPT_MEMORY, environment

GLYPHS = {"dataset": "glyphs", "train_size": 20000, "test_size": 100}
# Model, data, global batch, steps of a run, name in torch_nets.
NETS = {
    "convnet": ({"convnet": {"channels": [32, 64], "classes": 10, "input": [1, 28, 28]}}, GLYPHS, 128, 150),
    "mlp4m": ({"mlp": {"input": [1, 28, 28], "hidden": [1600, 1600], "classes": 10}}, GLYPHS, 128, 150),
    "wrn-16-4": ({"wide_resnet": {"depth": 16, "width": 4, "classes": 10, "input": [3, 32, 32]}}, "cifar10", 128, 12),
    "googlenet": ({"googlenet": {"classes": 10, "input": [3, 32, 32], "stem": "STEM_CIFAR", "dropout": 0}}, "cifar10",
                  128, 8),
    "alexnet": ({"alexnet": {"classes": 1000, "input": [3, 224, 224]}}, "images", 128, 10),
}


def write_images(folder, count=256):
    """Small JPEGs of noise that the loader enlarges to 224 px: cheap to decode, so that the step is what is measured."""
    try:
        from PIL import Image
    except ImportError:
        return None
    import random
    for split in ("train", "val"):
        for label in range(2):
            place = os.path.join(folder, "noise", split, f"class{label}")
            os.makedirs(place)
            for index in range(count // 2 if split == "train" else 2):
                pixels = random.Random(index + label * count).randbytes(64 * 64 * 3)
                Image.frombytes("RGB", (64, 64), pixels).save(os.path.join(place, f"{index}.jpg"))
    return folder


def data_of(kind, args, scratch):
    """Returns (data spec, dataset_dir), or None if the data is missing."""
    if isinstance(kind, dict):
        return kind, ""
    if kind == "cifar10":
        return ({"dataset": "cifar10"}, args.data) if os.path.isdir(os.path.join(args.data, "cifar10")) else None
    folder = os.path.join(scratch, "images")
    if not os.path.isdir(folder) and write_images(folder) is None:
        return None
    return {"dataset": "images", "path": "noise", "image_size": 224, "resize": 224}, folder


def run_ours(args, scratch, net, data, jobs, ranks, **train):
    model, _, batch, steps = NETS[net]
    spec, dataset_dir = data
    paths = [os.path.join(scratch, f"run-{i}") for i in range(jobs)]
    for i, path in enumerate(paths):
        run_dirs.write_run_dir(path, run_dirs.spec_of(model, spec, batch, steps, **{"replicas": ranks, **train}),
                               [[i * ranks + r] for r in range(ranks)], dataset_dir)
    processes = [run_dirs.start(args.bin, path) for path in paths]
    for process, path in zip(processes, paths):
        run_dirs.finish(process, path)
    return sum(run_dirs.samples_per_second(path, batch) for path in paths), paths[0]


def run_torch(net, batch, steps, ranks):
    """Returns samples per second in the faster of both layouts, or None if PyTorch is not installed."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_ddp.py")
    speeds = []
    for layout in [[]] if "mlp" in NETS[net][0] else [[], ["channels_last"]]:
        done = subprocess.run(["/usr/bin/python3", script, net, str(batch), str(steps), str(ranks), *layout],
                              capture_output=True, text=True, timeout=900, env=environment(1, KEPT_MEMORY))
        if done.returncode != 0:
            return None
        speeds.append(json.loads(done.stdout)["samples_per_s"])
    return max(speeds)


def measure(net, args, scratch):
    data = data_of(NETS[net][1], args, scratch)
    if data is None:
        print(f"{net}: skipped, its data is not here")
        return
    _, _, batch, steps = NETS[net]
    cases = {
        "1 rank": lambda: run_ours(args, scratch, net, data, 1, 1),
        "2 jobs of 1 rank": lambda: run_ours(args, scratch, net, data, 2, 1),
        "2 ranks": lambda: run_ours(args, scratch, net, data, 1, 2),
        "2 ranks, sharded": lambda: run_ours(args, scratch, net, data, 1, 2, memory={"shard_optimizer": True}),
        "2 ranks, bitwise": lambda: run_ours(args, scratch, net, data, 1, 2,
                                             reproducibility="REPRODUCIBILITY_BITWISE"),
        "PyTorch, 1 process": lambda: (run_torch(net, batch, steps, 1), None),
        "PyTorch DDP, 2 processes": lambda: (run_torch(net, batch, steps, 2), None),
    }
    speeds = {name: [] for name in cases}
    comm = {}
    for _ in range(args.rounds):
        for name, run in cases.items():
            speed, path = run()
            if speed is not None:
                speeds[name].append(speed)
            if path is not None and name.startswith("2 ranks"):
                comm[name] = (run_dirs.mean(path, "comm.hidden_fraction"), run_dirs.mean(path, "comm.bytes"))
    middle = {name: statistics.median(values) for name, values in speeds.items() if values}
    print(f"\n{net}, global batch {batch}, middle of {args.rounds} rounds")
    print(f"{'':26} {'samples/s':>10} {'to 1':>7} {'of the ceiling':>15} {'hidden':>8} {'MB sent a step':>15}")
    for name, speed in middle.items():
        base = middle["PyTorch, 1 process" if name.startswith("PyTorch") else "1 rank"]
        ceiling = f"{speed / middle['2 jobs of 1 rank']:14.1%}" if name.startswith("2 ranks") else ""
        hidden, sent = comm.get(name, (None, None))
        extra = f" {hidden:8.1%} {sent / 1e6:15.2f}" if hidden is not None else ""
        print(f"{name:26} {speed:10,.1f} {speed / base:6.2f}x {ceiling:>15}{extra}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--data", default=os.environ.get("DATASETS", ""), help="folder that has cifar10/")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.data = os.path.abspath(args.data) if args.data else ""
    if (os.cpu_count() or 1) < 2:
        print("skipped: needs two processors")
        return
    unknown = [net for net in args.nets.split(",") if net not in NETS]
    if unknown:
        sys.exit(f"no net {', '.join(unknown)}; there are {', '.join(NETS)}")
    with tempfile.TemporaryDirectory() as scratch:
        for net in args.nets.split(","):
            measure(net, args, scratch)


if __name__ == "__main__":
    main()
