"""Tests of sweeps and saved specs of the Python client, and of the examples of its page, with the real programs."""

import os
import pathlib
import pickle
import re
import tempfile
import unittest
import unittest.mock

import trainyard
from programs import Yard, wait_for

CLIENT = pathlib.Path(trainyard.__file__).parents[1]
DOCS = CLIENT.parents[1] / "docs"
PYTHON = "/usr/bin/python3"
# A trial whose score is its rate, and that fails for a rate of 3 unless there is a file.
TRIAL = ("import os, sys, trainyard\n"
         "rate = trainyard.params['rate']\n"
         "if rate == 3 and not os.path.exists(sys.argv[1]): sys.exit(4)\n"
         "trainyard.log(1, score=rate)\n")


def setUpModule():
    global yard, client
    yard = Yard()
    client = trainyard.connect(yard.address)
    wait_for(client.workers, "the worker")


def tearDownModule():
    client.transport.close()
    yard.close()


def begin(rates, script=TRIAL, **options):
    options = {"maximize": "score", "search": "grid", "env": {"PYTHONPATH": CLIENT}, **options}
    return client.sweep([PYTHON, "-B", "-c", script, f"{yard.folder}/mended"], {"rate": rates}, **options)


def steps_to(count):
    """A spec of a small network, which trains for so many steps."""
    return {"name": "small", "model": {"mlp": {"hidden": [8]}}, "data": {"dataset": "glyphs", "train_size": 500},
            "train": {"steps": count, "global_batch": 50}, "optimizer": {"sgd": {"lr": 0.05}}, "schedule": "constant",
            "evaluate": {"every": f"{max(count // 4, 1)} steps"}}


