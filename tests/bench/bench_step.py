#!/usr/bin/env python3
"""One training step of the cpu backend beside PyTorch, on this machine, alternating.

With one thread, times are CPU time of the process: on an idle machine the same as wall time, and not spoiled by what
else runs. With more they are wall time. PyTorch runs with OpenBLAS where it is installed, in its default layout and
with channels_last, each with the allocator as it comes and with one that keeps memory (mmap_max=0: no page faults in each step).
The table gives the median over the runs, our speed over PyTorch's best, and the share of our time that convolutions
and matrix products alone take. Without PyTorch it prints our times alone. With --precision bf16 ours run in f32 and in
bf16, and PyTorch in f32, under autocast, and with the whole model in bfloat16 (its weights and updates too, which
ours are not); the other columns are then about bf16.
usage: bench_step.py --bin DIR [--nets convnet,resnet20,wrn-16-4,googlenet] [--batch 64] [--threads 1] [--runs 7]
                     [--precision f32|bf16]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from torch_env import KEPT_MEMORY, environment, openblas

WARMUP = 3
# Name, channels_last, environment, precision.
VARIANTS = [("torch", False, {}, "f32"), ("channels_last", True, {}, "f32"),
            ("kept memory", False, KEPT_MEMORY, "f32"), ("channels_last, kept", True, KEPT_MEMORY, "f32")]
BF16_VARIANTS = [("f32, kept", False, KEPT_MEMORY, "f32"), ("f32, last, kept", True, KEPT_MEMORY, "f32"),
                 ("autocast", False, KEPT_MEMORY, "autocast"), ("autocast, last", True, KEPT_MEMORY, "autocast"),
                 ("bfloat16", False, KEPT_MEMORY, "bfloat16"), ("bfloat16, last", True, KEPT_MEMORY, "bfloat16")]


def peak_memory():
    """Returns the peak of this process so far, in MiB. (ru_maxrss would count its parent's.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def serve_torch(net, batch, steps, threads, channels_last, precision):
    """Measures once for each line on stdin: prints ms a step, and the peak of the memory in MiB."""
    import torch
    import torch_nets
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = torch_nets.build(net)
    shape, classes = torch_nets.SHAPES[net]
    x, y = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))
    before = peak_memory()
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if precision == "bfloat16":
        model, x = model.bfloat16(), x.bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            logits = model(x)
        torch.nn.functional.cross_entropy(logits.float(), y).backward()
        optimizer.step()

    for _ in range(WARMUP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        clock = time.process_time if threads == 1 else time.perf_counter
        start = clock()
        for _ in range(steps):
            step()
        print((clock() - start) / steps * 1e3, peak_memory() - before, flush=True)


class Torch:
    def __init__(self, net, batch, steps, threads, channels_last, extra, precision):
        command = [sys.executable, os.path.abspath(__file__), "--serve",
                   json.dumps([net, batch, steps, threads, channels_last, precision])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment(threads, extra))
        self.process.stdout.readline()

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return [float(number) for number in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_ours(binary_dir, net, batch, steps, threads, precision):
    """ms a step, MiB at the peak, ms of products a step."""
    output = subprocess.run([os.path.join(binary_dir, "bench_step"), "--net", net, "--batch", str(batch), "--warmup",
                             str(WARMUP), "--threads", str(threads), "--steps", str(steps), "--products",
                             "--precision", precision], check=True, capture_output=True, text=True).stdout
    fields = output.split(": ")[1].split()
    return [float(fields[0 if threads == 1 else 3]), float(fields[fields.index("MiB") - 1]), float(fields[-2])]


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve_torch(*json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--nets", default="convnet,convnet_bn,mlp,resnet20")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=0, help="of a run; 0: about a second's worth")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    arguments = parser.parse_args()
    is_bf16 = arguments.precision == "bf16"
    try:
        import torch
        variants = BF16_VARIANTS if is_bf16 else VARIANTS
        print(f"PyTorch {torch.__version__}, {arguments.threads} threads, batch {arguments.batch}, median of "
              f"{arguments.runs}: ms of {'CPU' if arguments.threads == 1 else 'wall'} time a step; MiB that the "
              f"training adds to the process at its peak; BLAS: {openblas(arguments.threads) or 'as it comes'}")
    except ImportError:
        variants = []
        print("PyTorch is not installed: our times alone, ms a step")
    header = f"{'net':<12}" + (f"{'f32':>10}{'bf16':>10}{'f32 / bf16':>12}" if is_bf16 else f"{'ours':>10}")
    header += "".join(f"{variant[0]:>21}" for variant in variants)
    print(header + (f"{'best / ours':>13}" if variants else "") + f"{'samples/s':>11}{'MiB':>8}" +
          (f"{'torch MiB':>11}" if variants else "") + f"{'products':>10}")
    for net in arguments.nets.split(","):
        measure(arguments, net, variants, ["f32", "bf16"] if is_bf16 else ["f32"])


def measure(arguments, net, variants, precisions):
    """Prints a line: ours in each precision and the peers, one after the other in each run."""
    batch, threads = arguments.batch, arguments.threads
    steps = arguments.steps or max(1, int(1000 / measure_ours(arguments.bin, net, batch, 1, threads, "f32")[0]))
    peers = [Torch(net, batch, steps, threads, *variant[1:]) for variant in variants]
    ours, theirs = [[] for _ in precisions], [[] for _ in peers]
    for _ in range(arguments.runs):
        for precision, measured in zip(precisions, ours):
            measured.append(measure_ours(arguments.bin, net, batch, steps, threads, precision))
        for peer, measured in zip(peers, theirs):
            measured.append(peer.measure())
    for peer in peers:
        peer.close()
    times = [statistics.median(time for time, _, _ in measured) for measured in ours]
    mine, memory, products = (statistics.median(column) for column in zip(*ours[-1]))
    medians = [statistics.median(time for time, _ in measured) for measured in theirs]
    line = f"{net:<12}" + "".join(f"{time:>10.3f}" for time in times)
    line += f"{times[0] / mine:>11.2f}x" if len(times) > 1 else ""
    line += "".join(f"{median:>21.3f}" for median in medians)
    line += f"{min(medians) / mine:>12.2f}x" if medians else ""
    line += f"{batch / mine * 1e3:>11.0f}{memory:>8.0f}"
    line += f"{min(measured[-1][1] for measured in theirs):>11.0f}" if theirs else ""
    print(f"{line}{100 * products / mine:>8.0f} %", flush=True)


if __name__ == "__main__":
    main()
