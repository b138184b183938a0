#!/usr/bin/env python3
"""Measures a server under load: accepted jobs/s, pages, cancels, restarts, memory; each on a fresh server.

Real servers without workers in a scratch folder: everything waits in the queue. Acknowledged means on disk, so the disk's
own rate of syncs stands beside it. Put --scratch on the disk that is to be measured.
usage: bench_service.py --bin DIR [--scratch DIR] [--million]
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time


class Bench:
    def __init__(self, binary_dir, scratch):
        self.binary_dir = binary_dir
        self.scratch = scratch

    def load(self, command, target=None, **flags):
        words = [os.path.join(self.binary_dir, "bench_service"), command, target or self.address]
        for name, value in flags.items():
            words += [f"--{name}", str(value)]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    def start(self, state):
        self.address = f"unix:{state}/server.sock"
        log = open(os.path.join(self.scratch, "server.log"), "ab")
        return subprocess.Popen([os.path.join(self.binary_dir, "trainyard-server"), "--state_dir", state],
                                stdout=log, stderr=log)

    @contextlib.contextmanager
    def server(self, name):
        """Starts a server on this state; yields its process and the seconds until its first answer."""
        state = os.path.join(self.scratch, name)
        begin = time.monotonic()
        process = self.start(state)
        try:
            self.load("ready")
            yield process, time.monotonic() - begin
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)

    def forget(self, name):
        shutil.rmtree(os.path.join(self.scratch, name), ignore_errors=True)


def megabytes(process):
    with open(f"/proc/{process.pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024


def row(what, value, note=""):
    print(f"{what:<52} {value:>14}  {note}", flush=True)


def rate(result):
    return f"{result['count'] / result['seconds']:,.0f}/s"


def latency(result):
    return f"p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms"


def submissions(bench):
    disk = bench.load("fsync", bench.scratch)
    row("syncs of 4 KiB, this disk", rate(disk), latency(disk))
    cases = [("one client, one by one", "unary", dict(jobs=1000)),
             ("8 clients, one by one", "unary", dict(jobs=8000, clients=8)),
             ("64 clients, one by one", "unary", dict(jobs=32000, clients=64)),
             ("one stream, 64 a message", "stream", dict(jobs=51200, batch=64)),
             ("one stream, 256 a message", "stream", dict(jobs=51200, batch=256))]
    for name, command, flags in cases:
        with bench.server("submit"):
            result = bench.load(command, **flags)
            row(f"durable submissions, {name}", rate(result), latency(result) + " a call")
        bench.forget("submit")


def arrays(bench):
    with bench.server("array"):
        result = bench.load("arrays", jobs=100000, size=10000)
        row("an array of 10,000 accepted", f"{result['p50_ms']:.0f} ms", "median of 10")
    bench.forget("array")


def pages(bench, jobs):
    with bench.server("list") as (process, _):
        bench.load("arrays", jobs=jobs, size=10000)
        result = bench.load("list", jobs=10000)
        row(f"a page of 100 of {jobs:,} jobs", f"{result['p50_ms']:.1f} ms", latency(result))
        row(f"server memory with {jobs:,} queued, of arrays", f"{megabytes(process):,.0f} MiB")
        if jobs <= 10000:
            result = bench.load("cancel")
            row(f"cancel of {result['count']:,} queued", f"{result['seconds'] * 1e3:.0f} ms")
    bench.forget("list")


def restarts(bench):
    for jobs in (10240, 51200, 102400):
        with bench.server("restart") as (process, _):
            bench.load("stream", jobs=jobs, batch=256)
            memory = megabytes(process)
        times = []
        for _ in range(3):
            with bench.server("restart") as (process, seconds):
                times.append(seconds)
                after = megabytes(process)
        row(f"restart with {jobs:,} queued", f"{sorted(times)[1] * 1e3:.0f} ms",
            f"to the first answer, median of 3; memory {memory:,.0f} MiB before, {after:,.0f} MiB after")
        bench.forget("restart")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--scratch", help="a folder on the disk that is to be measured; the system's own by default")
    parser.add_argument("--million", action="store_true", help="lists among 1,000,000 jobs too; needs some GiB of memory")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        bench = Bench(args.bin, scratch)
        submissions(bench)
        arrays(bench)
        pages(bench, 10000)
        if args.million:
            pages(bench, 1000000)
        restarts(bench)


if __name__ == "__main__":
    main()
