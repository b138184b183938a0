#!/usr/bin/env python3
"""Exchanges weights of a model with the library from which it has its names, and compares logits.

usage: check_zoo.py LIBRARY MODEL DIR

DIR holds ours.safetensors, a checkpoint of Trainyard's, and probe.safetensors with an `input` [N, C, H, W] and the
`logits` [N, classes] that Trainyard computed for it. The library's model loads ours.safetensors with strict=True and
must give the same logits. Then the model, with other random weights and statistics, writes its state_dict to
theirs.safetensors and its own logits to answer.safetensors, for Trainyard to do the same.
Exits with 77 where the library is not installed, with 1 where logits differ by more than 1e-4 of what they vary
by between two samples.
"""
import json
import struct
import sys

DTYPES = {"F32": "float32", "I64": "int64"}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__", {}).get("format") == "pt", "metadata must say format: pt"
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(data[begin:end], dtype=getattr(torch, DTYPES[entry["dtype"]]))
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    """The format by hand: 8 bytes of length, a JSON header, the bytes of the tensors one after the other."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    parts = []
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        dtype = next(key for key, value in DTYPES.items() if tensor.dtype == getattr(torch, value))
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def torchvision_model(name, classes, state):
    import torchvision

    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    model = getattr(torchvision.models, name)(num_classes=classes, **options)
    if name.startswith("vgg"):
        # Images of other sizes than 224 x 224 leave the classifier a different number of features; PyTorch's users
        # who train on them do this.
        model.avgpool = torch.nn.Identity()
        model.classifier[0] = torch.nn.Linear(state["classifier.0.weight"].shape[1], 4096)
    return model


def timm_model(name, classes, state):
    import timm

    return timm.create_model(name, num_classes=classes)


def randomize(model):
    """Draws weights with which the outputs of layers keep their size, however deep the layers are."""
    torch.manual_seed(7)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
                torch.nn.init.kaiming_normal_(module.weight)
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.1, 0.1)
                module.running_mean.uniform_(-0.1, 0.1)
                module.running_var.uniform_(0.5, 1.5)


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    library, name, folder = sys.argv[1:]
    state = read_safetensors(f"{folder}/ours.safetensors")
    probe = read_safetensors(f"{folder}/probe.safetensors")
    classes = probe["logits"].shape[1]
    model = {"torchvision": torchvision_model, "timm": timm_model}[library](name, classes, state)
    randomize(model)
    theirs = {key: value.clone() for key, value in model.state_dict().items()}
    model.eval()
    with torch.no_grad():
        answer = model(probe["input"])
        model.load_state_dict(state, strict=True)
        expected = model(probe["input"])
    write_safetensors(f"{folder}/theirs.safetensors", theirs)
    write_safetensors(f"{folder}/answer.safetensors", {"logits": answer})
    # The difference between two samples shows the effect of the layers, and not that of the last bias.
    size = min((logits[0] - logits[1]).abs().max().item() for logits in (expected, answer))
    error = (expected - probe["logits"]).abs().max().item()
    print(f"{library} {name}: logits of two samples differ by {size:.4g}, ours from theirs by {error:.3g}")
    return 0 if error <= 1e-4 * size else 1


if __name__ == "__main__":
    try:
        import torch

        sys.exit(main())
    except ModuleNotFoundError as missing:
        print(f"{missing}; scripts/install_deps.sh --peers installs what Debian has")
        sys.exit(77)
