"""DistributedDataParallel over Gloo, one thread a process, for bench_ranks.py: prints {"samples_per_s"} as JSON.

usage: torch_ddp.py NET GLOBAL_BATCH STEPS PROCESSES [channels_last]
"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_nets

WARM_UP_STEPS = 4


def train(rank, processes, net, batch, steps, channels_last, rendezvous, result):
    os.sched_setaffinity(0, {rank})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch_nets.build(net).train()
    x, y = torch_nets.make_batch(net, batch // processes, "cpu")
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=processes)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    times = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.monotonic())
    if rank == 0:
        step_seconds = statistics.median(b - a for a, b in zip(times[WARM_UP_STEPS - 1:], times[WARM_UP_STEPS:]))
        with open(result, "w") as file:
            json.dump({"samples_per_s": batch / step_seconds}, file)
    if processes > 1:
        dist.destroy_process_group()


def main():
    net, batch, steps, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    channels_last = sys.argv[5:] == ["channels_last"]
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result")
        arguments = (processes, net, batch, steps, channels_last, os.path.join(folder, "rendezvous"), result)
        mp.spawn(train, arguments, nprocs=processes)
        with open(result) as file:
            print(file.read())


if __name__ == "__main__":
    main()
