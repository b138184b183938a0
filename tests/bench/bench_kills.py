#!/usr/bin/env python3
"""Kills jobs at random moments, and checks that the result shows no trace of it.

    bench_kills.py --bin build/release/bin [--kills 100] [--stops 2] [--ranks 1,2,3,4] [--seed 1]

A bitwise job trains to its end on two ranks, undisturbed. Then again, while one of its ranks or its
supervisor, drawn at random, is killed at a random moment; each kill ends the attempt, and the next
one goes on from the newest checkpoint, in a run directory of its own, as the worker would have it,
on a number of ranks drawn from `--ranks`. A gang that comes to its end is followed by a further
one, until all kills are done. Weights, optimizer and losses of each must be those of the
undisturbed one, byte for byte. `--stops` are ranks that are stopped (SIGSTOP) rather than killed:
the supervisor must find them.
"""
import argparse
import collections
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time

import run_dirs

STEPS = 4000
# This is twice the number of ranks of the largest gang, so replicas can also be shared unevenly.
REPLICAS = 8
PLAIN_RANKS = 2
CHECKPOINT_STEPS = 25
# The time from the first step of an attempt to its kill.
SECONDS_MAX = 1.0
STUCK_SECONDS_MAX = 30
PATIENCE = 120


def spec():
    made = run_dirs.spec_of({"convnet": {"channels": [8, 16]}},
                            {"dataset": "glyphs", "train_size": 2000, "test_size": 200, "augment": {"pad_crop": "2"}},
                            batch=32, steps=STEPS, replicas=REPLICAS, optimizer={"adamw": {"lr": 0.002}},
                            reproducibility="REPRODUCIBILITY_BITWISE")
    made["checkpoint"] = {"every": {"steps": CHECKPOINT_STEPS}}
    return made


