"""Tests of the parts of the Python client that need no server."""

import io
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import trainyard
from trainyard import contexts, errors, handles, page, specs, transport

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


class Transport(unittest.TestCase):
    def test_an_address_for_ssh_means_nothing_to_a_shell(self):
        command = transport.ssh_command("ssh://anna@lab:2222/run/it's.sock")
        self.assertEqual(command[:4], ["ssh", "-T", "-a", "-x"])
        self.assertIn("'/run/it'\\''s.sock'", command[-1])
        self.assertEqual(command[-2], "lab")
        for bad in ("ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://a:b@c", "ssh://a;b", "ssh://-l@a", "ssh://a/b c"):
            with self.assertRaises(errors.InvalidRequest, msg=bad):
                transport.ssh_command(bad)

    def test_events_are_read_and_torn_ones_left_out(self):
        text = b": hello\n\nid: 4\ndata: {\"a\":1}\n\nevent: end\ndata: {}\n\nid: 5\ndata: {\"b\":"
        self.assertEqual(list(transport.read_events(io.BytesIO(text))), [("message", "4", '{"a":1}'), ("end", "", "{}")])

    def test_a_handle_is_pickled_without_its_token(self):
        made = transport.Transport("tls://lab:7070", token="tyk_secret")
        data = pickle.dumps(trainyard.Job(trainyard.Client(made), "jobs/3"))
        self.assertNotIn(b"tyk_secret", data)
        again = pickle.loads(data)
        self.assertEqual((again.name, again.client.transport.address), ("jobs/3", "tls://lab:7070"))

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

    def test_a_curve_without_finite_points_is_left_out(self):
        self.assertEqual(page.curve("loss", [(1, float("inf"))]), "")
        self.assertIn("<svg", page.curve("loss", [(1, 1.0)]))

    def test_metrics_become_a_frame_if_pandas_is_there(self):
        metrics = handles.Metrics({"loss": [handles.Point(1, 2.0), handles.Point(2, 1.0)], "acc": [handles.Point(2, 0.5)]})
        self.assertEqual(metrics.steps("loss"), [1, 2])
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not there")
        frame = metrics.to_pandas()
        self.assertEqual(list(frame["loss"]), [2.0, 1.0])


if __name__ == "__main__":
    unittest.main()
