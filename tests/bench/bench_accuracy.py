#!/usr/bin/env python3
"""Accuracy by epoch on CIFAR-10, ours beside PyTorch's with the same recipe, over several seeds.

The recipe: WRN-depth-width or another net, batch 128, SGD with Nesterov momentum 0.9, weight decay 5e-4, half a cosine
from lr 0.1 to 0, crops from 4 black pixels around, flips. Both read the same archive of JPEGs, normalised by the mean
and deviation of the training split. The table gives the mean over the seeds and the lowest and highest, by epoch.
Without PyTorch, or with --ours, it prints ours alone.
usage: bench_accuracy.py [--bin DIR] [--data DIR] [--net wrn-10-1] [--epochs 5] [--seeds 3] [--threads 1]
"""
import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile

BATCH, LR = 128, 0.1
SPECS = {"wrn-10-1": {"wide_resnet": {"depth": 10, "width": 1}}, "wrn-16-1": {"wide_resnet": {"depth": 16, "width": 1}},
         "resnet20": {"resnet": {"depth": 20, "stem": "STEM_CIFAR", "classes": 10, "input": [3, 32, 32]}}}


def train_ours(arguments, seed):
    spec = {"name": "bench-accuracy", "model": SPECS[arguments.net],
            "data": {"dataset": "cifar10", "augment": {"pad_crop": 4, "flip": True}},
            "train": {"epochs": arguments.epochs, "global_batch": BATCH, "replicas": 1, "seed": seed},
            "optimizer": {"sgd": {"lr": LR, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005}},
            "schedule": {"cosine": {}}, "checkpoint": {"every": {"epochs": arguments.epochs}},
            "evaluate": {"every": {"epochs": 1}}}
    with tempfile.TemporaryDirectory() as folder:
        rank = {"rank": 0, "local_rank": 0, "device": "cpu-0", "device_type": "cpu", "cpus": [],
                "threads": arguments.threads}
        with open(os.path.join(folder, "assignment.json"), "w") as file:
            json.dump({"format": 1, "job": 1, "attempt": 1, "fencing_token": 1, "world_size": 1, "ranks": [rank],
                       "backend": "cpu", "interface": "lo", "dataset_dir": arguments.data, "resume_from": "",
                       "spec": spec}, file)
        subprocess.run([os.path.join(arguments.bin, "trainyard-trainer"), "--run_dir", folder, "--rank", "0"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with open(os.path.join(folder, "ranks", "0", "metrics.jsonl")) as file:
            points = [json.loads(line) for line in file]
    return [point["value"] for point in points if point["name"] == "test.accuracy"]


def load_split(data, split):
    """Pixels [N, 3, 32, 32] in [0, 1] and labels [N] of the archive, in the order of the indices."""
    import torch
    from PIL import Image
    from torchvision.transforms.functional import pil_to_tensor
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    unpack = subprocess.run(["zstd", "-dc", os.path.join(data, "cifar10", "cifar10-images.tar.zst")], check=True,
                            stdout=subprocess.PIPE).stdout
    samples = []
    with tarfile.open(fileobj=io.BytesIO(unpack)) as archive:
        for member in archive:
            parts = member.name.split("/")[-3:]
            if member.isfile() and parts[0] == split:
                pixels = pil_to_tensor(Image.open(archive.extractfile(member)))
                samples.append((int(parts[2].split(".")[0]), names.index(parts[1]), pixels))
    samples.sort(key=lambda sample: sample[:2])
    return torch.stack([sample[2] for sample in samples]).float() / 255, torch.tensor([sample[1] for sample in samples])


def train_torch(arguments, seed, train, test):
    import torch
    import torch_nets
    torch.manual_seed(seed)
    pixels, labels = train
    mean, std = (f(pixels, dim=(0, 2, 3)).view(1, 3, 1, 1) for f in (torch.mean, torch.std))
    model = torch_nets.build(arguments.net)
    for layer in model.modules():  # as worker/engine/models does, and the papers' code
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = arguments.epochs * ((len(pixels) + BATCH - 1) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    padded = torch.nn.functional.pad(pixels, (4, 4, 4, 4))
    accuracies = []
    for _ in range(arguments.epochs):
        model.train()
        for rows in torch.randperm(len(pixels)).split(BATCH):
            at = torch.randint(0, 9, (len(rows), 2)).tolist()
            flips = (torch.rand(len(rows)) < 0.5).tolist()
            crops = [padded[row, :, y:y + 32, x:x + 32] for row, (y, x) in zip(rows.tolist(), at)]
            batch = torch.stack([crop.flip(2) if flip else crop for crop, flip in zip(crops, flips)])
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model((batch - mean) / std), labels[rows]).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum((model((x - mean) / std).argmax(1) == y).sum().item()
                        for x, y in zip(test[0].split(500), test[1].split(500)))
        accuracies.append(right / len(test[1]))
    return accuracies


def print_table(columns):
    """Takes `columns`: for each name, one list of accuracies for each seed."""
    print(f"{'epoch':>5}" + "".join(f"{name:>28}" for name in columns))
    for epoch in range(len(next(iter(columns.values()))[0])):
        line = f"{epoch + 1:>5}"
        for runs in columns.values():
            values = [100 * run[epoch] for run in runs]
            line += f"{statistics.mean(values):>12.2f} % ({min(values):.2f}-{max(values):.2f})"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--data", default=os.environ.get("TRAINYARD_DATA", "../shared/data"))
    parser.add_argument("--net", default="wrn-10-1", choices=sorted(SPECS))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ours", action="store_true", help="without PyTorch")
    arguments = parser.parse_args()
    arguments.data = os.path.abspath(arguments.data)
    if not os.path.exists(os.path.join(arguments.data, "cifar10", "cifar10-images.tar.zst")):
        sys.exit(f"skipped: no cifar10/cifar10-images.tar.zst in {arguments.data}")
    seeds = range(1, arguments.seeds + 1)
    columns = {"ours": [train_ours(arguments, seed) for seed in seeds]}
    try:
        import torch
        import torchvision  # noqa: F401
        if not arguments.ours:
            torch.set_num_threads(arguments.threads)
            train, test = (load_split(arguments.data, split) for split in ("train", "test"))
            columns[f"PyTorch {torch.__version__}"] = [train_torch(arguments, seed, train, test) for seed in seeds]
    except ImportError:
        print("PyTorch or torchvision is not installed: ours alone")
    print_table(columns)


if __name__ == "__main__":
    main()
