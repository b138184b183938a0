"""Tests of the parts of the Python client that need no server."""

import base64
import io
import json
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import trainyard
from trainyard import catalogue, contexts, dial, errors, page, records, specs, transport

PACKAGE = pathlib.Path(trainyard.__file__).parent


class InJob(unittest.TestCase):
    def test_the_first_file_works_alone_and_says_what_it_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "trainyard.py").write_text((PACKAGE / "__init__.py").read_text())
            script = ("import trainyard, os\n"
                      "assert trainyard.params == {} and not trainyard.in_job()\n"
                      "trainyard.log(1, loss=0.5)\n"
                      "with trainyard.checkpoint(3) as f: (f / 'a').write_text('x')\n"
                      "assert os.path.exists('checkpoints/step-3/a')\n"
                      "try: trainyard.connect\n"
                      "except AttributeError as e: print(e)\n")
            told = subprocess.run([sys.executable, "-B", "-c", script], cwd=folder, env={"PYTHONPATH": folder},
                                  capture_output=True, text=True, check=True).stdout
            self.assertIn("needs the whole package", told)

    def run_job(self, script, folder, **env):
        env = {"PYTHONPATH": str(PACKAGE.parent), "TRAINYARD_RUN_DIR": str(folder),
               "TRAINYARD_CHECKPOINT_DIR": f"{folder}/checkpoints", **env}
        return subprocess.run([sys.executable, "-B", "-c", script], cwd=folder, capture_output=True, text=True, check=True,
                              env=env)

    def test_a_request_to_stop_is_seen_without_the_signal(self):
        # As in a thread, and in a script whose own handler takes the signal.
        with tempfile.TemporaryDirectory() as folder:
            script = ("import pathlib, signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\nimport trainyard\n"
                      "print(trainyard.should_stop())\npathlib.Path('stop_requested').touch()\n"
                      "print(trainyard.should_stop(), trainyard.should_checkpoint())\n")
            self.assertEqual(self.run_job(script, folder).stdout.split(), ["False", "True", "True"])

    def test_metrics_wait_for_room_on_the_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            script = ("import errno, trainyard\n"
                      "trainyard.log(1, loss=1.0)\n"
                      "real = trainyard._metrics\n"
                      "class Full:\n"
                      "    room = 10\n"
                      "    def write(self, data):\n"
                      "        if not self.room: raise OSError(errno.ENOSPC, 'full')\n"
                      "        written, self.room = real.write(data[:self.room]), 0\n"
                      "        return written\n"
                      "trainyard._metrics = Full()\n"
                      "for step in range(2, 9): trainyard.log(step, loss=1.0)\n"
                      "trainyard._metrics = real\n"
                      "trainyard.log(9, loss=float('nan'))\n")
            told = self.run_job(script, folder).stderr
            self.assertEqual(told, "trainyard: the disk is full; metrics wait for room\n")
            lines = [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["step"] for line in lines], list(range(1, 10)))
            self.assertEqual(lines[-1]["metrics"], {"loss": "nan"})

    def test_a_second_checkpoint_of_a_step_does_no_harm(self):
        with tempfile.TemporaryDirectory() as folder:
            script = ("import trainyard\n"
                      "for text in ('first', 'second'):\n"
                      "    with trainyard.checkpoint(3) as f: (f / 'a').write_text(text)\n")
            self.run_job(script, folder)
            found = {path.relative_to(folder).as_posix(): path.read_text()
                     for path in pathlib.Path(folder, "checkpoints").rglob("*") if path.is_file()}
            self.assertEqual(found, {"checkpoints/step-3/a": "first"})

    def test_a_script_of_a_job_loads_nothing_of_the_client(self):
        told = subprocess.run([sys.executable, "-c", "import sys, trainyard; print('http.client' in sys.modules, "
                               "'trainyard.client' in sys.modules)"], capture_output=True, text=True, check=True,
                              env={"PYTHONPATH": str(PACKAGE.parent)}).stdout
        self.assertEqual(told.split(), ["False", "False"])


