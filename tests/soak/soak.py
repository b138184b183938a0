#!/usr/bin/env python3
"""Lives as a lab does, faster, and watches whether anything grows.

    soak.py --bin build/release/bin [--seconds 3600] [--seed 1] [--out DIR] [--docs docs]

A server and three workers take a mixed load that a seed draws: arrays, small trainings, gangs of two ranks on two workers,
clones, failures, cancellations, suspensions, drains, restarts of every daemon by TERM and by KILL, upgrades that replace
all programs and then restart the server and each worker, watchers and followers of logs that come and go, and deletions,
which keep the number of jobs where it is. Memory, descriptors, threads and disk of every daemon are sampled into
DIR/soak.csv. At the end a trend is fitted for each, and DIR/soak.svg shows the curves. It fails if anything grows by more
than its bound for 1,000 jobs, if a job fails that should not, if a daemon ends by itself, or if a process is left over.
--docs writes the picture and the table into the documentation.
"""
import argparse
import csv
import json
import math
import os
import random
import signal
import sys
import tempfile
import textwrap
import time

from lab import NATIVE, NOOP, PATIENCE_S, Lab, processes_of
from trend import MEASURES, Sample, draw, grows, trend, verdict

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from sections import replace_section

SAMPLE_EVERY_S = 3
# As many ended jobs stay; older ones are deleted.
JOBS_KEPT = 150
# The server has as many jobs at most that have not ended, so that the load fits any machine.
JOBS_OPEN = 60
FOLLOWERS = 6
ARRAY = 20
PAUSE_S = 0.05
# Between two upgrades every life can be long enough to show slow growth.
UPGRADES = 2

