#!/usr/bin/python3
"""Measures what it costs to keep a bucket some seconds behind a server, and how long another host needs to go on from there.

    bench_continuous.py --bin build/release/bin [--jobs 1000] [--seconds 60] [--every 5s]

A job is submitted each second, beside JOBS that wait. The bucket is in the memory of this program, so no network is measured.
"""

import argparse
import http.server
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

SPEC = "name: many\nmodel: {mlp: {hidden: [16]}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1, global_batch: 32}\n" \
       "optimizer: {sgd: {lr: 0.05}}\ndevices: 1\n"
ARRAY_MAX = 10_000


class Bucket(http.server.ThreadingHTTPServer):
    """As much of S3 as a backup uses: it takes whole objects, honours conditions and lists on one page."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.objects, self.lock, self.received, self.versions = {}, threading.Lock(), 0, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content=b"", etag=None, size=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if size is None else size))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(content)

    def error(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def key(self):
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)

    def found(self):
        with self.server.lock:
            return self.server.objects.get(self.key())

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        etag = f'"{hash(content) & (2**64 - 1):032x}"'
        with self.server.lock:
            old = self.server.objects.get(self.key())
            wanted = self.headers.get("If-Match")
            is_met = not (self.headers.get("If-None-Match") and old) and (not wanted or (old and wanted in (old[1], old[1][1:-1])))
            if is_met:
                self.server.objects[self.key()] = (content, etag)
                self.server.received += len(content)
                if self.key().endswith("/latest"):
                    self.server.versions.append(time.perf_counter())
        if is_met:
            self.answer(200, etag=etag)
        else:
            self.error(412, "PreconditionFailed")

    def do_HEAD(self):
        found = self.found()
        if found:
            self.answer(200, etag=found[1], size=len(found[0]))
        else:
            self.answer(404)

    def do_DELETE(self):
        with self.server.lock:
            self.server.objects.pop(self.key(), None)
        self.answer(204)

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if "list-type" not in query:
            found = self.found()
            return self.answer(200, *found) if found else self.error(404, "NoSuchKey")
        bucket = self.key().rstrip("/") + "/"
        prefix = bucket + query.get("prefix", [""])[0]
        with self.server.lock:
            listed = [(key[len(bucket):], len(value[0])) for key, value in sorted(self.server.objects.items()) if key.startswith(prefix)]
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        body = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{now}</LastModified></Contents>"
                       for key, size in listed)
        return self.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{body}</ListBucketResult>".encode())


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--every", default="5s")
    options = parser.parse_args()
    binaries = options.bin.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ty-continuous-"))
    state, address, bucket = folder / "state", f"unix:{folder}/s.sock", Bucket()
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
                   "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket.server_port}"}
    processes = []

    def start(*words, **options):
        processes.append(subprocess.Popen([binaries / "trainyard-server", "--state_dir", state, *words], env=environment, text=True,
                                          stderr=subprocess.DEVNULL, **{"stdout": subprocess.DEVNULL, **options}))
        return processes[-1]

    def client(*words):
        return subprocess.run([binaries / "trainyard", "--server", address, *words], check=True, capture_output=True, text=True).stdout

    def serve():
        (state / "ready").unlink(missing_ok=True)
        server = start("--listen", address)
        while not (state / "ready").exists():
            assert server.poll() is None, "the server does not start"
            time.sleep(0.005)
        return server

    try:
        server = serve()
        spec = folder / "many.yaml"
        spec.write_text(SPEC)
        for begin in range(0, options.jobs, ARRAY_MAX):
            client("submit", str(spec), "-q", "--wait-for-devices", "--array", str(min(ARRAY_MAX, options.jobs - begin)))
        backup = start("backup", folder / "local", "--every", options.every, "--bucket", "s3://lab/now", stdout=subprocess.PIPE)
        print(backup.stdout.readline().strip())
        sent, used = bucket.received, cpu_seconds(backup.pid)
        begin = time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            client("submit", str(spec), "-q", "--wait-for-devices")
            time.sleep(1)
        took = time.perf_counter() - begin
        print(f"processor of the backup      {(cpu_seconds(backup.pid) - used) / took * 100:8.1f} % of one")
        print(f"sent                         {(bucket.received - sent) / took / 1024:8.1f} KiB/s")
        versions = [each for each in bucket.versions if each > begin]
        print(f"between versions, at most    {max(after - before for before, after in zip(versions, versions[1:])):8.1f} s")
        backup.send_signal(signal.SIGTERM)
        backup.wait()
        known = len(client("ls", "-o", "name", "--limit", "100000").split())
        server.kill()
        server.wait()
        shutil.rmtree(state)
        shutil.rmtree(folder / "local")
        begin = time.perf_counter()
        assert start("restore", "s3://lab/now").wait() == 0
        print(f"restore on another host      {time.perf_counter() - begin:8.2f} s")
        serve()
        client("version")
        print(f"until the server answers     {time.perf_counter() - begin:8.2f} s")
        left = len(client("ls", "-o", "name", "--limit", "100000").split())
        print(f"jobs that are listed         {left:8d} of {known}")
    finally:
        for process in processes:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
