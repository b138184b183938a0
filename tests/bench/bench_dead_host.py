#!/usr/bin/env python3
"""How long a job of a dead host waits until it runs on another one.

    bench_dead_host.py --bin build/release/bin [--keep 0s] [--runs 3]

Starts a server and two workers, kills the worker with the job, its supervisor and its ranks at
once, as a power cut does, and waits until the other worker's rank reports a step.
"""
import argparse
import json
import os
import signal
import subprocess
import tempfile
import time

SPEC = """
name: survivor
model: {mlp: {hidden: [8]}}
data: {dataset: glyphs, train_size: 640, test_size: 64}
train: {steps: 2000000000, global_batch: 64}
optimizer: {sgd: {lr: 0.01}}
on_disconnect: {keep: %s}
"""


def descendants(pid):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children") as children:
            found += [int(child) for child in children.read().split()]
    return [pid] + [below for child in found for below in descendants(child)]


class Pool:
    def __init__(self, bin_dir, folder, keep):
        self.bin = os.path.abspath(bin_dir)
        self.folder = folder
        self.address = f"unix:{folder}/s"
        self.server = self.start("trainyard-server", "--state_dir", f"{folder}/server", "--listen",
                                 self.address)
        self.workers = {name: self.start("trainyard-worker", "--server", self.address,
                                         "--state_dir", f"{folder}/{name}", "--name", name,
                                         "--cpu_devices", "1", "--share_cpus")
                        for name in ("host-a", "host-b")}
        self.spec = f"{folder}/spec.yaml"
        with open(self.spec, "w") as spec:
            spec.write(SPEC % keep)

    def start(self, program, *arguments):
        return subprocess.Popen([os.path.join(self.bin, program), *arguments],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def client(self, *arguments):
        done = subprocess.run([os.path.join(self.bin, "trainyard"), "--server", self.address,
                               *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"trainyard {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def job(self):
        return json.loads(self.client("show", "jobs/1", "-o", "json"))

    def runs_on(self):
        """Returns the worker on which a rank has done a step, or nothing."""
        job = self.job()
        if job.get("state") != "JOB_STATE_RUNNING" or not int(job.get("progress", {}).get("step", 0)):
            return None
        for worker in json.loads(self.client("workers", "ls", "-o", "json")):
            if worker["state"] == "WORKER_STATE_ACTIVE" and any(
                    device.get("attempt") for device in worker["devices"]):
                return worker["name"].split("/")[1]
        return None

    def await_host(self, other_than=None):
        while True:
            host = self.runs_on()
            if host is not None and host != other_than:
                return host
            time.sleep(0.1)

    def close(self):
        for process in [*self.workers.values(), self.server]:
            if process.poll() is None:
                for pid in descendants(process.pid):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        time.sleep(1)  # the ranks are no children of ours


def measure(arguments):
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(arguments.bin, folder, arguments.keep)
        try:
            time.sleep(2)
            pool.client("submit", pool.spec)
            host = pool.await_host()
            time.sleep(3)
            begin = time.monotonic()
            for pid in descendants(pool.workers[host].pid):
                os.kill(pid, signal.SIGKILL)
            pool.await_host(other_than=host)
            return time.monotonic() - begin
        finally:
            pool.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--keep", default="0s", help="the job's on_disconnect.keep")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for run in range(arguments.runs):
        print(f"run {run + 1}: keep {arguments.keep}, the job runs elsewhere after "
              f"{measure(arguments):.1f} s", flush=True)


if __name__ == "__main__":
    main()