SPEC = """
name: {name}
model: {{convnet: {{channels: [8, 16]}}}}
data: {{{data}}}
train: {{epochs: {epochs}, global_batch: 50, seed: 3}}
optimizer: {{sgd: {{lr: 0.05}}}}
checkpoint: {{every: 20 steps, keep: {{last: 1}}}}
max_retries: 1
devices: {{count: {devices}, labels: {{kind: {kind}}}{more}}}
"""
FAILING = "failing"  # the name of the jobs that have to fail, and of their clones
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Driver:
    """Does one thing after the other, drawn by the seed."""

    def __init__(self, lab, seed, seconds):
        self.lab, self.random, self.seconds = lab, random.Random(seed), seconds
        self.jobs = {}  # the state of each job by number, as of the last list
        self.failures = {}  # by number: the jobs that failed, although nothing made them
        self.submitted = 0
        self.counts = {}
        self.refused = {}
        self.followers = []
        self.draining = {}  # worker -> when it is taken back
        self.next_restart = seconds / 12
        self.upgrades = 0
        self.next_upgrade = seconds / (UPGRADES + 1)
        self.to_upgrade = []  # the daemons that still run the replaced programs

    def count(self, what, code, err):
        self.counts[what] = self.counts.get(what, 0) + 1
        # 6 is a refusal because of the job's state, 3 a job that is gone: others act on the same jobs.
        if code not in (0, 3, 6):
            self.refused.setdefault(what, []).append(err.strip()[-300:])

    def do(self, what, *words):
        code, out, err = self.lab.client(*words)
        self.count(what, code, err)
        return out if code == 0 else ""

    def refresh(self):
        code, out, _ = self.lab.client("ls", "-a", "--expand", "--limit", "1000", "-o", "json")
        if code != 0:
            return
        self.jobs = {}
        for job in json.loads(out):
            number, state = int(job["name"].split("/")[1]), job["state"].removeprefix("JOB_STATE_")
            self.jobs[number] = state
            if state == "FAILED" and not job["spec"]["name"].startswith(FAILING):
                self.failures[number] = job["failure"]["message"]

    def pick(self, *states):
        chosen = [n for n, state in self.jobs.items() if state in states]
        return str(self.random.choice(chosen)) if chosen else None

    def submit(self, what, array=0, **fields):
        values = dict(name=what, data="dataset: glyphs, train_size: 1000, test_size: 100", epochs=1, devices=1, kind="native", more="")
        path = self.lab.path("spec.yaml")
        with open(path, "w") as file:
            file.write(SPEC.format(**{**values, **fields}))
        if self.do(what, "submit", path, "-o", "name", *(["--array", str(array)] if array else [])):
            self.submitted += max(array, 1)

    def submit_something(self):
        draw_ = self.random.random()
        if draw_ < 0.55:
            self.submit("array", array=ARRAY, kind="noop")
        elif draw_ < 0.65:
            self.submit("noop", kind="noop")
        elif draw_ < 0.80:
            self.submit("training", epochs=self.random.randint(1, 4))
        elif draw_ < 0.90:
            self.submit("gang", devices=2, more=", spread: true", epochs=2)
        elif draw_ < 0.95:
            self.submit(FAILING, data="dataset: mnist")  # no worker has it
        elif (job := self.pick(*ENDED)) is not None and self.do("clone", "clone", job, "--yes", "-o", "name"):
            self.submitted += 1

    def steer(self):
        verb = self.random.choice(["cancel", "suspend", "suspend", "resume", "resume", "resume"])
        states = ("SUSPENDED",) if verb == "resume" else ("QUEUED", "STARTING", "RUNNING")
        job = self.pick(*states)
        if job is not None:
            self.do(verb, verb, job)

    def clean_up(self):
        ended = sorted(n for n, state in self.jobs.items() if state in ENDED)
        if len(ended) > JOBS_KEPT:
            self.do("rm", "rm", "--yes", *map(str, ended[:len(ended) - JOBS_KEPT]))

    def come_and_go(self):
        self.followers = [f for f in self.followers if f.poll() is None]
        if len(self.followers) >= FOLLOWERS:
            leaving = self.followers.pop(self.random.randrange(len(self.followers)))
            leaving.send_signal(self.random.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGINT]))
            leaving.wait(timeout=PATIENCE_S)
        job = self.pick("RUNNING", "QUEUED", "SUCCEEDED")
        if job is not None:
            words = self.random.choice([["watch"], ["watch", job], ["logs", "-f", job]])
            self.followers.append(self.lab.follow(*words))
            self.count(words[0], 0, "")

    def drain(self, now):
        for worker, until in list(self.draining.items()):
            if now >= until:
                self.do("uncordon", "workers", "uncordon", worker)
                del self.draining[worker]
        if self.random.random() < 0.01 and not self.draining:
            worker = self.random.choice([*NATIVE, NOOP])
            self.do("drain", "drain", worker, "--within", "5s")
            self.draining[worker] = now + self.random.uniform(2, 10)

    def restart(self, now):
        if now < self.next_restart:
            return
        # Some lives are long, so that slow growth shows within them.
        self.next_restart = now + self.seconds / self.random.choice([24, 8, 4])
        name = self.random.choice(["server", *NATIVE, NOOP])
        how = self.random.choice([signal.SIGTERM, signal.SIGKILL])
        self.lab.restart(name, how)
        self.count(f"restart of {'the server' if name == 'server' else 'a worker'} by {how.name}", 0, "")

    def upgrade(self, now):
        """Replaces the programs, and then one daemon after the other, the server first, as docs/operations.md says. Between
        them the load goes on, with daemons of the old programs beside new ones."""
        if now < self.next_upgrade:
            return
        if not self.to_upgrade:
            self.lab.install()
            self.to_upgrade = ["server", *NATIVE, NOOP]
        name = self.to_upgrade.pop(0)
        self.lab.restart(name, signal.SIGTERM)
        if self.lab.daemons[name].runs_replaced_program():
            raise RuntimeError(f"{name} was upgraded, and does not run the new program")
        if self.to_upgrade:
            self.next_upgrade = now + self.random.uniform(0, self.seconds / 120)
        else:
            self.upgrades += 1
            self.next_upgrade = self.seconds * (self.upgrades + 1) / (UPGRADES + 1)
            self.count("upgrade of all programs", 0, "")

    def step(self, now):
        self.refresh()
        still_open = sum(state not in (*ENDED, "SUSPENDED") for state in self.jobs.values())
        if still_open < JOBS_OPEN:
            self.submit_something()
        if self.random.random() < 0.3:
            self.steer()
        if self.random.random() < 0.2:
            self.come_and_go()
        self.clean_up()
        self.drain(now)
        self.restart(now)
        self.upgrade(now)

    def finish(self):
        """Ends what is open, and returns the jobs that did not end in time."""
        for worker in list(self.draining):
            self.do("uncordon", "workers", "uncordon", worker)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self.refresh()
            left = [n for n, state in self.jobs.items() if state not in ENDED]
            waiting = [str(n) for n in left if self.jobs[n] != "STOPPING"]
            if not left:
                break
            if waiting:
                self.do("cancel", "cancel", *waiting)
            time.sleep(0.5)
        for follower in self.followers:
            follower.terminate()
            follower.wait(timeout=PATIENCE_S)
        return left


