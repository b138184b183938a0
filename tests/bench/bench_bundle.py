#!/usr/bin/env python3
"""Measures import and export of a bundle with one large checkpoint, beside a copy of the same bytes.

  tests/bench/bench_bundle.py --bin build/release/bin --mib 1024

The file of the checkpoint is random, so nothing of it can be compressed. All runs share one disk, and each copy ends
with an fsync.
"""
import argparse
import ctypes
import ctypes.util
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import time

from lone_server import serving


def xxh3(data):
    """Returns the hash by which checkpoints know their files."""

    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_128bits.restype = Hash
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    result = library.XXH3_128bits(data, len(data))
    return "xxh3-128:%016x%016x" % (result.high, result.low)


def make_bundle(path, weights):
    """Writes a bundle of a job that was made up."""
    name = "model.safetensors"
    spec = {"name": "large", "program": {"command": ["true"]}, "devices": {"count": 1}}
    job = {
        "name": "jobs/1", "uid": "bench", "user": "bench", "spec": spec, "resolved_spec": spec,
        "state": "JOB_STATE_SUCCEEDED", "create_time": "2026-11-20T22:00:00Z", "end_time": "2026-11-20T22:57:55Z",
    }
    attempts = {"attempts": [{"name": "jobs/1/attempts/1", "state": "ATTEMPT_STATE_SUCCEEDED"}]}
    checkpoints = {"checkpoints": [{"name": "jobs/1/checkpoints/100", "step": "100", "files": [
        {"name": name, "size": str(len(weights)), "hash": xxh3(weights)}]}]}
    parts = [("job.json", json.dumps(job).encode()), ("attempts.json", json.dumps(attempts).encode()),
             ("checkpoints.json", json.dumps(checkpoints).encode()), (f"checkpoints/100/{name}", weights)]
    entries = [{"name": part, "size": len(data), "hash": "sha256:" + hashlib.sha256(data).hexdigest()}
               for part, data in parts]
    listed = json.dumps({"format": "1.0", "job": "jobs/1", "uid": "bench", "entries": entries}).encode()
    with subprocess.Popen(["zstd", "-q", "-1", "-f", "-o", path], stdin=subprocess.PIPE) as zstd:
        with tarfile.open(fileobj=zstd.stdin, mode="w|", format=tarfile.GNU_FORMAT) as archive:
            for part, data in [("bundle.json", listed)] + parts:
                info = tarfile.TarInfo(part)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        zstd.stdin.close()


def timed(action):
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def copy(source, target):
    with open(source, "rb") as one, open(target, "wb") as other:
        while block := one.read(1 << 20):
            other.write(block)
        other.flush()
        os.fsync(other.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    binaries = args.bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        weights = os.urandom(args.mib << 20)
        bundle = root / "large.trainyard"
        make_bundle(bundle, weights)
        del weights
        print(f"{'round':>5} {'copy s':>8} {'import s':>9} {'export s':>9}   of {args.mib} MiB")
        for turn in range(args.rounds):
            address = f"unix:{root}/{turn}.sock"
            command = [binaries / "trainyard", "--server", address, "--quiet"]
            environment = dict(os.environ, HOME=folder)
            with serving(binaries, root / f"server-{turn}", address):
                copied = timed(lambda: copy(bundle, root / "copy"))
                imported = timed(lambda: subprocess.run(command + ["import", bundle], check=True, env=environment,
                                                        stdout=subprocess.DEVNULL))
                exported = timed(lambda: subprocess.run(
                    command + ["export", "1", "--checkpoint", "all", "-O", root / "out.trainyard"], check=True,
                    env=environment, stdout=subprocess.DEVNULL))
                (root / "out.trainyard").unlink()
            print(f"{turn:>5} {copied:8.2f} {imported:9.2f} {exported:9.2f}")


if __name__ == "__main__":
    main()
