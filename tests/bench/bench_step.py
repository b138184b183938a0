#!/usr/bin/env python3
"""One training step of the cpu backend beside PyTorch, on this machine, alternating.

With one thread, times are CPU time of the process: on an idle machine the same as wall time, and not spoiled by what
else runs. With more they are wall time. PyTorch runs with OpenBLAS where it is installed, in its default layout and
with channels_last, each with the allocator as it comes and with one that keeps memory (no page faults in each step).
The table gives the median over the runs, our speed over PyTorch's best, and the share of our time that convolutions
and matrix products alone take. Without PyTorch it prints our times alone.
usage: bench_step.py --bin DIR [--nets convnet,resnet20,wrn-16-4,googlenet] [--batch 64] [--threads 1] [--runs 7]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WARMUP = 3
KEPT_MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:"
                                 "glibc.malloc.top_pad=268435456"}
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-{}"
VARIANTS = [("torch", False, {}), ("channels_last", True, {}),
            ("kept memory", False, KEPT_MEMORY), ("channels_last, kept", True, KEPT_MEMORY)]


def peak_memory():
    """Of this process so far, in MiB. (ru_maxrss would count its parent's.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def openblas(threads):
    """The folder of the OpenBLAS that suits so many threads; None where there is none."""
    folder = OPENBLAS.format("pthread" if threads == 1 else "openmp")
    return folder if os.path.exists(os.path.join(folder, "libblas.so.3")) else None


def serve_torch(net, batch, steps, threads, channels_last):
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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
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
    def __init__(self, net, batch, steps, threads, channels_last, environment):
        command = [sys.executable, os.path.abspath(__file__), "--serve",
                   json.dumps([net, batch, steps, threads, channels_last])]
        environment = {**os.environ, **environment, "OMP_NUM_THREADS": str(threads)}
        if openblas(threads):
            environment["LD_LIBRARY_PATH"] = openblas(threads)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.process.stdout.readline()

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return [float(number) for number in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_ours(binary_dir, net, batch, steps, threads):
    """ms a step, MiB at the peak, ms of products a step."""
    output = subprocess.run([os.path.join(binary_dir, "bench_step"), "--net", net, "--batch", str(batch), "--warmup",
                             str(WARMUP), "--threads", str(threads), "--steps", str(steps), "--products"], check=True,
                            capture_output=True, text=True).stdout
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
    arguments = parser.parse_args()
    try:
        import torch
        variants = VARIANTS
        print(f"PyTorch {torch.__version__}, {arguments.threads} threads, batch {arguments.batch}, median of "
              f"{arguments.runs}: ms of {'CPU' if arguments.threads == 1 else 'wall'} time a step; MiB that the "
              f"training adds to the process at its peak; BLAS: {openblas(arguments.threads) or 'as it comes'}")
    except ImportError:
        variants = []
        print("PyTorch is not installed: our times alone, ms a step")
    header = f"{'net':<12}{'ours':>10}" + "".join(f"{name:>21}" for name, _, _ in variants)
    print(header + (f"{'best / ours':>13}" if variants else "") + f"{'samples/s':>11}{'MiB':>8}" +
          (f"{'torch MiB':>11}" if variants else "") + f"{'products':>10}")
    for net in arguments.nets.split(","):
        batch, threads = arguments.batch, arguments.threads
        steps = arguments.steps or max(1, int(1000 / measure_ours(arguments.bin, net, batch, 1, threads)[0]))
        peers = [Torch(net, batch, steps, threads, last, environment) for _, last, environment in variants]
        ours, theirs = [], [[] for _ in peers]
        for _ in range(arguments.runs):
            ours.append(measure_ours(arguments.bin, net, batch, steps, threads))
            for peer, measured in zip(peers, theirs):
                measured.append(peer.measure())
        for peer in peers:
            peer.close()
        mine, memory, products = (statistics.median(column) for column in zip(*ours))
        medians = [statistics.median(time for time, _ in measured) for measured in theirs]
        line = f"{net:<12}{mine:>10.3f}" + "".join(f"{median:>21.3f}" for median in medians)
        line += f"{min(medians) / mine:>12.2f}x" if medians else ""
        line += f"{batch / mine * 1e3:>11.0f}{memory:>8.0f}"
        line += f"{min(measured[-1][1] for measured in theirs):>11.0f}" if theirs else ""
        print(f"{line}{100 * products / mine:>8.0f} %", flush=True)


if __name__ == "__main__":
    main()
