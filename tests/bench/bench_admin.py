#!/usr/bin/python3
"""Measures what an administrator waits for with many jobs: a scrape of /metrics, a backup, a second one, a check, a restore, and
a restart of the server.

    bench_admin.py --bin build/release/bin [--jobs 100000]

The jobs wait, and each has a log as if it had run. All of it lies on one disk, so a restore reads and writes there. The first
start after the restore sets these logs aside, because the server knows of no attempt that wrote them.
"""

import argparse
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

SPEC = "name: many\nmodel: {mlp: {hidden: [16]}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1, global_batch: 32}\n" \
       "optimizer: {sgd: {lr: 0.05}}\ndevices: 1\n"
ARRAY_MAX = 10_000


def seconds(call, *args):
    begin = time.perf_counter()
    result = call(*args)
    return time.perf_counter() - begin, result


class Yard:
    def __init__(self, binaries, folder):
        self.binaries, self.folder = binaries, folder
        self.state = folder / "state"
        self.address = f"unix:{folder}/s.sock"
        self.process = None

    def start(self):
        ready = self.state / "ready"
        ready.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [self.binaries / "trainyard-server", "--state_dir", self.state, "--listen", self.address],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not ready.exists():
            assert self.process.poll() is None, "the server does not start"
            time.sleep(0.005)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def run(self, *words):
        return subprocess.run([self.binaries / "trainyard", "--server", self.address, *words], check=True, capture_output=True,
                              text=True).stdout

    def admin(self, *words):
        return self.run("admin", *words, "--state-dir", str(self.state))

    def scrape(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / "s.sock"))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        assert b" 200 OK" in answer.split(b"\r\n", 1)[0]
        return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ty-admin-"))
    yard = Yard(options.bin.resolve(), folder)
    try:
        yard.start()
        spec = folder / "many.yaml"
        spec.write_text(SPEC)
        for begin in range(0, options.jobs, ARRAY_MAX):
            yard.run("submit", str(spec), "-q", "--wait-for-devices", "--array", str(min(ARRAY_MAX, options.jobs - begin)))
        scrapes = sorted(seconds(yard.scrape)[0] for _ in range(50))
        print(f"scrape, median of 50             {statistics.median(scrapes) * 1e3:8.1f} ms, longest {scrapes[-1] * 1e3:.1f} ms")
        for job in range(1, options.jobs + 1):
            logs = yard.state / "logs" / str(job) / "1"
            logs.mkdir(parents=True)
            (logs / "0.log").write_bytes(b"step 1\n" * 20)
        print(f"first backup                     {seconds(yard.admin, 'backup', str(folder / 'backups'))[0]:8.1f} s")
        took, said = seconds(yard.admin, "backup", str(folder / "backups"))
        print(f"second one, nothing has changed  {took:8.1f} s")
        print(f"check                            {seconds(yard.admin, 'check')[0]:8.1f} s")
        yard.stop()
        snapshot = said.split(":")[0]
        print(f"restore                          {seconds(yard.admin, 'restore', snapshot, '--replace')[0]:8.1f} s")
        print(f"start, which sets logs aside     {seconds(yard.start)[0]:8.1f} s")
        yard.stop()
        yard.start()
        yard.stop()
        begin = time.perf_counter()
        yard.start()
        yard.run("version")
        print(f"restart until it answers         {time.perf_counter() - begin:8.2f} s")
    finally:
        if yard.process is not None:
            yard.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
