"""Tests of the Python client with the real programs: a server and a worker on this machine."""

import errno
import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import trainyard
from programs import BIN, Yard, wait_for
from trainyard import archive, sender, transport

CLIENT = str(pathlib.Path(trainyard.__file__).parents[1])
PYTHON = "/usr/bin/python3"


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
        folder = pathlib.Path(yard.folder, "got")
        self.assertEqual(job.download(folder), str(folder))
        self.assertEqual([path.name for path in folder.iterdir()], ["w.bin"])
        self.assertEqual((folder / "w.bin").read_bytes(), b"x" * 300000)
        with self.assertRaises(trainyard.NotFound):
            job.download(folder, step=4)
        with self.assertRaisesRegex(trainyard.NotFound, "no checkpoint"):
            client.submit(["true"]).wait(30).download(folder)

    def test_a_download_that_broke_off_goes_on_and_takes_no_bytes_of_another_file(self):
        job = script("import os, trainyard\n"
                     "for step in (1, 2):\n"
                     "    with trainyard.checkpoint(step) as folder:\n"
                     "        (folder / 'parts').mkdir()\n"
                     "        for name in ('w.bin', 'parts/0.pt'): (folder / name).write_bytes(b'%d' % step * 1500000)\n")
        job.result(30)
        folder = pathlib.Path(yard.folder, "broken")
        real, broken = transport.Transport._exchange, []

        class Torn:
            """Breaks off in the middle of each first answer."""

            def __init__(self, response):
                self.response, self.left = response, 700000

            def __getattr__(self, name):
                return getattr(self.response, name)

            def _take(self, data):
                self.left -= len(data)
                if self.left < 0:
                    raise ConnectionResetError("torn")
                return data

            def read(self, *args):
                return self._take(self.response.read(*args))

            def readline(self, *args):
                return self._take(self.response.readline(*args))

        def torn(self, connection, method, path, body, more):
            response = real(self, connection, method, path, body, more)
            key = (path, json.loads(body).get("file") if body else None)
            if (path.startswith("/files/") or path.endswith("DownloadCheckpoint")) and key not in broken:
                broken.append(key)
                return Torn(response)
            return response

        with unittest.mock.patch.object(transport.Transport, "_exchange", torn):
            job.download(folder, step=1)
        self.assertEqual(len(broken), 2, "a file in a folder is fetched by a call, and another one by its path")
        self.assertEqual({path.read_bytes() for path in folder.rglob("*") if path.is_file()}, {b"1" * 1500000})
        # What is left of a download of step 1 is not a part of step 2.
        with unittest.mock.patch.object(transport.Transport, "_exchange", torn), \
                unittest.mock.patch.object(client.transport, "retry_for", 0.0):
            broken.clear()
            with unittest.mock.patch.object(transport.time, "monotonic", side_effect=itertools.count(0, 10)):
                with self.assertRaises(trainyard.Unreachable):
                    job.download(folder, step=1)
        self.assertTrue(list(folder.rglob("*.part")))
        job.download(folder, step=2)
        self.assertEqual({path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".part"},
                         {b"2" * 1500000})

    def test_a_folder_that_cannot_be_written_is_no_fault_of_the_server(self):
        job = script("import trainyard\nwith trainyard.checkpoint(3) as folder: (folder / 'w.bin').write_bytes(b'x')")
        job.result(30)
        pathlib.Path(yard.folder, "file").touch()
        begin = time.monotonic()
        with self.assertRaises(FileExistsError):
            job.download(os.path.join(yard.folder, "file"))
        folder = pathlib.Path(yard.folder, "full")
        folder.mkdir()
        with unittest.mock.patch.object(transport, "open", create=True, side_effect=OSError(errno.ENOSPC, "no room")):
            with self.assertRaisesRegex(OSError, "no room") as caught:
                job.download(folder)
        self.assertNotIsInstance(caught.exception, trainyard.TrainyardError)
        self.assertLess(time.monotonic() - begin, 20, "it was not tried again for a minute")

    def test_outputs_are_listed_and_downloaded(self):
        job = script("import os\nos.makedirs('results/deep')\n"
                     "open('results/deep/a b.csv', 'w').write('x' * 700000)\nopen('top.txt', 'w').close()\n",
                     set={"outputs": ["results/**", "*.txt"]}, directory=os.path.join(yard.folder, "w"))
        job.result(30)
        self.assertEqual([(file.name, file.size) for file in job.outputs()],
                         [("results/deep/a b.csv", 700000), ("top.txt", 0)])
        folder = os.path.join(yard.folder, "outputs")
        path, = job.download_outputs(folder, "results/*")
        self.assertEqual(path, os.path.join(folder, "results/deep/a b.csv"))
        self.assertEqual(pathlib.Path(path).read_text(), "x" * 700000)
        self.assertEqual([os.path.getsize(each) for each in job.download_outputs(folder)], [700000, 0])
        with self.assertRaisesRegex(trainyard.NotFound, "no output 'c'; it has 2 others"):
            job.download_outputs(folder, "c")

    def test_lists_of_jobs_stay_lists_of_jobs(self):
        jobs = client.map(["sh", "-c", "exit {x}"], [{"x": 0}, {"x": 3}, {"x": 0}])
        self.assertEqual(jobs.wait(30).states(), ["SUCCEEDED", "FAILED", "SUCCEEDED"])
        self.assertEqual(jobs[1:].states(), ["FAILED", "SUCCEEDED"])
        self.assertEqual((jobs[:1] + jobs[2:]).results(), [{}, {}])
        again = pickle.loads(pickle.dumps(jobs))
        self.assertEqual(again, jobs)
        self.assertIn("FAILED", again._repr_html_(), "a list shows the jobs as they are now")
        with self.assertRaises(trainyard.NotFound):
            client.cancel(4711)
        client.cancel(*jobs)

    def test_a_map_that_fails_in_the_middle_says_what_was_submitted_and_can_be_repeated(self):
        call, made = client.transport.call, []

        def failing(rpc, message=None, **more):
            if rpc == "JobService/CreateJob" and not message.get("validate_only"):
                made.append(message["request_id"])
                if len(made) == 3:
                    raise trainyard.QuotaExceeded("no room")
            return call(rpc, message, **more)

        values = [{"x": n} for n in range(4)]
        with unittest.mock.patch.object(client.transport, "call", failing):
            with self.assertRaisesRegex(trainyard.QuotaExceeded, "no room .after 2 of 4 jobs") as caught:
                client.map(["true"], values, request_id="py-map")
        first = caught.exception.jobs
        self.assertEqual(len(first), 2)
        jobs = client.map(["true"], values, request_id="py-map")
        self.assertEqual((len(set(jobs)), jobs[:2]), (4, first))

    def test_one_word_is_no_list_of_letters(self):
        first = client.submit(["true"], tags="alone", args="")
        later = client.submit(["true"], after=first.id, after_ok=first, tags=["alone"])
        self.assertEqual({each["job"] for each in later.data["dependencies"]}, {first.name})
        self.assertEqual(set(client.jobs(tags="alone")), {first, later})
        later.wait(30)
        self.assertEqual(set(client.jobs(states="succeeded", tags="alone")), {first, later})
        with self.assertRaisesRegex(trainyard.InvalidRequest, "no state 'DONE'"):
            client.jobs(states="done")

    def test_the_server_warns_in_python(self):
        with self.assertWarnsRegex(trainyard.TrainyardWarning, ".") as caught:
            client.submit(["true"], devices=64, wait_for_devices=True).cancel()
        self.assertEqual(caught.filename, __file__)

    def test_a_job_that_is_not_there_shows_that_in_a_notebook(self):
        self.assertIn("does not exist", trainyard.Job(client, "4711")._repr_html_())

    def test_each_line_of_several_ranks_has_its_rank_also_if_it_was_followed_from_the_queue(self):
        job = client.submit(["sh", "-c", "echo I am $RANK"], devices=2)
        self.assertEqual(sorted(job.logs(follow=True)), ["[0] I am 0", "[1] I am 1"])
        self.assertEqual(sorted(job.logs().splitlines()), ["[0] I am 0", "[1] I am 1"])
        self.assertEqual(list(job.logs(follow=True, rank=1)), ["I am 1"])

    def test_clone_takes_no_options_of_submit_for_parameters(self):
        job = client.submit(["true"], params={"x": 1})
        self.assertEqual(job.clone(name="second").data["spec"]["name"], "second")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "program.env.NAME"):
            job.clone(env={"A": "b"})
        with self.assertRaisesRegex(trainyard.InvalidRequest, "program.params.after"):
            job.clone(after=[job])
        self.assertEqual(job.clone(y=[1, 2]).params, {"x": 1, "y": [1, 2]})


