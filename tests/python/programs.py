"""The real programs for tests: a server and a worker in a folder of their own."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

BIN = os.environ["TRAINYARD_BIN"]


def wait_for(condition, what, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come in time")
        time.sleep(0.02)


class Yard:
    """The programs in a folder of their own."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="ty-py-")
        self.socket = f"{self.folder}/s.sock"
        self.address = f"unix:{self.socket}"
        self.log = open(f"{self.folder}/log", "wb")
        self.processes = {}
        self.start_server()
        self.start("worker", "trainyard-worker", "--server", self.address, "--state_dir", f"{self.folder}/w",
                   "--cpu_devices", "2")

    def start(self, name, program, *args):
        self.processes[name] = subprocess.Popen([f"{BIN}/{program}", *args], stdout=self.log, stderr=self.log)

    def start_server(self):
        ready = pathlib.Path(self.folder, "s", "ready")
        ready.unlink(missing_ok=True)
        self.start("server", "trainyard-server", "--state_dir", f"{self.folder}/s", "--listen", self.address, "--listen",
                   "tls:127.0.0.1:0")
        wait_for(ready.exists, "the server")
        self.tls = ready.read_text().split()[-1]

    def kill_server(self):
        self.processes["server"].send_signal(signal.SIGKILL)
        self.processes["server"].wait()

    def cli(self, *args, **env):
        return subprocess.run([f"{BIN}/trainyard", "--server", self.address, *args], capture_output=True, text=True,
                              check=True, env={**os.environ, **env}).stdout

    def close(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