def live(lab, driver, seconds, samples):
    """Drives the lab for so long, and adds what it sees to the samples."""
    begin = time.monotonic()
    next_sample = 0
    while (now := time.monotonic() - begin) < seconds:
        driver.step(now)
        if died := lab.died():
            raise RuntimeError(f"{died} ended; see the logs in {lab.scratch}")
        if now >= next_sample:
            next_sample = now + SAMPLE_EVERY_S
            samples += [daemon.sample(now, driver.submitted) for daemon in lab.daemons.values()]
        time.sleep(PAUSE_S)


def await_silence(scratch):
    """Supervisors end soon after their attempts; returns the processes that do not."""
    until = time.monotonic() + PATIENCE_S
    while (left := processes_of(scratch)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def judge(samples, seconds):
    """The rows of the table, and what grows."""
    warm_up = min(120, seconds / 6)
    rows, growing = [], []
    for process in sorted({s.process for s in samples}):
        own = [s for s in samples if s.process == process]
        for measure in MEASURES:
            found = trend(own, measure, warm_up)
            if found is None:
                continue
            rows.append((process, measure, found))
            if grows(found, measure):
                growing.append((measure, process))
    return rows, growing


def table(rows):
    out = ["| process | measure | first | last | highest | growth for 1,000 jobs | bound | verdict |",
           "|---|---|---|---|---|---|---|---|"]
    for process, measure, found in rows:
        unit = f" {measure.unit}" if measure.unit else ""
        growth = "-" if math.isinf(found.error) else f"{found.slope:+.2f} ± {2 * found.error:.2f}{unit}"
        out.append(f"| {process} | {measure.title} | {found.first:.1f} | {found.last:.1f} | {found.highest:.1f}{unit} | "
                   f"{growth} | {measure.bound:g}{unit} | {verdict(found, measure)} |")
    return "\n".join(out)


def write(samples, path):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows([round(s.seconds, 1), *s[1:]] for s in samples)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="where soak.csv and soak.svg go; nowhere by default")
    parser.add_argument("--docs", help="the folder of the documentation; it is left alone by default")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.out:
        os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        with Lab(os.path.abspath(args.bin), scratch) as lab:
            driver = Driver(lab, args.seed, args.seconds)
            samples = []
            try:
                live(lab, driver, args.seconds, samples)
            finally:
                if args.out:
                    write(samples, os.path.join(args.out, "soak.csv"))
            new_threads = {name: daemon.new_threads() for name, daemon in lab.daemons.items()}
            left = driver.finish()
            for daemon in reversed(list(lab.daemons.values())):
                daemon.stop()
            left_over = await_silence(scratch)
    rows, growing = judge(samples, args.seconds)
    title = f"{args.seconds / 60:.0f} minutes, {driver.submitted:,} jobs, seed {args.seed}"
    counts = ", ".join(f"{count:,} × {what}" for what, count in sorted(driver.counts.items()))
    print(f"{title}: {counts}\n\n{table(rows)}")
    if args.out:
        with open(os.path.join(args.out, "soak.svg"), "w") as file:
            file.write(draw(samples, title))
    if args.docs:
        with open(os.path.join(args.docs, "soak.svg"), "w") as file:
            file.write(draw(samples, title))
        summary = textwrap.fill(f"{title}: {counts}.", 120)
        replace_section(os.path.join(args.docs, "reliability.md"), "soak", f"{summary}\n\n{table(rows)}")
    problems = []
    for measure, process in growing:
        names = f" (new in its last life: {new_threads[process]})" if measure.key == "threads" else ""
        problems.append(f"{measure.title} of {process} grows{names}")
    problems += [f"jobs/{n} did not end" for n in left]
    problems += [f"jobs/{n} failed: {message}" for n, message in driver.failures.items()]
    problems += [f"process {pid} is left over: {words}" for pid, words in left_over]
    problems += [f"{what} failed {len(errors)} times: {errors[0]}" for what, errors in driver.refused.items()]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