class Code(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=yard.folder)) / "project"
        self.put("train.py", "from src import net\nprint('version', net.VERSION)\n")
        self.put("src/net.py", "VERSION = 'one'\n")
        self.put("src/__init__.py", f"# {self.id()}\n")
        self.put(".gitignore", "*.bin\n")
        self.put("data.bin", "not code")
        self.calls = []
        call = client.transport.call

        def counting(rpc, message=None, **more):
            self.calls.append(rpc)
            return call(rpc, message, **more)

        patch = unittest.mock.patch.object(client.transport, "call", counting)
        patch.start()
        self.addCleanup(patch.stop)

    def put(self, path, content):
        full = self.folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(content)

    def uploads(self):
        count = self.calls.count("CodeService/UploadCode")
        self.calls.clear()
        return count

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.folder), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                       capture_output=True)

    def output(self, job):
        job.result(30)
        return job.logs()

    def test_a_clone_runs_the_code_as_it_was_and_unchanged_code_is_sent_once(self):
        first = client.submit("train.py", code=self.folder)
        self.assertEqual((self.output(first), self.uploads()), ("version one\n", 1))
        second = client.submit(self.folder / "train.py", code=self.folder)
        self.assertEqual((self.output(second), self.uploads()), ("version one\n", 0))
        self.assertRegex(first.spec["program"]["code"], "^sha256:[0-9a-f]{64}$")
        self.assertEqual(first.spec["program"]["code"], second.spec["program"]["code"])
        told = yard.cli("code", "cat", str(first.id), "src/net.py", XDG_CACHE_HOME=yard.folder)
        self.assertEqual(told, "VERSION = 'one'\n")
        self.put("src/net.py", "VERSION = 'two'\n")
        self.assertEqual((self.output(first.clone()), self.uploads()), ("version one\n", 0))
        self.assertEqual((self.output(first.clone(code=self.folder)), self.uploads()), ("version two\n", 1))

    @unittest.skipIf(shutil.which("git") is None, "git is not installed")
    def test_it_is_the_archive_and_the_origin_of_the_command_line(self):
        self.git("init", "-b", "trunk")
        self.git("add", "-A")
        self.git("commit", "-m", "first")
        self.git("remote", "add", "origin", "https://anna:password@git.example/project.git")
        self.put("src/net.py", "VERSION = 'dirty'\n")
        ours = client.submit("train.py", code=self.folder)
        self.assertEqual(self.uploads(), 2, "the archive, and the differences to the commit")
        sent = yard.cli("submit", "--code", str(self.folder), "--", "python3", "train.py", XDG_CACHE_HOME=yard.folder)
        theirs = client.job(sent.strip())
        self.assertEqual(ours.spec["program"]["code"], theirs.spec["program"]["code"])
        self.assertEqual(ours.data["provenance"]["code"], theirs.data["provenance"]["code"])
        origin = ours.data["provenance"]["code"]
        self.assertEqual((origin["branch"], origin["remote"], origin["is_dirty"]),
                         ("trunk", "https://git.example/project.git", True))
        self.assertIn("+VERSION = 'dirty'", yard.cli("show", str(ours.id), "--code", XDG_CACHE_HOME=yard.folder))
        self.assertEqual(self.output(ours), "version dirty\n")
        self.assertEqual(ours.clone(code=self.folder).data["provenance"]["code"], origin)

    def test_it_starts_where_it_would_start_here(self):
        self.put("src/run.py", "import os\nprint(os.getcwd().endswith('src'), sorted(os.listdir('.'))[-1])\n")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        for here, what, directory in ((self.folder / "src", "run.py", None), (self.folder, "src/run.py", "src"),
                                      (self.folder.parent, "project/src/run.py", self.folder / "src"),
                                      (self.folder.parent, ["python3", "run.py"], "src")):
            os.chdir(here)
            self.assertEqual(self.output(client.submit(what, code=str(self.folder), directory=directory)), "True run.py\n")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "script 'no.py' is not in the folder"):
            client.submit("no.py", code=self.folder)
        with self.assertRaises(trainyard.NotFound):
            client.submit(["true"], code=self.folder / "none")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "code= is for programs"):
            client.submit({"name": "x", "model": "mlp"}, code=self.folder)

    def test_a_job_that_ran_in_the_folder_is_cloned_with_a_copy_of_it(self):
        job = client.submit("python3 -c 'import os; print(os.getcwd())'", directory=self.folder / "src")
        self.assertEqual(self.output(job), f"{self.folder}/src\n")
        printed = self.output(job.clone(code=self.folder))
        self.assertTrue(printed.endswith("/src\n") and str(self.folder) not in printed, printed)

    def test_the_folder_of_a_spec_is_relative_to_its_file(self):
        self.put("job.json", json.dumps({"name": "travels", "devices": 1, "program": {
            "code": ".", "command": [PYTHON, "train.py"]}}))
        self.assertEqual(self.output(client.submit(self.folder / "job.json")), "version one\n")

    def test_a_map_looks_at_a_folder_once(self):
        jobs = client.map([PYTHON, "-c", "from src import net; print(net.VERSION, {x})"], [{"x": n} for n in range(3)],
                          code=self.folder)
        self.assertEqual(([self.output(job) for job in jobs], self.uploads()), (["one 0\n", "one 1\n", "one 2\n"], 1))
        self.put("src/net.py", "VERSION = 'three'\n")
        with self.assertRaises(trainyard.InvalidRequest):
            client.map(["true"], [{"x": 1}, {"devices.cuont": 3}], code=self.folder)
        self.assertEqual(self.uploads(), 0, "all specs are checked before anything is sent")

    def test_what_cannot_travel_is_told(self):
        (self.folder / "out").symlink_to("/etc")
        with self.assertWarnsRegex(trainyard.TrainyardWarning, "'out' does not travel") as caught:
            client.submit(["true"], code=self.folder)
        self.assertEqual(caught.filename, __file__)
        with unittest.mock.patch.object(sender, "make_archive",
                                        lambda folder, file: archive.make_archive(folder, file, entries=2)):
            with self.assertRaisesRegex(trainyard.TrainyardError, "expected at most 256 MiB and 2") as large:
                client.submit(["true"], code=self.folder)
        self.assertEqual((large.exception.reason, large.exception.exit_code), ("CODE_TOO_LARGE", 1))

    def test_an_upload_survives_a_server_that_is_killed(self):
        (self.folder / "table.csv").write_bytes(os.urandom(3500000))
        call, seen = client.transport.call, []

        def killing(rpc, message=None, **more):
            answer = call(rpc, message, **more)
            seen.append(message["offset"] if rpc == "CodeService/UploadCode" else "")
            if seen[-1] == str(1 << 20) and seen.count(seen[-1]) == 1:
                yard.kill_server()
                yard.start_server()
            return answer

        with unittest.mock.patch.object(client.transport, "call", killing):
            job = client.submit(["wc", "-c", "table.csv"], code=self.folder)
        self.assertEqual(self.output(job), "3500000 table.csv\n")


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
