#!/usr/bin/env python3
"""Fills the catalogue with saved specs and measures the commands that read it.

  tests/bench/bench_catalogue.py --bin build/release/bin --entries 10000 --rounds 15

Prints the median time of each command from its start to its end, beside that of a command that asks the server for nothing
but its version, and the time that one entry took to be saved.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client/python"))
import trainyard  # noqa: E402
from lone_server import serving  # noqa: E402

SPEC = {"name": "small", "model": {"mlp": {"hidden": [64]}}, "data": {"dataset": "glyphs"},
        "train": {"epochs": 1, "global_batch": 32}, "optimizer": {"sgd": {"lr": 0.05}}}
VERSIONS = 10  # of each name
COMMANDS = [("(version)",), ("specs", "ls"), ("specs", "ls", "net-00042"), ("specs", "ls", "--tag", "tag-7"),
            ("specs", "show", "net-00042"), ("specs", "show", "net-00042@3"), ("specs", "history", "net-00042"),
            ("specs", "diff", "net-00042@1", "net-00042@9"), ("submit", "net-00042", "--dry-run", "--wait-for-devices"),
            ("specs", "save", "SPEC", "net-00042")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--entries", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    binaries = options.bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        address = f"unix:{root}/s.sock"
        with serving(binaries, root / "s", address):
            client = trainyard.connect(address)
            begin = time.monotonic()
            for number in range(options.entries):
                name = f"net-{number // VERSIONS:05}"
                client.save_spec({**SPEC, "train": {"epochs": 1 + number % VERSIONS, "global_batch": 32}}, name,
                                 note=f"entry {number}", tags=[f"tag-{number % 100}"])
            saved = time.monotonic() - begin
            client.transport.close()
            print(f"{options.entries} entries, {saved / options.entries * 1e3:.2f} ms each to save")
            (root / "spec.yaml").write_text("name: small\nmodel: {mlp: {hidden: [64]}}\ndata: {dataset: glyphs}\n"
                                            "train: {epochs: 2, global_batch: 32}\noptimizer: {sgd: {lr: 0.05}}\n")
            environment = {**os.environ, "HOME": folder}
            for command in COMMANDS:
                words = ["--version"] if command[0] == "(version)" else [
                    str(root / "spec.yaml") if word == "SPEC" else word for word in command]
                times = []
                for _ in range(options.rounds):
                    begin = time.monotonic()
                    subprocess.run([binaries / "trainyard", "--server", address, *words], check=True, env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    times.append(time.monotonic() - begin)
                print(f"{' '.join(command):<48} {statistics.median(times) * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