class Contexts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        patch = mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": self.folder.name, "XDG_STATE_HOME": self.folder.name})
        patch.start()
        self.addCleanup(patch.stop)
        for name in ("TRAINYARD_SERVER", "TRAINYARD_CONTEXT"):
            os.environ.pop(name, None)
        self.config = pathlib.Path(self.folder.name) / "trainyard" / "config.yaml"
        self.config.parent.mkdir()
        self.config.write_text("# mine\ncurrent: lab\ncontexts:\n  lab:\n    server: ssh://anna@lab.example  # there\n"
                               '  "odd name":\n    server: "unix:/tmp/a b"\n')

    def test_the_server_is_chosen_as_by_the_command_line(self):
        self.assertEqual(contexts.choose_server(), "ssh://anna@lab.example")
        self.assertEqual(contexts.choose_server(context="odd name"), "unix:/tmp/a b")
        self.assertEqual(contexts.choose_server("unix:/x"), "unix:/x")
        with mock.patch.dict(os.environ, {"TRAINYARD_SERVER": "unix:/env"}):
            self.assertEqual(contexts.choose_server(), "unix:/env")
            self.assertEqual(contexts.choose_server(context="lab"), "ssh://anna@lab.example")
        with self.assertRaises(errors.NotFound):
            contexts.choose_server(context="nope")

    def test_without_any_server_the_error_says_what_to_do(self):
        self.config.unlink()
        with mock.patch.object(contexts, "SYSTEM_SOCKET", self.folder.name + "/none"):
            with self.assertRaisesRegex(errors.Unreachable, "trainyard up"):
                contexts.choose_server()

    def test_a_config_file_that_is_none_is_told_with_its_line(self):
        for text in ("contexts:\n  - a\n", "just words\n"):
            with self.assertRaisesRegex(errors.InvalidRequest, "config.yaml:"):
                contexts.parse_config(text)

    def test_credentials_that_others_may_read_are_not_used(self):
        with self.assertRaises(errors.NotSignedIn):
            contexts.load_credentials("tls://lab.example:7070")
        folder = self.config.parent / "servers" / "lab.example_7070"
        folder.mkdir(parents=True)
        for name, text in (("authority.pem", "PEM"), ("name", "server.trainyard.internal\n"), ("token", "tyk_x\n")):
            (folder / name).write_text(text)
        (folder / "token").chmod(0o644)
        with self.assertRaises(errors.NotAllowed):
            contexts.load_credentials("tls://lab.example:7070")
        (folder / "token").chmod(0o600)
        self.assertEqual(contexts.load_credentials("tls:lab.example"), ("PEM", "server.trainyard.internal", "tyk_x"))
        # The token of a pod stays in the file in which Kubernetes renews it.
        of_pod = self.config.parent / "projected"
        of_pod.write_text("a.b.c")
        (folder / "token_file").write_text(f"{of_pod}\n")
        self.assertEqual(contexts.load_credentials("tls:lab.example").token, "a.b.c")