def read_json(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def losses(path):
    """Returns losses by step from a run directory whose rank may have died in the middle of a line."""
    found = {}
    try:
        with open(os.path.join(path, "ranks/0/metrics.jsonl")) as file:
            for line in file.read().split("\n")[:-1]:
                point = json.loads(line)
                if point["name"] == "train.loss":
                    found[point["step"]] = point["value"]
    except OSError:
        pass
    return found


def newest_checkpoint(path):
    folder = os.path.join(path, "checkpoints")
    names = [n for n in (os.listdir(folder) if os.path.isdir(folder) else [])
             if os.path.exists(os.path.join(folder, n, "MANIFEST")) and n[5:].isdigit()]
    return os.path.join(folder, max(names, key=lambda name: int(name[5:]))) if names else ""


def contents(path):
    """Returns the files with the state of the newest step, without the record of which rank computed it."""
    folder = newest_checkpoint(path)
    found = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    state = found["state.json"] = read_json(os.path.join(folder, "state.json"))
    for key in ("hosting", "device_types"):
        del state[key]
    del state["evaluation"]["ranks"]
    return found


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Gang:
    """One job: makes attempts one after the other until it has ended."""

    def __init__(self, folder, bin_dir, draw_ranks):
        self.folder, self.bin, self.draw_ranks = folder, bin_dir, draw_ranks
        self.ranks = 0
        self.attempts_by_ranks = collections.Counter()
        self.attempts = 0
        self.resume_from = ""
        self.losses = {}
        self.repeated = 0
        self.restarts = []

    def start(self):
        self.attempts += 1
        self.path = os.path.join(self.folder, str(self.attempts))
        self.ranks = self.draw_ranks()
        self.attempts_by_ranks[self.ranks] += 1
        cpus = [[r % os.cpu_count()] for r in range(self.ranks)]
        run_dirs.write_run_dir(self.path, spec(), cpus, resume_from=self.resume_from)
        self.process = run_dirs.start(self.bin, self.path)

    def await_step(self):
        """Returns true once the attempt trains, or false if it ends before."""
        begin = time.monotonic()
        while self.process.poll() is None:
            if read_json(os.path.join(self.path, "ranks/0/progress.json")).get("state") == "running":
                self.restarts.append(time.monotonic() - begin)
                return True
            if time.monotonic() - begin > PATIENCE:
                raise SystemExit(f"{self.path}: no step within {PATIENCE} s")
            time.sleep(0.005)
        return False

    def pids(self):
        record = read_json(os.path.join(self.path, "supervisor.json"))
        return [rank["pid"] for rank in record["ranks"]]

    def end(self):
        """Returns the outcome of the attempt."""
        self.process.wait(timeout=PATIENCE)
        # The ranks of a killed supervisor are killed by the system.
        for pid in self.pids():
            while runs(pid):
                time.sleep(0.005)
        for step, loss in losses(self.path).items():
            if self.losses.setdefault(step, loss) != loss:
                raise SystemExit(f"{self.path}: step {step} gave {loss} after {self.losses[step]}")
        newest = newest_checkpoint(self.path)
        if newest:
            self.resume_from = newest
        return read_json(os.path.join(self.path, "exit.json"))


class Struck:
    """The faults that gangs met, and how long it took until all processes of an attempt were gone."""

    def __init__(self, options):
        self.draws = random.Random(options.seed)
        self.ranks = [int(count) for count in options.ranks.split(",")]
        self.left = ["kill"] * options.kills + ["stop"] * options.stops
        self.draws.shuffle(self.left)
        self.count = collections.Counter()
        self.seconds = collections.defaultdict(list)

    def draw_ranks(self):
        return self.draws.choice(self.ranks)

    def strike(self, gang):
        """Kills at a random moment of an attempt that trains. Returns its outcome, or nothing if it had ended."""
        time.sleep(self.draws.uniform(0, SECONDS_MAX))
        victim = self.draws.randrange(gang.ranks + 1)
        if os.path.exists(os.path.join(gang.path, "exit.json")):
            return None
        stops = self.left.pop() == "stop"
        rank = victim % gang.ranks
        name = ("a rank is stopped" if stops else
                "the supervisor is killed" if victim == gang.ranks else "a rank is killed")
        begin = time.monotonic()
        try:
            if victim == gang.ranks and not stops:
                gang.process.kill()
            else:
                os.kill(gang.pids()[rank], signal.SIGSTOP if stops else signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself
        exit_record = gang.end()
        self.count[name] += 1
        if exit_record.get("outcome") == "succeeded":
            return exit_record
        self.seconds[name].append(time.monotonic() - begin)
        if stops and (exit_record.get("reason"), exit_record.get("failed_rank")) != ("RANK_STUCK", rank):
            raise SystemExit(f"the stopped rank {rank} was not found: {exit_record}")
        return exit_record

    def run_to_the_end(self, gang):
        while True:
            gang.start()
            exit_record = self.strike(gang) if gang.await_step() and self.left else None
            if exit_record is None:
                exit_record = gang.end()
                if exit_record.get("outcome") != "succeeded":
                    raise SystemExit(f"{gang.path}: {exit_record}")
            if exit_record.get("outcome") == "succeeded":
                return


def expect_no_trace(gang, plain, number):
    found, expected = contents(gang.path), contents(plain.path)
    for name, content in expected.items():
        if found[name] != content:
            raise SystemExit(f"gang {number}: {name} differs from that of the undisturbed gang")
    if gang.losses != plain.losses or len(gang.losses) != STEPS:
        raise SystemExit(f"gang {number}: another series of losses")


def report(struck, gangs, seconds):
    print(f"{'what happened':28} {'times':>6} {'until all were gone, middle':>28} {'longest':>9}")
    for name in sorted(struck.count):
        took = struck.seconds[name]
        times = f"{statistics.median(took):26.2f} s {max(took):7.2f} s" if took else ""
        print(f"{name:28} {struck.count[name]:6} {times}")
    restarts = [restart for gang in gangs for restart in gang.restarts[1:]]
    print(f"{sum(gang.attempts for gang in gangs)} attempts of {len(gangs)} gangs in {seconds:.0f} s"
          + (f"; from a start to its first step {statistics.median(restarts):.2f} s" if restarts else ""))
    by_ranks = sum((gang.attempts_by_ranks for gang in gangs), collections.Counter())
    print("attempts by ranks: " + ", ".join(f"{by_ranks[ranks]} on {ranks}" for ranks in sorted(by_ranks)))
    print("weights, optimizer, state and losses: byte for byte those of the undisturbed gang")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--ranks", default="1,2,3,4", help="how many an attempt may have")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    struck = Struck(options)
    with tempfile.TemporaryDirectory() as folder:
        plain = Gang(os.path.join(folder, "plain"), options.bin, lambda: PLAIN_RANKS)
        begin = time.monotonic()
        plain.start()
        if plain.end().get("outcome") != "succeeded":
            raise SystemExit(f"the undisturbed gang failed: {run_dirs.first_error(plain.path)}")
        print(f"bitwise, {REPLICAS} replicas, {STEPS} steps, a checkpoint every {CHECKPOINT_STEPS}; "
              f"undisturbed on {PLAIN_RANKS} ranks {time.monotonic() - begin:.1f} s", flush=True)
        begin = time.monotonic()
        gangs = []
        while struck.left:
            gangs.append(Gang(os.path.join(folder, str(len(gangs) + 1)), options.bin, struck.draw_ranks))
            struck.run_to_the_end(gangs[-1])
            expect_no_trace(gangs[-1], plain, len(gangs))
            print(f"gang {len(gangs)}: {gangs[-1].attempts} attempts, {len(struck.left)} kills left", flush=True)
        report(struck, gangs, time.monotonic() - begin)
    longest = max(struck.seconds["a rank is stopped"], default=0)
    if longest > STUCK_SECONDS_MAX:
        sys.exit(f"a stopped rank was found after {longest:.1f} s; expected {STUCK_SECONDS_MAX} s at most")


if __name__ == "__main__":
    main()
