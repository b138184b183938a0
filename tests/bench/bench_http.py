#!/usr/bin/python3
"""Compares calls of GetJob over HTTP and over gRPC on the server's Unix socket, and measures how long the Python client takes
to connect and to list jobs.

    bench_http.py --bin build/release/bin [--calls 3000]

gRPC needs python3-grpcio; both clients are of one thread and send bytes that were made before.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import trainyard  # noqa: E402


def measure(name, calls, once):
    for _ in range(100):
        once()
    times = []
    begin = time.perf_counter()
    for _ in range(calls):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    whole = time.perf_counter() - begin
    times.sort()
    print(f"{name:<24} {calls / whole:8.0f} {times[calls // 2] * 1e6:10.0f} {times[calls * 99 // 100] * 1e6:10.0f}")


def raw_http(path):
    body = b'{"name":"jobs/1"}'
    request = (b"POST /trainyard.v1.JobService/GetJob HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)

    def once():
        connection.sendall(request)
        answer = connection.recv(65536)
        head, _, rest = answer.partition(b"\r\n\r\n")
        size = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        while len(rest) < size:
            rest += connection.recv(65536)
        assert b" 200 OK" in head and len(rest) == size

    return once


def raw_grpc(path):
    import grpc
    call = grpc.insecure_channel(f"unix:{path}").unary_unary("/trainyard.v1.JobService/GetJob")
    request = b"\n\x06jobs/1"
    return lambda: call(request)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s.sock"
        server = subprocess.Popen([f"{options.bin}/trainyard-server", "--state_dir", f"{folder}/s", "--listen", f"unix:{path}"],
                                  stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(f"{folder}/s/ready"):
                time.sleep(0.02)
            yard = trainyard.connect(f"unix:{path}")
            yard.submit(["true"], wait_for_devices=True)
            print(f"{'GetJob, one client':<24} {'calls/s':>8} {'median us':>10} {'99 % us':>10}")
            measure("HTTP, bytes", options.calls, raw_http(path))
            try:
                measure("gRPC, bytes", options.calls, raw_grpc(path))
            except ImportError:
                print("gRPC was left out: python3-grpcio is not there")
            measure("HTTP, trainyard.call", options.calls, lambda: yard.call("JobService/GetJob", {"name": "jobs/1"}))
            times = []
            for _ in range(20):
                begin = time.perf_counter()
                client = trainyard.connect(f"unix:{path}")
                client.jobs()
                times.append(time.perf_counter() - begin)
                client.transport.close()
            times.sort()
            print(f"trainyard.connect() and jobs(): median {times[10] * 1e3:.1f} ms")
            yard.transport.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
