#!/usr/bin/env python3
"""What the service costs a training with PyTorch: the time of a step in a job of two ranks, beside bare torchrun.

Runs the same script of DistributedDataParallel over Gloo under both, by turns, with a metric at each step in the job. The
ratio of the medians of the pairs is what supervision, metrics and the server take; it goes both ways on a busy machine.
usage: bench_program_ddp.py --bin DIR [--pairs 5] [--steps 200]
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = "/usr/bin/python3"

SCRIPT = """
import os, statistics, sys, time
sys.path.insert(0, {client!r})
import torch, torch.distributed as dist
import trainyard
torch.set_num_threads(1)
os.sched_setaffinity(0, {{int(os.environ["LOCAL_RANK"]) % os.cpu_count()}})
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(),
    torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64 * 36, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
times = []
for step in range(1, {steps} + 1):
    begin = time.monotonic()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    trainyard.log(step, loss=loss.item())
    times.append(time.monotonic() - begin)
if dist.get_rank() == 0:
    print("step_ms", statistics.median(times[20:]) * 1e3, flush=True)
"""


def step_ms(words, env):
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    found = re.search(r"step_ms ([0-9.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return float(found.group(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    if subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
        raise SystemExit(f"{PYTHON} has no PyTorch")
    cli = os.path.join(args.bin, "trainyard")
    with tempfile.TemporaryDirectory() as state:
        script = os.path.join(state, "train.py")
        with open(script, "w") as file:
            file.write(SCRIPT.format(client=os.path.join(ROOT, "client", "python"), steps=args.steps))
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{state}/server/server.sock", HOME=state)
        subprocess.run([cli, "up", "--detach", "--state-dir", state, "--cpu-devices", "2", "--threads-per-device", "1"],
                       env=env, check=True, capture_output=True)
        # PyTorch 1.13 cannot start ranks with Python 3.11 unless it redirects their output.
        bare = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-r", "1", "-t", "1", script]
        job = [cli, "run", "-q", "--devices", "2", "--", PYTHON, script]
        try:
            pairs = []
            for _ in range(args.pairs):
                pairs.append((step_ms(bare, dict(env, OMP_NUM_THREADS="1")), step_ms(job, env)))
                print(f"torchrun {pairs[-1][0]:8.2f} ms a step   trainyard {pairs[-1][1]:8.2f} ms   "
                      f"ratio {pairs[-1][1] / pairs[-1][0]:.4f}", flush=True)
            print(f"median ratio {statistics.median(b / a for a, b in pairs):.4f}")
        finally:
            subprocess.run([cli, "down", "--state-dir", state], env=env, capture_output=True)


if __name__ == "__main__":
    main()
