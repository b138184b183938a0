"""Sweeps beside those of Optuna, an independent program: the same distributions, and the same decisions about trials.

It needs Debian's python3-optuna, and skips visibly where that is not there. TRAINYARD_OPTUNA_DRAWS is how many trials are
drawn, 1000 by default.
"""

import bisect
import collections
import json
import math
import os
import pathlib
import unittest

import trainyard
from programs import Yard, wait_for

try:
    import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
except ImportError:
    optuna = None

DRAWS = int(os.environ.get("TRAINYARD_OPTUNA_DRAWS", "1000"))
DRAWS_OF_CHECK = 20  # `--dry-run` shows so many trials
# A probability that no test comes near by chance. All seeds are fixed, so a test that passes passes always.
CHANCE = 1e-6
TRIALS, FACTOR, RUNGS = 12, 3, 3
# A trial tells a value at each rung and waits there, since it is stopped by somebody else.
TRIAL = """import time, trainyard
for step in (1, 3, 9):
    trainyard.log(step, score=trainyard.params["x"] * step)
    if step < 9: time.sleep(1.2)
"""


def setUpModule():
    if optuna is None:
        raise unittest.SkipTest("python3-optuna is not there")
    global yard, client
    yard = Yard()
    client = trainyard.connect(yard.address)
    wait_for(client.workers, "the worker")


def tearDownModule():
    client.transport.close()
    yard.close()


def distance(ours, theirs):
    """The two-sample statistic of Kolmogorov and Smirnov: the largest distance of the empirical distributions."""
    ours, theirs = sorted(ours), sorted(theirs)
    return max(abs(bisect.bisect_right(ours, x) / len(ours) - bisect.bisect_right(theirs, x) / len(theirs))
               for x in ours + theirs)


def distance_max(count, others):
    """The distance that equal distributions exceed with the probability CHANCE, for large samples."""
    return math.sqrt(-math.log(CHANCE / 2) / 2 * (count + others) / (count * others))


def draw_ours():
    """The values of random trials, by name. A trial's values depend on the seed and its number alone."""
    drawn = collections.defaultdict(list)
    spec = pathlib.Path(yard.folder, "draws.yaml")
    spec.write_text(json.dumps({
        "name": "draws", "devices": 0,
        "program": {"command": ["true"], "params": {"flat": 0.5, "log": 0.5, "whole": 1, "width": 16, "word": "a"}}}))
    for seed in range(-(-DRAWS // DRAWS_OF_CHECK)):
        told = json.loads(yard.cli(
            "sweep", "run", str(spec), "--dry-run", "-o", "json", "--seed", str(seed), "--maximize", "score", "--search", "random",
            "--trials", str(DRAWS_OF_CHECK), "--sweep", "program.params.flat=uniform(-1, 3)",
            "--sweep", "program.params.log=log(1e-5, 1)", "--sweep", "program.params.whole=int(1, 9)",
            "--sweep", "program.params.width=log_int(16, 512)", "--sweep", "program.params.word=[a, b, c]"))
        for trial in told["trials"]:
            for path, value in trial["values"].items():
                drawn[path.rpartition(".")[2]].append(json.loads(value))
    return drawn


def draw_theirs(count):
    drawn = collections.defaultdict(list)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(count):
        trial = study.ask()
        drawn["flat"].append(trial.suggest_float("flat", -1, 3))
        drawn["log"].append(trial.suggest_float("log", 1e-5, 1, log=True))
        drawn["whole"].append(trial.suggest_int("whole", 1, 9))
        drawn["width"].append(trial.suggest_int("width", 16, 512, log=True))
        drawn["word"].append(trial.suggest_categorical("word", ["a", "b", "c"]))
    return drawn


class Distributions(unittest.TestCase):
    def test_random_trials_are_drawn_from_the_same_distributions(self):
        ours = draw_ours()
        count = len(ours["flat"])
        self.assertGreaterEqual(count, DRAWS)
        theirs = draw_theirs(count)
        self.assertEqual(set(ours), set(theirs))
        for name, values in ours.items():
            self.assertLess(distance(values, theirs[name]), distance_max(count, count), name)
        # The check would notice a scale that is not the same.
        self.assertGreater(distance(ours["log"], [10 ** (5 * (x + 1) / 4 - 6) for x in theirs["flat"]]),
                           distance_max(count, count))


class Halving(unittest.TestCase):
    def test_the_same_trials_go_on_to_each_rung(self):
        """Trials that cannot wait are judged when they reach a rung: Optuna's pruner has no other rule. One after the other,
        the same values must lead to the same decisions."""
        sweep = client.sweep(
            ["/usr/bin/python3", "-B", "-c", TRIAL], {"x": "uniform(0, 1)"}, maximize="score", search="asha", trials=TRIALS,
            concurrent=1, seed=3, devices=0, params={"x": 0.5}, set={
                "sweep.factor": FACTOR, "sweep.rungs": RUNGS, "sweep.max_steps": 9, "sweep.pause": False},
            env={"PYTHONPATH": str(pathlib.Path(trainyard.__file__).parents[1])})
        self.assertEqual(sweep.wait(timeout=200).state, "SUCCEEDED")
        trials = sorted(sweep.trials, key=lambda trial: trial.number)
        self.assertEqual(len(trials), TRIALS)
        values = [trial.values["program.params.x"] for trial in trials]

        study = optuna.create_study(direction="maximize", pruner=optuna.pruners.SuccessiveHalvingPruner(
            min_resource=1, reduction_factor=FACTOR, min_early_stopping_rate=0))
        rungs = []
        for value in values:
            trial = study.ask()
            rung = 0
            for rung, step in enumerate((1, 3, 9)):
                trial.report(value * step, step)
                if step < 9 and trial.should_prune():
                    break
            rungs.append(rung)
            study.tell(trial, value * (1, 3, 9)[rung])
        self.assertEqual([trial.rung for trial in trials], rungs)
        self.assertGreater(len(set(rungs)), 1, "some were stopped, and some were not")
        self.assertEqual(sweep.best().values["program.params.x"], max(
            value for value, rung in zip(values, rungs) if rung == RUNGS - 1))


if __name__ == "__main__":
    unittest.main()
