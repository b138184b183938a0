#!/usr/bin/env python3
"""Measures how much of a job's time is useful while its rank is killed again and again.

    bench_goodput.py --bin build/release/bin [--minutes 15] [--every 180]

A real server and a real worker run one job with `checkpoint.every: auto`, as users would. Each `--every` seconds the
rank is killed (SIGKILL). Time is lost to the steps that the next attempt repeats, to the restart, and to the training
that waited for checkpoints; the rest was useful. What a failure costs by itself says what remains useful if failures
are rarer: the last line has it for one failure in three hours.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

SPEC = """
name: goodput
model: {convnet: {channels: [8, 16]}}
data: {dataset: glyphs, train_size: 20000, test_size: 500}
train: {epochs: 100000, global_batch: 64, seed: 1}
optimizer: {sgd: {lr: 0.001}}
checkpoint: {every: auto}
evaluate: {every: 1000 epochs}
"""
PATIENCE = 60
THREE_HOURS = 3 * 3600
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def read_json(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def seconds_of(text):
    """Returns the seconds of a duration such as 1m2.5s."""
    return sum(float(value) * UNITS[unit] for value, unit in re.findall(r"([0-9.]+)([a-z]+)", text))


class Yard:
    def __init__(self, binary_dir, folder):
        self.binary_dir, self.folder = binary_dir, folder
        self.address = f"unix:{folder}/server.sock"
        self.processes = []

    def start(self, name, *arguments):
        log = open(os.path.join(self.folder, name + ".log"), "ab")
        command = [os.path.join(self.binary_dir, "trainyard-" + name), "--state_dir", os.path.join(self.folder, name)]
        self.processes.append(subprocess.Popen([*command, *arguments], stdout=log, stderr=log))

    def cli(self, *arguments, ok=True):
        command = [os.path.join(self.binary_dir, "trainyard"), "--server", self.address, *arguments]
        return subprocess.run(command, check=ok, capture_output=True, text=True).stdout

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE)


def wait_for(condition, what):
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise SystemExit(f"gave up after {PATIENCE} s: {what}")


class Attempt:
    """One attempt, watched through its run directory."""

    def __init__(self, yard, number):
        self.path = os.path.join(yard.folder, "worker", "attempts", "1", str(number))
        self.begin = wait_for(self.step, f"attempt {number} trains")
        self.begin_time = time.monotonic()

    def step(self):
        return read_json(os.path.join(self.path, "ranks/0/progress.json")).get("step", 0)

    def resumed_from(self):
        found = re.search(r"step-(\d+)$", read_json(os.path.join(self.path, "assignment.json"))["resume_from"])
        return int(found.group(1)) if found else 0

    def kill(self):
        """Returns the step at which it died, the seconds of one of its steps, and what checkpoints cost it."""
        rank = read_json(os.path.join(self.path, "supervisor.json"))["ranks"][0]["pid"]
        os.kill(rank, signal.SIGKILL)
        died = time.monotonic()
        step = self.step()
        with open(os.path.join(self.path, "ranks/0/log")) as log:
            waits = [seconds_of(text) for text in re.findall(r"training_waited=(\S+)", log.read())]
        return died, step, (died - self.begin_time) / max(step - self.begin, 1), waits


def measure(yard, minutes, every):
    spec = os.path.join(yard.folder, "job.yaml")
    with open(spec, "w") as file:
        file.write(SPEC)
    yard.start("server", "--listen", yard.address)
    wait_for(lambda: os.path.exists(os.path.join(yard.folder, "server.sock")), "the server listens")
    yard.start("worker", "--server", yard.address, "--name", "alpha", "--cpu_devices", "1", "--threads_per_device", "1")
    yard.cli("submit", spec)
    begin = time.monotonic()
    lost = []
    waited = 0.0
    number = 1
    attempt = Attempt(yard, number)
    while time.monotonic() - begin < minutes * 60:
        time.sleep(every)
        died, step, step_seconds, waits = attempt.kill()
        waited += sum(waits)
        number += 1
        attempt = Attempt(yard, number)
        repeated = max(step - attempt.resumed_from(), 0) * step_seconds
        restart = attempt.begin_time - died
        lost.append((repeated, restart))
        print(f"kill {number - 1}: {len(waits)} checkpoints, {repeated:.1f} s of steps repeated, {restart:.1f} s until "
              f"the next attempt trained", flush=True)
    wall = time.monotonic() - begin
    yard.cli("cancel", "1")
    yard.cli("wait", "1", "--timeout", f"{PATIENCE}s", ok=False)
    return wall, lost, waited


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--every", type=float, default=180)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(options.bin, folder)
        try:
            wall, lost, waited = measure(yard, options.minutes, options.every)
        finally:
            yard.stop()
    per_failure = [repeated + restart for repeated, restart in lost]
    print(f"{len(lost)} kills in {wall / 60:.1f} min; a failure costs {statistics.mean(per_failure):.1f} s "
          f"(restart {statistics.mean(r for _, r in lost):.1f} s), checkpoints {waited / wall:.3%} of the time")
    print(f"useful time: {1 - (sum(per_failure) + waited) / wall:.3%}; with one failure in three hours "
          f"{1 - statistics.mean(per_failure) / THREE_HOURS - waited / wall:.3%}")


if __name__ == "__main__":
    main()
