#!/usr/bin/env python3
"""The reference numbers of tests/data/reference, computed with PyTorch.

A case is a small net and an optimizer. Its file holds three batches, the values of the net before the first step, and
what three training steps give, computed in float64 and rounded to float32; tests/data/reference/README.md says what
each tensor is. Without flags the expected numbers are computed again from the batches and the first values in the
files, and compared with those there.
usage: reference_numbers.py [--write] [--folder tests/data/reference] [CASE ...]
  --write   writes the files of the cases. Batches and first values stay as they are where the file exists, and are
            drawn from a seed where it does not. So do the errors of numbers that have not changed: they depend on the
            machine.
"""
import argparse
import copy
import json
import os
import struct
import sys
import zlib

import numpy
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 3
DTYPES = {"F32": numpy.float32, "I64": numpy.int64}


class Block(nn.Module):
    """A post-activation residual block of two 3x3 convolutions."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.down = None
        if stride != 1:
            self.down = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(branch + (x if self.down is None else self.down(x)))


class Mlp(nn.Module):
    input_shape, classes, rows = (20,), 5, 6

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(20, 16), nn.Linear(16, 12), nn.Linear(12, 5)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(F.relu(self.fc1(x)))))


class Convnet(nn.Module):
    input_shape, classes, rows = (3, 12, 12), 10, 4

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.fc = nn.Linear(108, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


class Resnet(nn.Module):
    input_shape, classes, rows = (3, 12, 12), 10, 4

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.bn(self.conv(x)))).mean((2, 3)))


class Transformer(nn.Module):
    input_shape, classes, rows = (8,), 23, 3  # tokens: a class for each of them
    width, heads = 16, 4

    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(self.classes, self.width)
        self.pos = nn.Embedding(self.input_shape[0], self.width)
        self.ln1, self.ln2, self.lnf = nn.LayerNorm(self.width), nn.LayerNorm(self.width), nn.LayerNorm(self.width)
        self.qkv, self.proj = nn.Linear(self.width, 3 * self.width), nn.Linear(self.width, self.width)
        self.fc1, self.fc2 = nn.Linear(self.width, 4 * self.width), nn.Linear(4 * self.width, self.width)
        self.head = nn.Linear(self.width, self.classes, bias=False)

    def forward(self, tokens):
        rows, length = tokens.shape
        x = self.tok(tokens) + self.pos(torch.arange(length))
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.ln1(x)).split(self.width, 2))
        scores = q @ k.transpose(2, 3) / (self.width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(3) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(rows, length, self.width))
        x = x + self.fc2(F.gelu(self.fc1(self.ln2(x))))
        return self.head(self.lnf(x)).flatten(0, 1)


def nesterov(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)


def heavy_ball(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)


# Name: the net, the optimizer, and into how many ranks each batch is split, whose gradients are averaged.
CASES = {
    "mlp": (Mlp, nesterov, 1),
    "mlp_sgd_heavyball": (Mlp, heavy_ball, 1),
    "mlp_adamw": (Mlp, adamw, 1),
    "convnet": (Convnet, nesterov, 1),
    "convnet_dp2": (Convnet, nesterov, 2),
    "resnet": (Resnet, nesterov, 1),
    "transformer": (Transformer, nesterov, 1),
}
# The names of an optimizer's state in PyTorch and here.
SLOTS = {"momentum_buffer": "mom3", "exp_avg": "m3", "exp_avg_sq": "v3"}


def draw(case):
    """The batches of a new case and its values before the first step."""
    build = CASES[case][0]
    seed = zlib.crc32(case.encode())
    torch.manual_seed(seed)
    random = numpy.random.RandomState(seed)
    net = build()
    is_tokens = isinstance(net, Transformer)
    tensors = {}
    for name, value in net.named_parameters():
        value = value.detach().numpy()
        # Scales and shifts of norms start away from 1 and 0, so that a mistake with them shows.
        if value.ndim == 1:
            value = value + random.uniform(-0.2, 0.2, value.shape)
        tensors["init." + name] = value.astype(numpy.float32)
    for name, value in net.named_buffers():
        if value.ndim == 1:
            tensors["initbuf." + name] = value.numpy() + random.uniform(0, 0.2, value.shape).astype(numpy.float32)
    for k in range(STEPS):
        shape = (build.rows, *build.input_shape)
        tensors[f"x.{k}"] = (random.randint(0, build.classes, shape).astype(numpy.int64) if is_tokens
                             else random.standard_normal(shape).astype(numpy.float32))
        tensors[f"y.{k}"] = random.randint(0, build.classes, shape if is_tokens else build.rows).flatten()
    return tensors


def run(case, given, dtype):
    """Returns the results of three steps, by name, with all arithmetic in `dtype`."""
    build, make_optimizer, ranks = CASES[case]
    net = build()
    values = {name.split(".", 1)[1]: torch.from_numpy(value.copy()) for name, value in given.items()
              if name.startswith("init")}
    missing, unexpected = net.load_state_dict(values, strict=False)
    assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), (missing, unexpected)
    net = net.to(dtype).train()
    optimizer = make_optimizer(net.parameters())
    results = {}
    for k in range(STEPS):
        x, y = torch.from_numpy(given[f"x.{k}"]), torch.from_numpy(given[f"y.{k}"])
        x = (x.to(dtype) if x.is_floating_point() else x).requires_grad_(x.is_floating_point())
        optimizer.zero_grad(set_to_none=True)
        logits, losses = [], []
        for part, labels in zip(x.chunk(ranks), y.chunk(ranks)):
            logits.append(net(part))
            losses.append(F.cross_entropy(logits[-1], labels) / ranks)
        sum(losses).backward()
        results[f"out.{k}"] = torch.cat(logits)
        results[f"loss.{k}"] = sum(losses).reshape(1)
        if k == 0:
            if x.grad is not None and ranks == 1:
                results["gradx"] = x.grad
            results.update({"grad." + name: value.grad.clone() for name, value in net.named_parameters()})
        optimizer.step()
        if k in (0, STEPS - 1):
            results.update({f"after{k + 1}." + name: value.clone() for name, value in net.named_parameters()})
    for name, value in net.named_parameters():
        for theirs, ours in SLOTS.items():
            if theirs in optimizer.state[value]:
                results[f"{ours}.{name}"] = optimizer.state[value][theirs]
    results.update({"afterbuf3." + name: value for name, value in net.named_buffers() if value.ndim == 1})
    if ranks == 1:
        net.eval()
        x, y = torch.from_numpy(given["x.0"]), torch.from_numpy(given["y.0"])
        results["eval.out"] = net(x.to(dtype) if x.is_floating_point() else x)
        results["eval.loss"] = F.cross_entropy(results["eval.out"], y).reshape(1)
    return {name: value.detach().to(torch.float64).numpy() for name, value in results.items()}


def compute(case, given):
    """Returns the expected tensors and, for each, the largest error of a float32 run and the largest absolute value."""
    exact, rounded = run(case, given, torch.float64), run(case, given, torch.float32)
    errors = {name: [float(f"{numpy.abs(rounded[name] - value).max():.3g}"), float(f"{numpy.abs(value).max():.3g}")]
              for name, value in exact.items()}
    return {name: value.astype(numpy.float32) for name, value in exact.items()}, errors


def read(path):
    """The tensors and the metadata of a file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__")
    return {name: numpy.frombuffer(data[slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}, metadata


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, value in tensors.items():
        dtype = next(name for name, dtype in DTYPES.items() if dtype == value.dtype)
        block = numpy.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def is_given(name):
    return name.split(".")[0] in ("x", "y", "init", "initbuf")


def differences(stored, metadata, expected):
    """Returns the mistakes in a file, as lines. Differences in the last place are the machine's, and are no mistake."""
    errors = json.loads(metadata["f32_error"])
    names = {name for name in stored if not is_given(name)}
    lines = [f"{name}: only in the file" for name in names - expected.keys()]
    lines += [f"{name}: not in the file" for name in expected.keys() - names]
    for name in sorted(names & expected.keys()):
        bound = numpy.spacing(numpy.abs(expected[name])) + errors[name][0] * 1e-3
        difference = numpy.abs(stored[name].astype(numpy.float64) - expected[name])
        if (difference > bound).any():
            lines.append(f"{name}: differs by up to {difference.max():.3g}, where {bound.min():.3g} is rounding")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/reference")
    parser.add_argument("--folder", default=os.path.normpath(root))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    has_failed = False
    for case in arguments.cases or CASES:
        path = os.path.join(arguments.folder, case + ".safetensors")
        stored, metadata = read(path) if os.path.exists(path) else (draw(case), {})
        given = {name: value for name, value in stored.items() if is_given(name)}
        expected, errors = compute(case, copy.deepcopy(given))
        if arguments.write:
            before = json.loads(metadata.get("f32_error", "{}"))
            errors.update({name: before[name] for name, value in expected.items()
                           if name in before and numpy.array_equal(stored[name], value)})
            metadata = {"case": case, "torch": torch.__version__, "f32_error": json.dumps(errors)}
            write(path, {**given, **expected}, metadata)
            print(f"{case}: wrote {path}")
            continue
        wrong = differences(stored, metadata, expected) if metadata else ["there is no file; --write makes it"]
        has_failed |= bool(wrong)
        print(f"{case}: {len(expected)} tensors " + ("agree" if not wrong else "do not all agree"))
        for line in wrong:
            print("  " + line)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