class Transport(unittest.TestCase):
    def test_an_address_for_ssh_means_nothing_to_a_shell(self):
        command = dial.ssh_command("ssh://anna@lab:2222/run/it's.sock")
        self.assertEqual(command[:4], ["ssh", "-T", "-a", "-x"])
        self.assertIn("'/run/it'\\''s.sock'", command[-1])
        self.assertEqual(command[-2], "lab")
        for bad in ("ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://a:b@c", "ssh://a;b", "ssh://-l@a", "ssh://a/b c"):
            with self.assertRaises(errors.InvalidRequest, msg=bad):
                dial.ssh_command(bad)

    def test_events_are_read_and_torn_ones_left_out(self):
        text = b": hello\n\nid: 4\ndata: {\"a\":1}\n\nevent: end\ndata: {}\n\nid: 5\ndata: {\"b\":"
        self.assertEqual(list(transport.read_events(io.BytesIO(text))), [("message", "4", '{"a":1}'), ("end", "", "{}")])

    def test_a_handle_is_pickled_without_its_token(self):
        made = transport.Transport("tls://lab:7070", token="tyk_secret")
        data = pickle.dumps(trainyard.Job(trainyard.Client(made), "jobs/3"))
        self.assertNotIn(b"tyk_secret", data)
        again = pickle.loads(data)
        self.assertEqual((again.name, again.client.transport.address), ("jobs/3", "tls://lab:7070"))

    def server(self, answer):
        """A socket at which `answer` gets each request, by its number, and returns the answer, or None to hang up."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{folder.name}/s")
        listener.listen()
        seen = []

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    while True:
                        head = []
                        while not head or head[-1] not in (b"", b"\r\n"):
                            head.append(lines.readline())
                        if head[-1] == b"":
                            break
                        lengths = [line for line in head if line.lower().startswith(b"content-length:")]
                        lines.read(int(lengths[0].split(b":")[1]) if lengths else 0)
                        seen.append(b"".join(head))
                        data = answer(len(seen), head)
                        if data is None:
                            break
                        connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()

        def stop():
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()

        self.addCleanup(stop)
        return f"unix:{folder.name}/s", seen

    @staticmethod
    def response(body, status="200 OK"):
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    def test_the_time_of_retries_begins_with_the_first_failure(self):
        # A long download that breaks off after a minute is not given up, and one that gets on never is.
        client = transport.Transport("unix:/none", retry_for=60.0)
        client._has_answered = True
        clock = [0.0]
        results = iter([ConnectionError, ConnectionError, ConnectionError, "done"])
        done = iter([1, 2, 3])

        def once():
            clock[0] += 50.0
            result = next(results)
            if result is ConnectionError:
                raise result("torn")
            return result

        with mock.patch.object(transport, "time") as time:
            time.monotonic = lambda: clock[0]
            self.assertEqual(client._repeat(once, progress=lambda: next(done)), "done")
            results = iter([ConnectionError] * 4)
            with self.assertRaises(trainyard.Unreachable):
                client._repeat(once)
        self.assertEqual(len(list(results)), 1)

    def test_a_connection_that_has_ended_meanwhile_is_opened_again_even_if_nothing_is_waited_for(self):
        address, seen = self.server(lambda number, head: None if number == 2 else self.response("{}"))
        client = transport.Transport(address)
        self.assertEqual(client.call("A/B"), {})
        self.assertEqual(client.call("A/B", retry_for=0), {})
        self.assertEqual(len(seen), 3)
        client.close()

    def test_a_token_that_was_renewed_is_used_without_another_connect(self):
        refusal = self.response('{"code": "unauthenticated", "message": "expired"}', "401 Unauthorized")
        address, _ = self.server(
            lambda number, head: self.response("{}") if b"Authorization: Bearer new\r\n" in head else refusal)
        client = transport.Transport(address)
        tokens = iter(["old", "new"])
        make = client._make_opener

        def opener():
            client._headers["Authorization"] = f"Bearer {next(tokens)}"
            return make()

        with mock.patch.object(client, "_make_opener", opener):
            with self.assertRaises(trainyard.NotSignedIn):
                client.call("A/B")
            self.assertEqual(client.call("A/B"), {})
        client.close()

    def test_a_python_that_cannot_see_a_certificate_raises_no_false_alarm(self):
        class Old:
            """A connection of Python 3.9."""

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def getpeercert(self, binary_form):
                return b"own certificate"

        with mock.patch.object(dial.socket, "create_connection") as connect, \
                mock.patch.object(dial.ssl.SSLContext, "wrap_socket", return_value=Old()):
            connect.return_value.__enter__ = lambda plain: plain
            connect.return_value.__exit__ = lambda *_: None
            with self.assertRaisesRegex(trainyard.TrainyardError, "Python before 3.10.*trainyard login lab:7070") as caught:
                dial.fetch_pinned("lab", 7070, "0" * 64)
        self.assertNotIsInstance(caught.exception, trainyard.NotSignedIn)

    def test_a_stream_whose_server_cannot_be_found_is_unreachable(self):
        made = transport.Transport("tls://127.0.0.1:1", token="tyk_x", fingerprint="0" * 64, retry_for=0.0)
        with self.assertRaises(trainyard.Unreachable):
            next(made.stream("JobService/WatchJobs", {}))

    def test_a_log_of_many_ranks_comes_once_after_a_lost_connection(self):
        # A server gives no ids for more than 64 ranks, so the stream begins anew.
        def chunk(rank, offset, text):
            return {"attempt": 1, "rank": rank, "offset": str(offset), "data": base64.b64encode(text).decode()}

        client = mock.Mock()
        client.call.return_value = {"placement": [{}, {}]}
        client.stream.return_value = iter([chunk(0, 0, b"a\nb"), chunk(1, 0, b"x\n"), chunk(0, 0, b"a\nbc\nd"),
                                           chunk(1, 0, b"x\n"), chunk(0, 6, b"e\n"), dict(chunk(0, 0, b"z\n"), attempt=2)])
        job = trainyard.Job(client, "7")
        self.assertEqual(list(job.logs(follow=True)), ["[0] a", "[1] x", "[0] bc", "[0] de", "[0] z"])

    def test_waiting_for_a_job_is_not_longer_than_its_time_if_the_server_is_away(self):
        client = mock.Mock()
        client.transport.retry_for = 60.0
        client.call.side_effect = trainyard.Unreachable("away")
        with self.assertRaises(trainyard.Unreachable):
            trainyard.Job(client, "7").wait(timeout=0.5)
        self.assertLessEqual(client.call.call_args.kwargs["retry_for"], 0.5)

    def test_without_a_server_the_first_call_says_so_at_once(self):
        with self.assertRaises(trainyard.Unreachable) as caught:
            trainyard.connect("unix:/tmp/no/such.sock")
        self.assertEqual(caught.exception.exit_code, 9)
        with self.assertRaises(trainyard.InvalidRequest):
            trainyard.connect("http://lab")


class Errors(unittest.TestCase):
    def test_each_code_has_its_class_and_errors_can_be_pickled(self):
        body = {"code": "invalid_argument", "message": "two mistakes", "details": [
            {"type": "google.rpc.ErrorInfo", "debug": {"reason": "INVALID_SPEC", "metadata": {"a": "b"}}},
            {"type": "google.rpc.BadRequest", "debug": {"fieldViolations": [
                {"field": "spec.x", "description": "is bad"}, {"field": "spec.y", "description": "is worse"}]}}]}
        error = pickle.loads(pickle.dumps(errors.error_of(body)))
        self.assertIsInstance(error, trainyard.InvalidRequest)
        self.assertEqual((error.reason, error.exit_code, error.metadata), ("INVALID_SPEC", 2, {"a": "b"}))
        self.assertIn("spec.y: is worse", str(error))
        for code, kind in (("not_found", trainyard.NotFound), ("permission_denied", trainyard.NotAllowed),
                           ("deadline_exceeded", TimeoutError), ("new_code", trainyard.TrainyardError)):
            self.assertIsInstance(errors.error_of({"code": code, "message": "m"}), kind)


class Specs(unittest.TestCase):
    def test_commands_scripts_and_mappings_become_specs(self):
        spec = specs.make("train.py", args=["--x", 1], params={"lr": 0.5}, devices=2, env={"A": "b"})
        self.assertEqual(spec["program"]["command"], ["python3", "train.py", "--x", "1"])
        self.assertEqual((spec["name"], spec["devices"], spec["program"]["params"]), ("train.py", 2, {"lr": 0.5}))
        self.assertEqual(specs.make("sh -c 'echo a b'")["program"]["command"], ["sh", "-c", "echo a b"])
        given = {"name": "m", "program": {"command": ["x"], "params": {"a": 1}}}
        made = specs.make(given, params={"b": 2})
        self.assertEqual(made["program"]["params"], {"a": 1, "b": 2})
        self.assertEqual(given["program"]["params"], {"a": 1}, "what was given stays as it is")
        with self.assertRaises(errors.InvalidRequest):
            specs.make({"name": "m"}, params={"a": 1})
        self.assertEqual(specs.make("train.py", args="--x '1 2'", tags="t")["program"]["command"],
                         ["python3", "train.py", "--x", "1 2"])
        self.assertEqual(specs.make(pathlib.Path("run"), tags="t")["program"]["command"], ["./run"])
        self.assertEqual(specs.make("true", tags="one")["tags"], ["one"])
        for options in ({"args": ["x"]}, {"directory": "/x"}):
            with self.assertRaisesRegex(errors.InvalidRequest, "belongs to a script or a command"):
                specs.make(given, **options)
        with self.assertRaisesRegex(errors.InvalidRequest, "split into words"):
            specs.make("sh -c 'echo")

    def test_the_environment_is_that_of_the_python_that_runs(self):
        # The kernel of a notebook is started without a shell that has activated its environment.
        def environment():
            return specs.make("train.py")["program"].get("environment")

        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"CONDA_PREFIX": "/base"}):
            os.environ.pop("VIRTUAL_ENV", None)
            with mock.patch.object(sys, "prefix", folder):
                self.assertEqual(environment(), {"venv": folder})
                os.mkdir(f"{folder}/conda-meta")
                self.assertEqual(environment(), {"conda": folder})
            with mock.patch.object(sys, "prefix", sys.base_prefix):
                self.assertEqual(environment(), {"conda": "/base"})
                os.environ["VIRTUAL_ENV"] = "/shell"
                self.assertEqual(environment(), {"venv": "/shell"})

    def test_variables_are_texts(self):
        with mock.patch.dict(os.environ, {"HERE": "h"}):
            env = specs.make("true", env={"A": 4, "HERE": None, "P": pathlib.Path("/p")})["program"]["env"]
        self.assertEqual(env, {"A": "4", "HERE": "h", "P": "/p"})
        with self.assertRaisesRegex(errors.InvalidRequest, "no such variable here"):
            specs.make("true", env={"NOT_THERE": None})

    def test_numbers_of_numpy_are_numbers_and_others_are_named(self):
        class Scalar:
            def __init__(self, value):
                self.value = value

            def tolist(self):
                return self.value

        params = {"n": Scalar(3), "a": Scalar([1.5, 2.0]), "t": (1, 2), "p": pathlib.Path("/x"), "b": True, "none": None}
        made = specs.make("true", params=params)["program"]["params"]
        self.assertEqual(made, {"n": 3, "a": [1.5, 2.0], "t": [1, 2], "p": "/x", "b": True, "none": None})
        for bad, message in (({"x": [0, float("nan")]}, r"x\[1\] is nan"), ({"x": {"y": {1}}}, "x.y is of type set")):
            with self.assertRaisesRegex(errors.InvalidRequest, message):
                specs.make("true", params=bad)
            with self.assertRaises(errors.InvalidRequest):
                specs.changes({"program": {}}, bad, {})
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not there")
        made = specs.make("true", params={"lr": numpy.float32(0.5), "n": numpy.int64(7), "v": numpy.arange(3)})
        self.assertEqual(json.dumps(made["program"]["params"]), '{"lr": 0.5, "n": 7, "v": [0, 1, 2]}')

    def test_fields_are_set_by_their_paths(self):
        spec = specs.make("true", set={"outputs": ["a/**"], "resources.cpus": 8, "schedule.cosine.warmup": 2})
        self.assertEqual((spec["outputs"], spec["resources"], spec["schedule"]),
                         (["a/**"], {"cpus": 8}, {"cosine": {"warmup": 2}}))
        spec = {"schedule": "cosine", "layers": [{"channels": 1}, [1, 2]], "x": 1}
        for path, value in (("schedule.cosine.warmup", 3), ("layers[0].channels", 64), ("layers[1][0]", 9), ("x", None)):
            specs.set_path(spec, path, value)
        self.assertEqual(spec, {"schedule": {"cosine": {"warmup": 3}}, "layers": [{"channels": 64}, [9, 2]]})
        for path in ("layers[2].x", "layers[1][7]", "schedule[0].x", "a..b", "a[x]", ""):
            with self.assertRaises(errors.InvalidRequest, msg=path):
                specs.set_path(spec, path, 1)

    def test_a_file_has_numbers_where_the_command_line_has_them(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("PyYAML is not there")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.yaml"
            path.write_text("name: a\nx: {a: 5e-4, b: 1e6, c: on, d: 010, e: 1.5, f: true, g: 12:30, h: }\n")
            self.assertEqual(specs.load_file(path)["x"], {"a": 5e-4, "b": 1e6, "c": "on", "d": 10, "e": 1.5, "f": True,
                                                          "g": "12:30", "h": None})
            path.write_text("a: [1\n")
            with self.assertRaises(errors.InvalidRequest):
                specs.load_file(path)

    def test_a_change_by_name_finds_its_field(self):
        spec = {"optimizer": {"sgd": {"lr": 0.1}}, "train": {"epochs": 2}}
        self.assertEqual(specs.changes(spec, {"lr": 0.3}, {}), [{"path": "optimizer.sgd.lr", "value_json": "0.3"}])
        self.assertEqual(specs.changes({"program": {}}, {"lr": "a"}, {"devices": None}),
                         [{"path": "devices", "value_json": ""}, {"path": "program.params.lr", "value_json": '"a"'}])
        with self.assertRaisesRegex(errors.InvalidRequest, "no field 'momentum'"):
            specs.changes(spec, {"momentum": 1}, {})
        with self.assertRaisesRegex(errors.InvalidRequest, "a.x, b.x"):
            specs.changes({"a": {"x": 1}, "b": {"x": 2}}, {"x": 1}, {})


    def test_a_spec_of_the_server_gets_the_form_of_a_file(self):
        given = {"name": "12", "tags": ["7"], "devices": {"count": 1, "type": ""}, "schedule": {"warmup_steps": "100"},
                 "stages": {"schedule": "PIPELINE_SCHEDULE_1F1B", "cuts": ["3"]},
                 "checkpoint": {"every": {"epochs": "1"}},
                 "train": {"seed": "9007199254740991", "precision": "PRECISION_AUTO", "global_batch": "-2"},
                 "notify": {"events": ["NOTIFY_EVENT_END"], "mail": "a@b"}, "on_disconnect": {"keep": "600s"},
                 "model": {"resnet": {"input": ["3", "32", "32"], "stem": "STEM_CIFAR"}},
                 "program": {"command": ["true", "1"], "env": {"A": "1", "stem": "STEM_CIFAR"},
                             "params": {"n": "1", "text": '"1"', "word": "a", "none": "null", "list": "[1]"}},
                 "sweep": {"parameters": {"train.seed": "[1,2]", "optimizer.sgd.lr": "log(1e-3, 1)"},
                           "search": "SWEEP_SEARCH_ASHA"}}
        before = json.dumps(given)
        self.assertEqual(specs.as_written(given), {
            "name": "12", "tags": ["7"], "devices": {"count": 1, "type": ""}, "schedule": {"warmup_steps": 100},
            "stages": {"schedule": "1f1b", "cuts": ["3"]}, "checkpoint": {"every": {"epochs": 1}},
            "train": {"seed": 9007199254740991, "precision": "auto", "global_batch": -2},
            "notify": {"events": ["end"], "mail": "a@b"}, "on_disconnect": {"keep": "600s"},
            "model": {"resnet": {"input": [3, 32, 32], "stem": "cifar"}},
            "program": {"command": ["true", "1"], "env": {"A": "1", "stem": "STEM_CIFAR"},
                        "params": {"n": 1, "text": "1", "word": "a", "none": None, "list": [1]}},
            "sweep": {"parameters": {"train.seed": [1, 2], "optimizer.sgd.lr": "log(1e-3, 1)"}, "search": "asha"}})
        self.assertEqual(json.dumps(given), before, "what was given stays as it is")

    def test_all_choices_of_specs_are_known(self):
        folder = PACKAGE.parents[2] / "proto" / "trainyard" / "v1"
        text = "".join((folder / f"{name}.proto").read_text() for name in ("spec", "training", "program", "sweep"))
        prefixes = dict(re.findall(r"^enum (\w+) \{.*?(\w+_)UNSPECIFIED = 0;", text, re.MULTILINE | re.DOTALL))
        fields = re.findall(rf"^  (?:repeated |optional )?({'|'.join(prefixes)}) (\w+) = ", text, re.MULTILINE)
        self.assertEqual({field: prefixes[kind] for kind, field in fields}, specs._CHOICES)

    def test_differences_are_named_by_their_paths(self):
        left = {"a": {"b": 1, "c": [1, 2]}, "stack": [{"x": 1}, {"y": 1}], "gone": 0, "same": [{}]}
        right = {"a": {"b": 2, "c": [1]}, "stack": [{"x": 1}, {"y": 2}], "new": {"z": 1}, "same": [{}]}
        self.assertEqual(specs.differences(left, right), {
            "a.b": (1, 2), "a.c": ([1, 2], [1]), "stack[1].y": (1, 2), "gone": (0, None), "new": (None, {"z": 1})})
        self.assertEqual(specs.differences({"l": [{"x": 1}]}, {"l": [{"x": 1}, {}]}),
                         {"l": ([{"x": 1}], [{"x": 1}, {}])})
        self.assertEqual(specs.differences(left, left), {})

    def test_a_sweep_is_made_of_what_is_given_and_of_what_the_spec_has(self):
        spec = {"program": {}, "sweep": {"parameters": {"devices.count": [1, 2]}, "maximize": "a", "trials": 3}}
        specs.add_sweep(spec, {"x": range(2), "train.seed": "int(1, 3)"}, {"search": "grid"}, minimize="b")
        self.assertEqual(spec["sweep"], {
            "parameters": {"devices.count": [1, 2], "program.params.x": [0, 1], "train.seed": "int(1, 3)"},
            "minimize": "b", "trials": 3, "search": "grid"})
        with self.assertRaisesRegex(errors.InvalidRequest, "x is of type set"):
            specs.add_sweep(spec, {"x": {1, 2}}, {})
        spec = {"optimizer": {"sgd": {"lr": 0.1}}}
        specs.add_sweep(spec, {"lr": "log(1e-3, 1)"}, {})
        self.assertEqual(spec["sweep"], {"parameters": {"optimizer.sgd.lr": "log(1e-3, 1)"}})

    def test_saved_specs_have_names_and_versions(self):
        for name, full in (("a-b.c_1", "specs/a-b.c_1"), ("a@12", "specs/a/versions/12"), ("specs/a", "specs/a"),
                           ("specs/a/versions/3", "specs/a/versions/3")):
            self.assertEqual(catalogue.full_name(name), full)
        for bad in ("", "1a", "a@", "a@x", "a b", "specs/", "specs/a/versions/", "a@1/versions/2"):
            with self.assertRaises(errors.InvalidRequest, msg=bad):
                catalogue.full_name(bad)
        self.assertTrue(catalogue.names_version("resnet@2"))
        for command in ("resnet", "ssh me@host", "git@host:2", "train.py", ["a@2"], "specs/a/versions/1"):
            self.assertFalse(catalogue.names_version(command))


class Pages(unittest.TestCase):
    def test_all_texts_are_escaped(self):
        evil = "<script>alert('x')</script>"
        shown = page.job("jobs/1", evil, {"user": evil, "queue_reasons": [evil], "failure": {"message": evil},
                                          "spec": {"name": evil}, "final_metrics": {evil: 1.0}}, evil,
                         [(1, 2.0), (2, float("nan")), (3, 1.0)])
        self.assertNotIn("<script", shown)
        self.assertIn("&lt;script", shown)
        self.assertIn("<polyline", shown)
        self.assertNotIn("nan", shown)

    def test_texts_of_a_sweep_are_escaped(self):
        evil = "<script>alert('x')</script>"
        shown = page.sweep("sweeps/1", evil, {"user": evil, "title": evil, "reason": evil, "trials_total": 2},
                           ["trial", evil], [[0, evil], [1, ""]])
        self.assertNotIn("<script", shown)
        self.assertEqual((shown.count("&lt;script"), "0 of 2 begun" in shown), (6, True))

    def test_a_long_list_is_cut_off(self):
        shown = page.jobs([(f"jobs/{n}", "QUEUED", {}) for n in range(1500)])
        self.assertEqual((shown.count("QUEUED"), "and 1,300 more" in shown), (200, True))

    def test_a_curve_without_finite_points_is_left_out(self):
        self.assertEqual(page.curve("loss", [(1, float("inf"))]), "")
        self.assertIn("<svg", page.curve("loss", [(1, 1.0)]))

    def test_metrics_become_a_file(self):
        metrics = records.Metrics({"loss": [records.Point(1, 2.0, 1), records.Point(2, float("nan"), 2)],
                                   'a "b", c': [records.Point(2, 0.0, 2)]})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "points.csv"
            metrics.to_csv(path)
            self.assertEqual(path.read_text(), "step,name,value,attempt\n"
                             '1,loss,2.0,1\n2,loss,nan,2\n2,"a ""b"", c",0.0,2\n')

    def test_metrics_become_a_frame_if_pandas_is_there(self):
        metrics = records.Metrics({"loss": [records.Point(1, 2.0), records.Point(2, 1.0)], "acc": [records.Point(2, 0.5)]})
        self.assertEqual(metrics.steps("loss"), [1, 2])
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not there")
        frame = metrics.to_pandas()
        self.assertEqual(list(frame["loss"]), [2.0, 1.0])


if __name__ == "__main__":
    unittest.main()
