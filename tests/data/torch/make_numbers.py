#!/usr/bin/python3
"""Writes numbers that PyTorch computes for small networks, for tests/unit/worker/engine/backend/torch_numbers_test.cc.

    tests/data/torch/make_numbers.py group_norm

writes tests/data/torch/group_norm.json. Everything is computed in double precision, from numbers that
a seed draws, so the files are the same each time.
"""
import json
import pathlib
import sys
from collections import OrderedDict

import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent
ROWS = 3
torch.set_default_dtype(torch.float64)


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def network(layers, shape, classes=4):
    """One step of `layers` between an image and the loss: state, logits, loss and all gradients."""
    torch.manual_seed(1)
    model = nn.Sequential(layers)
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1)
    x = torch.empty(ROWS, *shape).uniform_(-1, 1).requires_grad_()
    labels = torch.arange(ROWS) % classes
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    return {
        "input": numbers(x),
        "labels": labels.tolist(),
        "state": {name: numbers(p) for name, p in model.named_parameters()},
        "logits": numbers(logits),
        "loss": float(loss),
        "input_gradient": numbers(x.grad),
        "gradients": {name: numbers(p.grad) for name, p in model.named_parameters()},
    }


def group_norm():
    return network(OrderedDict(norm=nn.GroupNorm(3, 6, eps=1e-3), flatten=nn.Flatten(),
                         fc=nn.Linear(6 * 4 * 5, 4)), (6, 4, 5))


def upsample():
    return network(OrderedDict(conv=nn.Conv2d(2, 3, 3, padding=1), larger=nn.Upsample(scale_factor=3),
                               flatten=nn.Flatten(), fc=nn.Linear(3 * 9 * 6, 4)), (2, 3, 2))


def adam():
    """Updates one parameter by gradients that are given, not computed."""
    torch.manual_seed(1)
    weight = torch.empty(8).uniform_(-1, 1).requires_grad_()
    start = numbers(weight)
    optimizer = torch.optim.Adam([weight], lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)
    steps = []
    for _ in range(10):
        weight.grad = torch.empty(8).uniform_(-1, 1)
        gradient = numbers(weight.grad)
        optimizer.step()
        steps.append({"gradient": gradient, "weight": numbers(weight)})
    return {"start": start, "steps": steps}


CASES = {"group_norm": group_norm, "upsample": upsample, "adam": adam}

if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        path = FOLDER / f"{case}.json"
        path.write_text(json.dumps(CASES[case](), indent=None, separators=(",", ":")) + "\n")
