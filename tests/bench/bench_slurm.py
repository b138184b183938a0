#!/usr/bin/python3
"""Measures how long a queue of short jobs takes on the pilots of a Slurm, beside the same jobs as an array of sbatch on the
same Slurm. Slurm of Debian's packages runs on this machine, three nodes with two processors each.

    bench_slurm.py --bin build/release/bin [--jobs 1000] [--pilots 4]

Each job runs `true`. The time of the pilots begins with the submission, so that it has the start of the pilots in it.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "tests/slurm/slurm_cluster.sh"
ARRAY_MAX = 1000  # of Slurm, by default
SPEC = "name: short\nprogram: {command: ['true']}\ndevices: 1\n"


def wait_for(condition, apart):
    while not condition():
        time.sleep(apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=ARRAY_MAX)
    parser.add_argument("--pilots", type=int, default=4)
    options = parser.parse_args()
    binaries = options.bin.resolve()
    assert 1 <= options.jobs <= ARRAY_MAX, f"--jobs is 1 to {ARRAY_MAX}"
    with tempfile.TemporaryDirectory(prefix="ty-bench-slurm-") as name:
        folder = pathlib.Path(name)
        slurm = folder / "slurm"
        started = subprocess.run([CLUSTER, "start", slurm], timeout=120)
        if started.returncode != 0:
            sys.exit(started.returncode)
        environment = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}

        def run(*words):
            return subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout

        server = None
        try:
            begin = time.perf_counter()
            run("sbatch", "--parsable", f"--array=1-{options.jobs}", "--ntasks=1", "--mem=50", "--output=/dev/null", "--wrap=true")
            wait_for(lambda: not run("squeue", "-h", "--me"), 0.2)
            plain = time.perf_counter() - begin
            print(f"sbatch --array of {options.jobs}            {plain:8.1f} s", flush=True)

            address = f"unix:{folder}/s.sock"
            log = open(folder / "server.log", "wb")
            server = subprocess.Popen(
                [binaries / "trainyard-server", "--state_dir", folder / "s", "--listen", address, "--listen", "tls:127.0.0.1:0"],
                stdout=log, stderr=log, env=environment)
            wait_for((folder / "s/ready").exists, 0.01)

            def client(*words):
                return run(binaries / "trainyard", "--server", address, *words)

            client("providers", "add", "lab", "--slurm", "--cpus", "1", "--max", str(options.pilots), "--backlog",
                   str(options.pilots), "--time-limit", "30m", "--server-address", (folder / "s/ready").read_text().split()[-1], "--", "--mem=100")
            spec = folder / "short.yaml"
            spec.write_text(SPEC)
            begin = time.perf_counter()
            client("submit", str(spec), "-q", "--array", str(options.jobs))
            submitted = time.perf_counter() - begin
            client("wait", f"1-{options.jobs}")  # which fails if a job has failed
            pilots = time.perf_counter() - begin
            print(f"{options.pilots} pilots, from the submission on  {pilots:8.1f} s, of which the submission {submitted:.1f} s")
            print(f"sbatch takes {plain / pilots:.1f} times as long")
        finally:
            subprocess.run(["scancel", "--me", "--full", "--signal=KILL"], env=environment, capture_output=True)
            if server is not None:
                server.kill()
                server.wait()
            subprocess.run([CLUSTER, "stop", slurm], timeout=120)


if __name__ == "__main__":
    main()
