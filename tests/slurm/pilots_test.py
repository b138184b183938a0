"""Lets a real server ask a real Slurm for workers, which train jobs and go again."""

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "tests/slurm/slurm_cluster.sh"
PATIENCE = 120.0
SPEC = {"name": "small", "model": {"mlp": {"hidden": [16]}}, "data": {"dataset": "glyphs", "train_size": 256},
        "train": {"epochs": 2, "global_batch": 32}, "optimizer": {"sgd": {"lr": 0.05}}, "devices": 1}


def wait_for(condition, what, told=str, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come in time\n{told()}")
        time.sleep(0.1)


class Pilots(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ty-pilots-"))
        self.server = None
        self.log = open(self.folder / "server.log", "wb")
        self.addCleanup(self.clean_up)
        started = subprocess.run([CLUSTER, "start", self.folder / "slurm"], capture_output=True, text=True, timeout=120)
        if started.returncode == 77:
            self.skipTest(started.stderr.strip())
        self.assertEqual(started.returncode, 0, started.stderr)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm/slurm.conf"),
                            "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        self.address = f"unix:{self.folder}/s.sock"
        self.start_server("tls:127.0.0.1:0")

    def clean_up(self):
        if hasattr(self, "environment"):
            subprocess.run(["scancel", "--me", "--full", "--signal=KILL"], env=self.environment, capture_output=True, timeout=60)
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        subprocess.run([CLUSTER, "stop", self.folder / "slurm"], capture_output=True, timeout=120)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_server(self, port):
        ready = self.folder / "s/ready"
        ready.unlink(missing_ok=True)
        self.server = subprocess.Popen(
            [BIN / "trainyard-server", "--state_dir", self.folder / "s", "--listen", self.address, "--listen", port],
            stdout=self.log, stderr=self.log, env=self.environment)
        self.wait_for(ready.exists, "the server")
        self.port = ready.read_text().split()[-1]

    def cli(self, *args):
        done = subprocess.run([BIN / "trainyard", "--server", self.address, *args], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, f"{args}: {done.stderr}\n{self.logs()}")
        return done.stdout

    def wait_for(self, condition, what):
        wait_for(condition, what, self.logs)

    def logs(self):
        pilots = [f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in (self.folder / "s/pilots").glob("*.log")]
        return (self.folder / "server.log").read_text(errors="replace")[-3000:] + "\n".join(pilots)

    def submit(self, **changes):
        path = self.folder / f"spec-{time.monotonic_ns()}.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return self.cli("submit", str(path), "-q", "-o", "name").strip()

    def state(self, job):
        return json.loads(self.cli("show", job, "-o", "json"))["state"]

    def pilots(self):
        provider = json.loads(self.cli("providers", "show", "lab", "-o", "json"))
        return [(pilot["state"].removeprefix("PILOT_STATE_"), pilot.get("reason", "")) for pilot in provider.get("pilots", [])]

    def test_jobs_bring_workers_that_go_again(self):
        self.cli("providers", "add", "lab", "--slurm", "--devices", "1", "--cpus", "1", "--max", "2", "--time-limit", "30m",
                 "--idle-time", "15s", "--server-address", self.port, "--dataset", "cifar10", "--", "--mem=100")
        self.assertIn("data sets cifar10", self.cli("providers", "show", "lab"), "the jobs here need none of them")
        self.assertIn("lab", self.cli("providers", "ls"))
        self.assertEqual(self.pilots(), [], "nothing waits yet")
        jobs = [self.submit(), self.submit()]
        for job in jobs:
            self.wait_for(lambda job=job: self.state(job) == "JOB_STATE_SUCCEEDED", f"the end of {job}")
        # A longer job outlives a server that is killed, as on any worker.
        long = self.submit(train={"epochs": 400, "global_batch": 32}, checkpoint={"every": "50 epochs"})
        self.wait_for(lambda: self.state(long) == "JOB_STATE_RUNNING", "the longer job")
        self.server.kill()
        self.server.wait()
        self.start_server(self.port)
        self.wait_for(lambda: self.state(long) == "JOB_STATE_SUCCEEDED", "the end of the longer job")
        self.assertEqual(json.loads(self.cli("show", long, "-o", "json"))["attempt"], 1)
        self.wait_for(lambda: all(state == "ENDED" for state, _ in self.pilots()), "the end of idle pilots")
        listed = subprocess.run(["squeue", "-h", "--me"], env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(listed.stdout, "")
        self.wait_for(lambda: not json.loads(self.cli("workers", "ls", "-o", "json")), "the end of their workers")
        self.cli("providers", "update", "lab", "--dataset", "any")
        self.assertNotIn("data sets", self.cli("providers", "show", "lab"))
        self.cli("providers", "rm", "lab")
        self.wait_for(lambda: "no providers" in subprocess.run(
            [BIN / "trainyard", "--server", self.address, "providers", "ls"], capture_output=True, text=True,
            timeout=60).stderr, "the end of the provider")

    def test_what_slurm_refuses_is_told_at_once(self):
        done = subprocess.run(
            [BIN / "trainyard", "--server", self.address, "providers", "add", "lab", "--slurm",
             "--server-address", self.port, "--", "-p", "nowhere"],
            capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nvalid partition", done.stderr)
        # No other host reaches the loopback on which this server listens, unless somebody says that it does.
        done = subprocess.run([BIN / "trainyard", "--server", self.address, "providers", "add", "lab", "--slurm"],
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--server-address", done.stderr)
        shared = self.folder / "open"
        shared.mkdir()
        shared.chmod(0o777)
        for flags, reason in ((["--server-address", "nonsense"], "nonsense"),
                              (["--server-address", "unix:/s.sock"], "no address with TLS"),
                              (["--server-address", self.port, "--worker-program", "worker"], "no absolute path"),
                              (["--server-address", self.port, "--dataset", "my data"], "'my data' is no name of a data set"),
                              (["--server-address", self.port, "--folder", str(shared)], "can be written by others")):
            done = subprocess.run([BIN / "trainyard", "--server", self.address, "providers", "add", "lab", "--slurm", *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(reason, done.stderr)

    def test_a_server_serves_although_the_record_of_its_providers_cannot_be_read(self):
        self.cli("providers", "add", "lab", "--slurm", "--devices", "1", "--cpus", "1", "--server-address", self.port)
        self.server.kill()
        self.server.wait()
        with contextlib.closing(sqlite3.connect(self.folder / "s/providers.db")) as database, database:
            database.execute("UPDATE providers SET record = '{}'")
        self.start_server(self.port)
        self.assertEqual(json.loads(self.cli("ls", "-o", "json")), [])
        done = subprocess.run([BIN / "trainyard", "--server", self.address, "providers", "show", "lab"], capture_output=True,
                              text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot read its record", done.stderr)


if __name__ == "__main__":
    unittest.main()
