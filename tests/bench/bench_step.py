#!/usr/bin/env python3
"""One training step of the cpu backend beside PyTorch, on this machine, alternating, one thread each.

Times are CPU time of the process: on an idle machine the same as wall time, and not spoiled by what else runs.
PyTorch runs in its default layout and with channels_last, each with the allocator as it comes and with one that keeps
memory (no page faults in each step). The table gives the median over the runs, and our speed over PyTorch's best.
Without PyTorch it prints our times alone.
usage: bench_step.py --bin DIR [--nets convnet,convnet_bn,mlp] [--batch 64] [--runs 7] [--steps 50]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "2000000000",
               "MALLOC_TOP_PAD_": "500000000"}
VARIANTS = [("torch", False, {}), ("channels_last", True, {}),
            ("kept memory", False, KEPT_MEMORY), ("channels_last, kept", True, KEPT_MEMORY)]


def build_torch_net(net, torch):
    nn = torch.nn
    if net == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                             nn.Linear(64, 10))
    norm = net == "convnet_bn"
    layers = []
    for inputs, outputs in ((1, 32), (32, 64)):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not norm))
        layers += [nn.BatchNorm2d(outputs)] if norm else []
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 49, 10))


def serve_torch(net, batch, steps, channels_last):
    """Measures once for each line on stdin and prints ms of CPU time a step."""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = build_torch_net(net, torch)
    x, y = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(10):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        for _ in range(steps):
            step()
        print((time.process_time() - start) / steps * 1e3, flush=True)


class Torch:
    def __init__(self, net, batch, steps, channels_last, environment):
        command = [sys.executable, os.path.abspath(__file__), "--serve",
                   json.dumps([net, batch, steps, channels_last])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment, "OMP_NUM_THREADS": "1"})
        self.process.stdout.readline()

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_ours(binary_dir, net, batch, steps):
    output = subprocess.run([os.path.join(binary_dir, "bench_step"), "--net", net, "--batch", str(batch),
                             "--steps", str(steps)], check=True, capture_output=True, text=True).stdout
    return float(output.split(": ")[1].split(" ")[0])


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve_torch(*json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--nets", default="convnet,convnet_bn,mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    try:
        import torch
        variants = VARIANTS
        print(f"PyTorch {torch.__version__}, one thread, batch {arguments.batch}, median of {arguments.runs}, ms of CPU time a step")
    except ImportError:
        variants = []
        print("PyTorch is not installed: our times alone, ms of CPU time a step")
    header = f"{'net':<12}{'ours':>10}" + "".join(f"{name:>21}" for name, _, _ in variants)
    print(header + (f"{'best / ours':>13}{'samples/s':>11}" if variants else f"{'samples/s':>11}"))
    for net in arguments.nets.split(","):
        peers = [Torch(net, arguments.batch, arguments.steps, last, environment) for _, last, environment in variants]
        ours, theirs = [], [[] for _ in peers]
        for _ in range(arguments.runs):
            ours.append(measure_ours(arguments.bin, net, arguments.batch, arguments.steps))
            for peer, times in zip(peers, theirs):
                times.append(peer.measure())
        for peer in peers:
            peer.close()
        mine, medians = statistics.median(ours), [statistics.median(times) for times in theirs]
        line = f"{net:<12}{mine:>10.3f}" + "".join(f"{median:>21.3f}" for median in medians)
        rate = arguments.batch / mine * 1e3
        print(line + (f"{min(medians) / mine:>12.2f}x{rate:>11.0f}" if medians else f"{rate:>11.0f}"), flush=True)


if __name__ == "__main__":
    main()
