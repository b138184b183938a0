#!/usr/bin/env python3
"""Measures the port for other hosts beside the Unix socket of the same server.

Root goes straight to gRPC on the socket, and other users go through a relay. Only root can run this, since it becomes
such a user. What the relay, a token and TLS cost a call, handshakes in a second, MB/s of a checkpoint, and the calls of others while one host
connects thousands of times. The rounds of socket and port alternate, so that whatever else the machine does meets all.
usage: bench_tls.py --bin DIR [--rounds 7] [--connections 10000]
"""
import argparse
import json
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading

USER = 65534  # neither root nor the user who runs the server
CROWD = "127.0.0.2"  # another host, as the server sees it
CROWD_THREADS = 4
KEPT_OF_THREAD = 200  # below the limit of descriptors
SPEC = """
name: large
model: {mlp: {hidden: [4096, 4096]}}
data: {dataset: glyphs, train_size: 100, test_size: 50}
train: {epochs: 1, global_batch: 50, seed: 3}
optimizer: {sgd: {lr: 0.01, momentum: 0.9}}
"""


class Yard:
    """A server with a socket and a port, in a scratch folder."""

    def __init__(self, bin_dir, scratch):
        self.bin_dir = bin_dir
        self.scratch = scratch
        self.state = os.path.join(scratch, "server")
        os.chmod(scratch, 0o755)  # another user reaches the socket
        self.processes = [self.start("trainyard-server", "--state_dir", self.state, "--listen", "tls:127.0.0.1:0",
                                     "--shared", "--listen", "unix:" + os.path.join(scratch, "socket"))]
        ready = os.path.join(self.state, "ready")
        while not os.path.exists(ready):
            if self.processes[0].poll() is not None:
                raise RuntimeError("the server does not start")
            threading.Event().wait(0.05)
        self.unix, self.tls = sorted(open(ready).read().split(), key=lambda a: a.startswith("tls"))
        self.token = os.path.join(scratch, "token")
        self.client("tokens", "create", "--output-file", self.token)

    def start(self, program, *args):
        log = open(os.path.join(self.scratch, program + ".log"), "ab")
        return subprocess.Popen([os.path.join(self.bin_dir, program), *args], stdout=log, stderr=log)

    def client(self, *args):
        subprocess.run([os.path.join(self.bin_dir, "trainyard"), "--server", self.unix, *args], check=True,
                       capture_output=True)

    def load(self, command, address=None, user=None, **flags):
        words = [os.path.join(self.bin_dir, "bench_tls"), command]
        if address is not None:
            words.append(address)
        if address == self.tls:
            words += ["--token", self.token, "--authority", os.path.join(self.state, "tls/authority.pem")]
        for name, value in flags.items():
            words += [f"--{name}", str(value)]
        done = subprocess.run(words, check=True, capture_output=True, text=True, user=user, cwd="/")
        return json.loads(done.stdout)

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def row(what, *cells):
    print(f"{what:<58} " + "  ".join(cells), flush=True)


def each_way(yard, rounds, command, figure, **flags):
    """Returns the medians of root by the socket, a user by the socket, and the port, whose rounds alternate."""
    ways = [(yard.unix, None), (yard.unix, USER), (yard.tls, None)]
    figures = [[] for _ in ways]
    for _ in range(rounds):
        for (address, user), values in zip(ways, figures):
            values.append(yard.load(command, address, user, **flags)[figure])
    return [statistics.median(values) for values in figures]


def crowd(yard, connections, failures):
    """Connects with TLS from another host, and keeps as many connections as it can."""
    host, port = yard.tls.removeprefix("tls://").rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    kept = []
    for _ in range(connections):
        try:
            raw = socket.create_connection((host, int(port)), timeout=30, source_address=(CROWD, 0))
            made = context.wrap_socket(raw)
            if len(kept) < KEPT_OF_THREAD:
                kept.append(made)
            else:
                made.close()
        except OSError:
            failures.append(1)
    return kept


def calls_beside_a_crowd(yard, connections):
    failures = []
    kept = []

    def run():
        kept.append(crowd(yard, connections // CROWD_THREADS, failures))

    threads = [threading.Thread(target=run) for _ in range(CROWD_THREADS)]
    for thread in threads:
        thread.start()
    results = []
    while any(thread.is_alive() for thread in threads):
        results.append({address: yard.load("call", address, count=300)["p99_us"] for address in (yard.unix, yard.tls)})
    for thread in threads:
        thread.join()
    for address, name in ((yard.unix, "socket"), (yard.tls, "port")):
        values = [result[address] for result in results]
        row(f"p99 of calls by the {name} beside {connections:,} connections",
            f"{statistics.median(values) / 1000:.1f} ms, worst round {max(values) / 1000:.1f} ms",
            f"{len(values)} rounds of 300 calls; {len(failures):,} connections were refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--connections", type=int, default=10_000)
    options = parser.parse_args()
    scratch = tempfile.mkdtemp()
    yard = Yard(os.path.abspath(options.bin), scratch)
    try:
        token = yard.load("token", count=100_000)
        row("a token is looked up", f"{token['p50_us']:.2f} us, p99 {token['p99_us']:.2f} us")
        for command, what in (("call", "WhoAmI"), ("list", "ListJobs")):
            root_us, user_us, port_us = each_way(yard, options.rounds, command, "p50_us", count=3000)
            row(f"{what}, median: root by the socket, a user by it, by the port",
                f"{root_us:.1f} us, {user_us:.1f} us, {port_us:.1f} us",
                f"the relay costs {user_us - root_us:.1f} us, the port {port_us - root_us:.1f} us")
            rates = each_way(yard, options.rounds, command, "rate", count=20_000, flights=64)
            row(f"{what}, 64 at a time", ", ".join(f"{rate:,.0f}/s" for rate in rates))
        shakes = [yard.load("handshake", yard.tls, count=300) for _ in range(options.rounds)]
        rate = statistics.median(shake["count"] / shake["seconds"] for shake in shakes)
        row("handshakes, one after the other", f"{rate:,.0f}/s",
            f"{statistics.median(shake['p50_us'] for shake in shakes) / 1000:.2f} ms each, median")
        calls_beside_a_crowd(yard, options.connections)
        yard.processes.append(yard.start("trainyard-worker", "--server", yard.unix, "--state_dir",
                                         os.path.join(scratch, "worker"), "--cpu_devices", "1"))
        spec = os.path.join(scratch, "spec.yaml")
        with open(spec, "w") as file:
            file.write(SPEC)
        yard.client("submit", spec, "--wait-for-devices", "--follow")
        root_mb, user_mb, port_mb = each_way(yard, options.rounds, "download", "mb_s", count=3)
        row("a checkpoint is downloaded: root, a user, by the port",
            f"{root_mb:,.0f} MB/s, {user_mb:,.0f} MB/s, {port_mb:,.0f} MB/s",
            f"ratios {user_mb / root_mb:.2f}, {port_mb / root_mb:.2f}")
    finally:
        yard.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
