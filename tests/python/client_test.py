"""Tests of the Python client with the real programs: a server and a worker on this machine."""

import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import trainyard

BIN = os.environ["TRAINYARD_BIN"]
CLIENT = str(pathlib.Path(trainyard.__file__).parents[1])
PYTHON = "/usr/bin/python3"


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


def setUpModule():
    global yard, client
    yard = Yard()
    client = trainyard.connect(yard.address)
    wait_for(client.workers, "the worker")


def tearDownModule():
    client.transport.close()
    yard.close()


def script(text, **options):
    options.setdefault("env", {"PYTHONPATH": CLIENT})
    return client.submit([PYTHON, "-B", "-c", text], **options)


class Jobs(unittest.TestCase):
    def test_a_program_gives_its_log_its_curves_and_its_result(self):
        job = script("import trainyard\n"
                     "for step in range(1, 6):\n"
                     "    trainyard.log(step, loss=trainyard.params['lr'] / step)\n"
                     "    print('step', step)\n", params={"lr": 0.5}, name="curve", tags=["py"])
        self.assertEqual(list(job.logs(follow=True)), [f"step {n}" for n in range(1, 6)])
        self.assertEqual(job.result(timeout=30), {"loss": 0.1})
        self.assertEqual((job.state, job.done, job.params, job.user), ("SUCCEEDED", True, {"lr": 0.5}, client.whoami()))
        self.assertEqual(job.metrics("loss").steps("loss"), [1, 2, 3, 4, 5])
        self.assertEqual([p.value for p in job.follow_metrics()][0], 0.5)
        self.assertEqual(job.logs(tail_bytes=7), "step 5\n")
        self.assertEqual([found.name for found in client.jobs(tags=["py"], states=["SUCCEEDED"])], [job.name])
        self.assertIn("<polyline", job._repr_html_())
        self.assertIsNotNone(job.created)

        again = job.clone(lr=1.0)
        self.assertEqual((again.wait(30).state, again.params), ("SUCCEEDED", {"lr": 1.0}))
        third = job.clone(set={"program.params.lr": 2.0, "name": "third"})
        self.assertEqual(third.result(30)["loss"], 0.4)

    def test_a_failure_is_raised_with_what_happened(self):
        job = client.submit(["sh", "-c", "echo it broke >&2; exit 7"])
        with self.assertRaises(trainyard.JobFailed) as caught:
            job.result(30)
        failure = caught.exception
        self.assertEqual((failure.reason, failure.job_exit_code, failure.state, failure.job),
                         ("PROGRAM_FAILED", 7, "FAILED", job))
        self.assertIn("it broke", str(failure))

    def test_jobs_of_a_map_have_their_parameters_and_are_checked_before(self):
        jobs = client.map(["sh", "-c", "echo got {x}"], [{"x": 1}, {"x": "two"}], name="mapped")
        self.assertEqual(jobs.wait(30).states(), ["SUCCEEDED", "SUCCEEDED"])
        self.assertEqual([job.logs() for job in jobs], ["got 1\n", "got two\n"])
        self.assertIn("mapped", jobs._repr_html_())
        before = len(client.jobs(limit=1000))
        with self.assertRaises(trainyard.InvalidRequest):
            client.map(["true"], [{"x": 1}, {"devices.cuont": 3}])
        self.assertEqual(len(client.jobs(limit=1000)), before, "none was submitted")

    def test_a_repeated_submission_is_one_job(self):
        first = client.submit(["true"], request_id="py-once")
        self.assertEqual(client.submit(["true"], request_id="py-once"), first)

    def test_cancel_and_time_out(self):
        job = client.submit(["sleep", "60"])
        with self.assertRaises(TimeoutError):
            job.wait(timeout=0.2)
        job.cancel("enough")
        self.assertEqual(job.wait(30).state, "CANCELLED")
        with self.assertRaisesRegex(trainyard.JobFailed, "CANCELLED"):
            job.result()
        client.cancel(job)

    def test_errors_have_classes_and_name_the_field(self):
        with self.assertRaises(trainyard.NotFound):
            client.job(4711)
        with self.assertRaises(trainyard.InvalidRequest) as caught:
            client.submit({"name": "x", "program": {"command": ["true"]}, "devices": -1})
        self.assertTrue(caught.exception.violations[0][0].startswith("spec.devices"), caught.exception.violations)
        with self.assertRaises(trainyard.Conflict):
            client.submit(["true"], devices=64)

    def test_a_checkpoint_is_downloaded(self):
        job = script("import trainyard\nwith trainyard.checkpoint(3) as folder: (folder / 'w.bin').write_bytes(b'x' * 300000)")
        job.result(30)
        self.assertEqual(job.checkpoints(), [3])
        folder = os.path.join(yard.folder, "got")
        target = pathlib.Path(job.download(folder)) / "w.bin"
        self.assertTrue(target.exists() or list(pathlib.Path(folder).iterdir()))
        self.assertFalse(list(pathlib.Path(folder).glob("*.part")))
        whole = max(pathlib.Path(folder).iterdir(), key=lambda path: path.stat().st_size)
        size = whole.stat().st_size
        whole.rename(f"{whole}.part")
        os.truncate(f"{whole}.part", size // 2)
        job.download(folder)
        self.assertEqual(whole.stat().st_size, size, "a download goes on where it broke off")


class Restarts(unittest.TestCase):
    def test_a_log_survives_a_server_that_is_killed(self):
        job = script("import time\nfor step in range(40):\n    print('line', step, flush=True)\n    time.sleep(0.05)\n")
        lines = []
        for line in job.logs(follow=True):
            lines.append(line)
            if len(lines) == 5:
                yard.kill_server()
                yard.start_server()
        self.assertEqual(lines, [f"line {n}" for n in range(40)], "nothing is lost and nothing comes twice")
        self.assertEqual(job.wait(30).state, "SUCCEEDED")

    def test_a_handle_works_in_another_process(self):
        job = client.submit(["true"])
        job.wait(30)
        path = os.path.join(yard.folder, "handle.pickle")
        with open(path, "wb") as file:
            pickle.dump(job, file)
        told = subprocess.run([PYTHON, "-B", "-c", "import pickle, sys; j = pickle.load(open(sys.argv[1], 'rb')); "
                               "print(j.name, j.state)", path], capture_output=True, text=True, check=True).stdout
        self.assertEqual(told.split(), [job.name, "SUCCEEDED"])


class OtherHosts(unittest.TestCase):
    def token(self):
        return yard.cli("tokens", "create").split()[-1]

    def test_a_token_and_a_fingerprint_reach_the_port(self):
        fingerprint = pathlib.Path(yard.folder, "s", "tls", "fingerprint").read_text().strip()
        remote = trainyard.connect(yard.tls, token=self.token(), fingerprint=fingerprint)
        self.assertEqual(remote.whoami(), client.whoami())
        self.assertTrue(remote.workers())
        remote.transport.close()
        with self.assertRaises(trainyard.NotSignedIn):
            trainyard.connect(yard.tls, token="tyk_wrong", fingerprint=fingerprint)
        with self.assertRaisesRegex(trainyard.NotSignedIn, "nothing was sent"):
            trainyard.connect(yard.tls, token="tyk_wrong", fingerprint="0" * 64)

    def test_what_login_has_stored_is_used(self):
        home = os.path.join(yard.folder, "home")
        target = yard.tls.replace("tls://", "")
        folder = pathlib.Path(home, "trainyard", "servers", target.replace(":", "_"))
        folder.mkdir(parents=True)
        shutil.copy(os.path.join(yard.folder, "s", "tls", "authority.pem"), folder)
        (folder / "name").write_text("server.trainyard.internal\n")
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(self.token() + "\n")
        with unittest.mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": home}):
            remote = trainyard.connect(yard.tls)
        self.assertEqual(remote.whoami(), client.whoami())
        remote.transport.close()

    def test_ssh_carries_a_connection(self):
        # In place of ssh: what it would run on the other host.
        folder = pathlib.Path(yard.folder, "ssh")
        folder.mkdir()
        fake = folder / "ssh"
        fake.write_text('#!/bin/sh\necho motd of the host\neval "last=\\${$#}"\nexec sh -c "$last"\n')
        fake.chmod(0o755)
        path = f"{folder}:{BIN}:{os.environ['PATH']}"
        with unittest.mock.patch.dict(os.environ, {"PATH": path}):
            remote = trainyard.connect(f"ssh://lab{yard.socket}")
            self.assertEqual(remote.whoami(), client.whoami())
            self.assertTrue(remote.workers())
            remote.transport.close()
            fake.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
            with self.assertRaisesRegex(trainyard.Unreachable, "Permission denied"):
                trainyard.connect(f"ssh://lab{yard.socket}")


if __name__ == "__main__":
    unittest.main()
