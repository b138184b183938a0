#!/usr/bin/env python3
"""Opens a Trainyard checkpoint with plain PyTorch and compares logits.

usage: check_checkpoint.py MODEL.safetensors PROBE.safetensors

PROBE holds `input` [N, C, H, W] and the `logits` [N, classes] that our engine computed for it from MODEL; of
GPT-2 `input` [N, T], `logits` [N, T, vocabulary] and the number of `heads`. The networks are written here as a
PyTorch user would write them, GPT-2 with the modules of transformers; load_state_dict is strict, so names and
shapes must be exactly what PyTorch expects. Exits with 1 where the logits differ by more than 1e-4 of their size.
"""
import json
import struct
import sys

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__", {}).get("format") == "pt", "metadata must say format: pt"
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = bytearray(data[8 + length + begin : 8 + length + end])
        tensors[name] = torch.frombuffer(raw, dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"]).clone()
    return tensors


class Convnet(torch.nn.Module):
    def __init__(self, state, image):
        super().__init__()
        first, channels = state["conv1.weight"].shape[:2]
        second = state["conv2.weight"].shape[0]
        bias = "conv1.bias" in state
        self.conv1 = torch.nn.Conv2d(channels, first, 3, padding=1, bias=bias)
        self.conv2 = torch.nn.Conv2d(first, second, 3, padding=1, bias=bias)
        normed = "bn1.weight" in state
        self.bn1 = torch.nn.BatchNorm2d(first) if normed else torch.nn.Identity()
        self.bn2 = torch.nn.BatchNorm2d(second) if normed else torch.nn.Identity()
        self.fc = torch.nn.Linear(state["fc.weight"].shape[1], state["fc.weight"].shape[0])

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(torch.flatten(x, 1))


class Conv1D(torch.nn.Module):
    """The linear layer of transformers, whose weight has the shape [in, out]."""

    def __init__(self, features, inputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(inputs, features))
        self.bias = torch.nn.Parameter(torch.empty(features))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = torch.nn.LayerNorm(width)
        self.attn = torch.nn.Module()
        self.attn.c_attn = Conv1D(3 * width, width)
        self.attn.c_proj = Conv1D(width, width)
        self.ln_2 = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Module()
        self.mlp.c_fc = Conv1D(4 * width, width)
        self.mlp.c_proj = Conv1D(width, 4 * width)

    def attend(self, x):
        rows, length, width = x.shape
        parts = self.attn.c_attn(x).split(width, dim=2)
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=3)
        return self.attn.c_proj((weights @ value).transpose(1, 2).reshape(rows, length, width))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        hidden = torch.nn.functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.mlp.c_proj(hidden)


class Gpt2(torch.nn.Module):
    def __init__(self, state, heads):
        super().__init__()
        vocabulary, width = state["transformer.wte.weight"].shape
        layers = sum(name.endswith(".ln_1.weight") for name in state)
        self.transformer = torch.nn.Module()
        self.transformer.wte = torch.nn.Embedding(vocabulary, width)
        self.transformer.wpe = torch.nn.Embedding(state["transformer.wpe.weight"].shape[0], width)
        self.transformer.h = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.transformer.ln_f = torch.nn.LayerNorm(width)

    def forward(self, tokens):
        tokens = tokens.long()
        x = self.transformer.wte(tokens) + self.transformer.wpe(torch.arange(tokens.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.transformer.ln_f(x) @ self.transformer.wte.weight.T


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    state = read_safetensors(sys.argv[1])
    probe = read_safetensors(sys.argv[2])
    if "heads" in probe:
        model = Gpt2(state, int(probe["heads"].item()))
    else:
        model = Convnet(state, probe["input"].shape[1:])
    # PyTorch counts batches in a buffer that takes no part in evaluation.
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, f"PyTorch does not know {unexpected}"
    assert all(name.endswith("num_batches_tracked") for name in missing), f"missing {missing}"
    model.eval()
    with torch.no_grad():
        expected = model(probe["input"])
    size = expected.abs().max().item()
    error = (expected - probe["logits"]).abs().max().item()
    print(f"{tuple(expected.shape)} logits up to {size:.4g}, largest difference {error:.3g}")
    return 0 if error <= 1e-4 * max(size, 1.0) else 1


if __name__ == "__main__":
    sys.exit(main())