class Sweeps(unittest.TestCase):
    def test_a_sweep_is_followed_to_its_best_trial(self):
        sweep = begin([0.5, 2, 1.5], name="rates", tags="py")
        told = list(sweep.follow())
        self.assertEqual((told[0], told[-1]), ("trial 0 begins", "the sweep has ended: all trials have ended"))
        self.assertEqual((sweep.state, sweep.done, sweep.user), ("SUCCEEDED", True, client.whoami()))
        self.assertEqual([(trial.number, trial.values, trial.value, trial.state) for trial in sweep.trials],
                         [(0, {"program.params.rate": 0.5}, 0.5, "SUCCEEDED"),
                          (1, {"program.params.rate": 2}, 2.0, "SUCCEEDED"),
                          (2, {"program.params.rate": 1.5}, 1.5, "SUCCEEDED")])
        best = sweep.best()
        self.assertEqual((best.number, best.step, best.job.result(30)), (1, 1, {"score": 2.0}))
        self.assertEqual(best.job.params, {"rate": 2})
        self.assertEqual({trial.job for trial in sweep.trials}, set(client.jobs(where=f"sweep = {sweep.id}")))
        self.assertEqual((sweep.spec["tags"], sweep.spec["sweep"]["search"], sweep.spec["sweep"]["parameters"]),
                         (["py"], "grid", {"program.params.rate": [0.5, 2, 1.5]}))
        self.assertIsNotNone(sweep.created)
        listed = client.sweeps()[0]
        self.assertEqual((listed, listed.spec["name"]), (sweep, "rates"))
        self.assertEqual(client.sweeps(user="nobody"), [])
        self.assertEqual(list(client.sweep(sweep.id).follow()), told, "all decisions can be read later")
        shown = sweep._repr_html_()
        self.assertLess(shown.index(">2<"), shown.index(">1.5<"), "the best trial comes first")
        self.assertLess(shown.index(">1.5<"), shown.index(">0.5<"))

    def test_a_sweep_stops_goes_on_and_runs_what_has_failed_again(self):
        with self.assertRaises(trainyard.TimedOut):
            sweep = begin([1, 2, 3], TRIAL + "import time\ntime.sleep(0.5)\n", concurrent=1)
            sweep.wait(timeout=0.1)
        self.assertEqual(sweep.stop().wait(30).state, "STOPPED")
        with self.assertRaises(trainyard.Conflict):
            sweep.delete()
        self.assertEqual(sweep.resume().wait(60).state, "SUCCEEDED")
        self.assertEqual([trial.state for trial in sweep.trials], ["SUCCEEDED", "SUCCEEDED", "FAILED"])
        failed = sweep.trials[2]
        self.assertIsNone(failed.value)
        self.assertIn("FAILED", sweep._repr_html_())
        pathlib.Path(yard.folder, "mended").touch()
        self.assertEqual(sweep.resume(failed=True).wait(60).best().values, {"program.params.rate": 3})
        self.assertNotEqual(sweep.best().job, failed.job)
        sweep.delete()
        self.assertEqual(failed.job.state, "FAILED", "jobs stay")
        for gone in (lambda: sweep.state, lambda: client.sweep(sweep.name), sweep.wait):
            with self.assertRaises(trainyard.NotFound):
                gone()
        self.assertIn("there is no", sweep._repr_html_())

    def test_a_sweep_that_is_cancelled_has_no_best_trial_and_cannot_go_on(self):
        sweep = begin([1], "import time\ntime.sleep(60)\n")
        with self.assertRaisesRegex(trainyard.NotFound, "told a value of score"):
            sweep.best()
        self.assertEqual(sweep.stop(cancel=True).wait(30).state, "STOPPED")
        with self.assertRaisesRegex(trainyard.Conflict, "has ended for good"):
            sweep.resume()
        sweep.delete()

    def test_trials_of_a_network_are_halved(self):
        sweep = client.sweep(steps_to(40), {"lr": "log(1e-3, 0.5)"}, minimize="test.loss", search="asha", trials=4,
                             set={"sweep.factor": 2}, seed=3)
        self.assertEqual(sweep.wait(90).state, "SUCCEEDED")
        self.assertEqual(len(sweep.data["rungs"]), 3)
        self.assertEqual(len(sweep.trials), 4)
        best = sweep.best()
        self.assertEqual((best.state, best.rung), ("SUCCEEDED", 2))
        self.assertAlmostEqual(best.job.spec["optimizer"]["sgd"]["lr"], best.values["optimizer.sgd.lr"])

    def test_mistakes_are_told_with_their_fields(self):
        with self.assertRaises(trainyard.InvalidRequest) as caught:
            begin("lgo(1, 2)")
        self.assertIn("spec.sweep.parameters", caught.exception.violations[0][0])
        with self.assertRaisesRegex(trainyard.InvalidRequest, "has no sweep; say what is searched"):
            client.sweep(["true"])
        with self.assertRaisesRegex(trainyard.InvalidRequest, "no field 'rate'"):
            client.sweep(steps_to(4), {"rate": [1, 2]}, maximize="test.accuracy")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "sweep that has begun"):
            client.sweep(1, {"rate": [1, 2]})
        with self.assertRaisesRegex(trainyard.InvalidRequest, "sweep"):
            client.submit({**steps_to(4), "sweep": {"parameters": {"train.seed": [1, 2]}, "maximize": "test.accuracy"}})
        with self.assertRaises(trainyard.NotFound):
            client.sweep(4711)

    def test_what_a_spec_searches_is_overridden(self):
        spec = {"name": "s", "program": {"command": ["true"], "params": {"rate": 1}},
                "sweep": {"parameters": {"program.params.rate": [1, 2]}, "maximize": "score", "trials": 2}}
        sweep, again = [client.sweep(spec, {"depth": [3]}, minimize="loss", trials=1, request_id="py-sweep")
                        for _ in range(2)]
        self.assertEqual(sweep, again, "a repeated call is one sweep")
        self.assertEqual({"maximize", "minimize"} & set(sweep.spec["sweep"]), {"minimize"})
        self.assertEqual(sweep.spec["sweep"]["parameters"],
                         {"program.params.rate": [1, 2], "program.params.depth": [3]})
        self.assertEqual(sweep.wait(30).state, "FAILED", "no trial has told a value")

    def test_a_sweep_is_followed_through_a_server_that_is_killed(self):
        sweep = begin([1, 2, 4, 5], TRIAL + "import time\ntime.sleep(0.3)\n")
        told = []
        for decision in sweep.follow():
            told.append(decision)
            if len(told) == 2:
                yard.kill_server()
                yard.start_server()
        self.assertEqual(told, list(sweep.follow()), "nothing is lost and nothing comes twice")
        self.assertEqual((sweep.state, sweep.best().value), ("SUCCEEDED", 5.0))

    def test_handles_are_pickled(self):
        sweep = begin([1, 2]).wait(30)
        again = pickle.loads(pickle.dumps(sweep))
        with again.client:
            self.assertEqual((again, hash(again), again.state), (sweep, hash(sweep), "SUCCEEDED"))
        self.assertEqual(pickle.loads(pickle.dumps(sweep.best())).job, sweep.best().job)

    def test_trials_become_a_frame_if_pandas_is_there(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not there")
        frame = begin([1, 2]).wait(30).to_pandas()
        self.assertEqual(list(frame["score"]), [1.0, 2.0])
        self.assertEqual(list(frame["program.params.rate"]), [1, 2])


class Catalogue(unittest.TestCase):
    def test_versions_are_saved_found_and_deleted(self):
        job = client.submit(["sh", "-c", "echo {x} {s}"], params={"x": 1, "s": "0.5"})
        job.result(30)
        first = client.save_spec(job, "echo", note="as it ran", tags="old")
        second = client.save_spec(["sh", "-c", "echo {x} {s}"], "echo", params={"x": 2, "s": "b"}, tags=["new", "py"])
        self.assertEqual((first.name, second.name, second.version), ("echo@1", "echo@2", 2))
        self.assertEqual((first.note, first.tags, first.job, first.user), ("as it ran", ["old"], job, client.whoami()))
        self.assertEqual((second.job, second.tags), (None, ["new", "py"]))
        self.assertIsNotNone(second.created)
        for name, found in (("echo", second), ("echo@1", first), ("specs/echo", second),
                            ("specs/echo/versions/1", first)):
            self.assertEqual(client.saved_spec(name), found)
        self.assertEqual(second.history(), [second, first])
        self.assertEqual(client.saved_specs("ECH"), [second])
        self.assertEqual(client.saved_specs(tags=["new", "py"])[0].spec["program"]["params"], {"x": 2, "s": "b"})
        self.assertEqual(client.saved_specs(tags="old"), [], "only the newest version counts")
        self.assertEqual(first.diff(second)["program.params.s"], ("0.5", "b"))
        self.assertEqual(first.diff(job), {})
        self.assertEqual(client.save_spec(job.id, "other").job, job)
        self.assertEqual(pickle.loads(pickle.dumps(first)).spec, first.spec)
        first.delete()
        self.assertEqual(client.saved_spec("echo").history(), [second])
        second.delete(all_versions=True)
        with self.assertRaises(trainyard.NotFound):
            client.saved_spec("echo")

    def test_a_saved_spec_runs_as_it_was_and_with_changes(self):
        job = client.submit(["sh", "-c", "echo {x} {s} $A"], params={"x": 1, "s": "0.5", "n": "12"}, env={"A": "7"},
                            devices=2)
        job.result(30)
        saved = client.save_spec(job, "runs")
        again = client.submit(saved)
        again.result(30)
        self.assertEqual((again.logs(), again.spec), (job.logs(), job.spec))
        self.assertEqual(again.params, {"x": 1, "s": "0.5", "n": "12"})
        self.assertEqual(again.data["provenance"]["saved_spec"], "specs/runs/versions/1")
        changed = client.submit("runs@1", params={"x": 3}, devices=1, set={"time_limit": "1h"})
        changed.result(30)
        self.assertEqual(changed.logs(), "3 0.5 7\n")
        self.assertEqual(changed.spec["devices"]["count"], 1)
        self.assertEqual([job.params["x"] for job in client.map("runs@1", [{"x": 5}, {"x": 6}], devices=0)], [5, 6])
        self.assertEqual(client.jobs(limit=1)[0].data["provenance"]["saved_spec"], "specs/runs/versions/1")
        sweep = client.sweep("runs@1", {"x": [1, 2]}, maximize="score", search="grid", devices=0)
        self.assertEqual(sweep.spec["program"]["params"], {"x": 1, "s": "0.5", "n": "12"})
        sweep.stop(cancel=True)
        with self.assertRaises(trainyard.NotFound):
            client.submit("none@1")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "no name of a saved spec"):
            client.saved_spec("a b")
        with self.assertRaisesRegex(trainyard.InvalidRequest, "a job is saved as it ran"):
            client.save_spec(job, "runs", devices=3)

    def test_every_published_spec_can_be_changed_and_is_otherwise_the_same(self):
        published = client.saved_specs(tags="published")
        self.assertGreater(len(published), 10)
        for saved in published:
            with self.subTest(saved.name):
                made = client.call("SpecService/SaveSpec", {"name": "x", "validate_only": True, "spec": {
                    **saved.spec, "devices": {**saved.spec["devices"], "spread": True}, "time_limit": "90 min"}})
                there = trainyard.SavedSpec(client, {**made, "name": "specs/x/versions/1"})
                self.assertEqual(saved.diff(there), {"devices.spread": (False, True), "time_limit": (None, "5400s")})

    def test_a_spec_of_a_network_is_saved_before_it_has_run(self):
        saved = client.save_spec(steps_to(4), "network", set={"name": "renamed"})
        job = client.submit(saved, set={"train.steps": 2, "optimizer.sgd.lr": 0.1})
        self.assertEqual(job.wait(60).state, "SUCCEEDED", job.data.get("failure"))
        self.assertEqual(saved.diff(job)["train.steps"], (4, 2))
        # The spec of a job can be submitted as well.
        twice = client.submit(job.spec, set={"train.steps": 3}).wait(60)
        self.assertEqual((twice.state, twice.spec["name"]), ("SUCCEEDED", "renamed"))

    def test_code_stays_with_a_saved_spec(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=yard.folder))
        (folder / "train.py").write_text("print('travels')\n")
        saved = client.save_spec(folder / "train.py", "travels", code=folder)
        (folder / "train.py").unlink()
        job = client.submit(saved)
        job.result(30)
        self.assertEqual(job.logs(), "travels\n")

    def test_a_lineage_names_the_relatives_of_a_job(self):
        job = client.submit(client.save_spec(["true"], "kin"))
        clone = job.wait(30).clone(name="second")
        clone.wait(30)
        found = job.lineage()
        self.assertEqual([(each["name"], each["state"]) for each in found],
                         [(job.name, "SUCCEEDED"), (clone.name, "SUCCEEDED")])
        self.assertEqual([[(link["kind"], link["parent"]) for link in each["links"]] for each in found],
                         [[("SAVED_SPEC", "specs/kin/versions/1")], [("CLONE", job.name)]])
        with self.assertWarnsRegex(trainyard.TrainyardWarning, "more than 1 relatives"):
            self.assertEqual(len(job.lineage(max_jobs=1)), 1)


class Documentation(unittest.TestCase):
    def test_the_examples_run(self):
        examples = re.findall(r"^```python\n(.*?)^```$", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(examples), 3)
        folder = pathlib.Path(tempfile.mkdtemp(dir=yard.folder))
        (folder / "train.py").write_text("import trainyard\nprint('one line')\n"
                                         "trainyard.log(1, loss=trainyard.params['lr'] / 6)\n")
        # A host that runs jobs of Python has the package; here the folder does.
        (folder / "trainyard.py").write_text((CLIENT / "trainyard" / "__init__.py").read_text())
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(folder)
        names = {}
        with unittest.mock.patch.dict(os.environ, {"TRAINYARD_SERVER": yard.address}), \
                unittest.mock.patch("builtins.print") as printed:
            for example in examples:
                exec(compile(example, "python.md", "exec"), names)
        told = [call.args for call in printed.call_args_list]
        self.assertIn(("[0] one line",), told)
        self.assertIn(("trial 0 begins",), told)
        self.assertIn(("small-net@1", "the best of four"), told)
        self.assertEqual(names["again"].result(30), {"loss": 0.5 / 6})
        names["yard"].close()


if __name__ == "__main__":
    unittest.main()
