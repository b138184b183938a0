"""Compares sweeps with Optuna, which many people use: what a random search draws, and which trials successive halving
trains on. Nothing here depends on chance or on the speed of the machine. Both draw with generators that are defined to
the bit, from fixed seeds; and trials wait at each rung for the decision."""

import collections
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import tempfile
import unittest

import trainyard
from programs import Yard, wait_for
from toy_trial import FACTOR, RUNGS, loss

try:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
except ImportError:
    optuna = None

CLIENT = str(pathlib.Path(trainyard.__file__).parents[1])
PYTHON = "/usr/bin/python3"
TRIAL = str(pathlib.Path(__file__).with_name("toy_trial.py"))

# The parameters, in the words of both.
SPACE = {
    "share": ("uniform(-2, 3)", lambda: FloatDistribution(-2, 3)),
    "rate": ("log(1e-5, 1)", lambda: FloatDistribution(1e-5, 1, log=True)),
    "depth": ("int(1, 12)", lambda: IntDistribution(1, 12)),
    "width": ("log_int(1, 40)", lambda: IntDistribution(1, 40, log=True)),
    "wide": ("log_int(16, 4096)", lambda: IntDistribution(16, 4096, log=True)),
    "word": ("choice(relu, gelu, tanh)", lambda: CategoricalDistribution(["relu", "gelu", "tanh"])),
    "flag": ([True, False], lambda: CategoricalDistribution([True, False])),
}
FEW_POINTS = {name: SPACE[name] for name in ("depth", "width", "word", "flag")}
DRAWS = 3000
SHOWN = 20  # the trials of which a dry run shows the values
# A right generator would be called wrong with this probability in each comparison, if its seed were new each time.
SIGNIFICANCE = 1e-4
# With fewer than 27, none might be among the best of the last rung but one, and then a sweep trains one all the same.
TRIALS = max(int(os.environ.get("TRAINYARD_SWEEP_TRIALS", "27")), 27)


def setUpModule():
    global yard, client
    if optuna is None:
        raise unittest.SkipTest("optuna is not there; scripts/install_deps.sh installs Debian's python3-optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yard = Yard()
    client = trainyard.connect(yard.address)


def tearDownModule():
    client.transport.close()
    yard.close()


def distance(ours, theirs):
    """Returns the statistic of Kolmogorov and Smirnov for two samples of one size n, as a share of what it may be: that
    is sqrt(-ln(SIGNIFICANCE / 2) / n). Where values repeat, as integers do, a right generator passes even more surely.
    """
    count = len(ours)
    counts = collections.Counter(ours)
    counts.subtract(theirs)
    apart = max(abs(more) for more in itertools.accumulate(counts[value] for value in sorted(counts)))
    return apart / count / math.sqrt(-math.log(SIGNIFICANCE / 2) / count)


def disagreement(ours, theirs):
    """Returns the statistic of the chi-square test for two samples of one size, as a share of what it may be.
    Neighbours are counted together until there are 20 of them."""
    here, there = collections.Counter(ours), collections.Counter(theirs)
    cells = [[0, 0]]
    for value in sorted({*here, *there}):
        if sum(cells[-1]) >= 20:
            cells.append([0, 0])
        cells[-1][0] += here[value]
        cells[-1][1] += there[value]
    if sum(cells[-1]) < 20:
        last = cells.pop()
        cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
    statistic = sum((a - b) ** 2 / (a + b) for a, b in cells)
    freedom = len(cells) - 1
    # Wilson and Hilferty 1931.
    z = statistics.NormalDist().inv_cdf(1 - SIGNIFICANCE)
    return statistic / (freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3)


def drawn_by_optuna(distributions, seed):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [study.ask(distributions).params for _ in range(DRAWS)]


def named(values):
    """Takes the names of the parameters out of their paths."""
    return {path.rpartition(".")[2]: value for path, value in values.items()}


def begin(space, **options):
    """Begins a sweep of which no trial runs, since there is no such device."""
    return client.sweep(["true"], {name: words for name, (words, _) in space.items()}, maximize="score",
                        search="random", wait_for_devices=True, set={"devices": {"count": 1, "type": "cuda"}},
                        **options)


class Draws(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.theirs = drawn_by_optuna({name: distribution() for name, (_, distribution) in SPACE.items()}, 1)

    def compare(self, ours):
        self.assertEqual(len(ours), len(self.theirs))
        for name in ours[0]:
            here, there = [values[name] for values in ours], [values[name] for values in self.theirs]
            with self.subTest(name):
                self.assertEqual({type(value) for value in here}, {type(value) for value in there})
                if isinstance(there[0], float):
                    self.assertLess(distance(here, there), 1)
                    continue
                self.assertLess(disagreement(here, there), 1)
                if not isinstance(there[0], str):
                    self.assertLess(distance(here, there), 1)

    def test_a_large_sweep_draws_as_optuna_does(self):
        sweep = begin(SPACE, trials=DRAWS, concurrent=DRAWS, seed=1)
        wait_for(lambda: int(sweep.data.get("trials_begun", 0)) >= DRAWS, "the begin of all trials", 60)
        ours = [named(trial.values) for trial in sweep.trials]
        sweep.stop(cancel=True)
        self.compare(ours)
        # Nor do parameters or neighbouring trials depend on each other: correlations are as small as chance makes them.
        bound = statistics.NormalDist().inv_cdf(1 - SIGNIFICANCE / 2) / math.sqrt(DRAWS)
        places = {"share": [values["share"] for values in ours], "depth": [values["depth"] for values in ours],
                  **{name: [math.log(values[name]) for values in ours] for name in ("rate", "width", "wide")}}
        for one, other in itertools.combinations(places, 2):
            self.assertLess(abs(statistics.correlation(places[one], places[other])), bound, (one, other))
        for name, column in places.items():
            self.assertLess(abs(statistics.correlation(column[1:], column[:-1])), bound, name)

    def first_trials(self, space):
        """Returns the first trials of many sweeps, each with a seed of its own, which dry runs show."""
        sweep = begin(space, trials=SHOWN, seed=0)
        spec = sweep.data["spec"]
        sweep.stop(cancel=True)
        sweeps = []
        for seed in range(DRAWS // SHOWN):
            spec["sweep"]["seed"] = str(seed)
            shown = client.call("SweepService/CreateSweep", {"spec": spec, "validate_only": True,
                                                             "options": {"wait_for_devices": True}})
            sweeps.append([named({path: json.loads(value) for path, value in trial["values"].items()})
                           for trial in shown["trials"]])
        return sweeps

    def test_many_sweeps_draw_as_optuna_does(self):
        self.compare(list(itertools.chain(*self.first_trials(SPACE))))

    def test_a_space_of_few_points_is_drawn_as_optuna_does_but_never_twice(self):
        # Of the 2,880 points, those 20 that a sweep has drawn change the shares of the others by far less than what the
        # bounds let pass.
        sweeps = self.first_trials(FEW_POINTS)
        for trials in sweeps:
            self.assertEqual(len({tuple(sorted(values.items())) for values in trials}), SHOWN)
        self.compare(list(itertools.chain(*sweeps)))

    def test_the_comparison_tells_near_misses(self):
        # A test that cannot fail shows nothing: these mistakes are easily made, and each is seen.
        misses = {"share": (FloatDistribution(-2, 3.5), float), "rate": (FloatDistribution(1e-5, 0.4, log=True), float),
                  "depth": (FloatDistribution(1, 12), round),  # both ends are half as probable as the others
                  "width": (FloatDistribution(1, 40, log=True), round),
                  "wide": (FloatDistribution(12, 4096, log=True), round)}
        wrong = drawn_by_optuna({name: distribution for name, (distribution, _) in misses.items()}, 2)
        for name, (_, made) in misses.items():
            here, there = [made(values[name]) for values in wrong], [values[name] for values in self.theirs]
            with self.subTest(name):
                self.assertGreater(max(distance(here, there), disagreement(here, there)), 1)
        words = [values["word"] for values in self.theirs]
        self.assertGreater(disagreement([*words[:-300], *["gelu"] * 300], words), 1)


class Halving:
    """A sweep with ASHA over trials of toy_trial.py, one at a time. Those go on that the sweep lets go on."""

    def __init__(self, seed, waits):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=yard.folder))
        self.told, self.done, self.trials = 0, False, []
        self.sweep = client.sweep(
            [PYTHON, "-B", TRIAL, str(self.folder), "checkpoints" if waits else ""], {"x": "uniform(0, 1)"},
            minimize="loss", search="asha", trials=TRIALS, concurrent=1, seed=seed, devices=0,
            env={"PYTHONPATH": CLIENT},
            set={"sweep.factor": FACTOR, "sweep.rungs": len(RUNGS), "sweep.pause": waits})

    def look(self):
        shown = client.call("SweepService/GetSweep", {"name": self.sweep.name, "with_decisions": True,
                                                      "decisions_after": str(self.told)})
        for decision in shown.get("decisions", []):
            self.told = int(decision["sequence"])
            goes_on = re.fullmatch(r"trial (\d+) trains on to rung (\d+)", decision["text"])
            if goes_on:
                trial, rung = int(goes_on[1]), int(goes_on[2])
                x = json.loads(shown["trials"][trial]["values"]["program.params.x"])
                (self.folder / f"{float(x)!r}.{RUNGS[rung - 1]}").touch()
        self.done = shown["state"] != "SWEEP_STATE_RUNNING"

    def xs(self):
        return [float(trial.values["program.params.x"]) for trial in self.sweep.trials]

    def steps(self):
        """The steps that each trial has trained, in the order in which it did."""
        return [[int(step) for step in (self.folder / f"{x!r}.steps").read_text().split()] for x in self.xs()]


def halved_by_optuna(xs, factor=FACTOR):
    """Returns how far each trial trains, and the number of the best."""
    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.SuccessiveHalvingPruner(
        min_resource=RUNGS[0], reduction_factor=factor))
    lengths = []
    for x in xs:
        study.enqueue_trial({"x": x})
        trial = study.ask({"x": FloatDistribution(0, 1)})
        state = optuna.trial.TrialState.COMPLETE
        for step in range(1, RUNGS[-1] + 1):
            trial.report(loss(x, step), step)
            if step < RUNGS[-1] and trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        lengths.append(step)
        study.tell(trial, loss(x, step) if state == optuna.trial.TrialState.COMPLETE else None, state=state)
    return lengths, study.best_trial.number


def halved_by_the_paper(xs):
    """Returns how far each trial trains by algorithm 2 of Li et al. 2018, with one worker."""
    rungs, results = [-1] * len(xs), [[] for _ in RUNGS]
    begun = 0
    while True:
        promotable = (number for rung in reversed(range(len(RUNGS) - 1))
                      for _, number in sorted(results[rung])[:len(results[rung]) // FACTOR] if rungs[number] == rung)
        number = next(promotable, None)
        if number is None:
            if begun == len(xs):
                return [RUNGS[rung] for rung in rungs]
            number, begun = begun, begun + 1
        rungs[number] += 1
        results[rungs[number]].append((loss(xs[number], RUNGS[rungs[number]]), number))


def reached(lengths):
    """Returns how many trials have come to each rung."""
    return [sum(length >= rung for length in lengths) for rung in RUNGS]


class SuccessiveHalving(unittest.TestCase):
    """The same trials in the same order, one at a time.

    Optuna cannot let a trial wait. It decides once, when a trial comes to a rung: the trial goes on if it is among the
    best 1/FACTOR of those that have come there so far, of which there is always one. That is the rule of a sweep with
    `pause: false`, and so all decisions have to be the same.

    The paper's rule, which sweeps follow whose trials can wait, differs twice. The first FACTOR - 1 trials at a rung do
    not go on at once, since none of so few is among the best 1/FACTOR. And a trial that was passed over goes on later,
    if more trials have come of which few were better.
    """

    @classmethod
    def setUpClass(cls):
        # Of these trials, good ones come at bad times.
        cls.stops, cls.waits = Halving(12, waits=False), Halving(12, waits=True)

        def have_ended():
            for halving in (cls.stops, cls.waits):
                if not halving.done:
                    halving.look()
            return cls.stops.done and cls.waits.done

        wait_for(have_ended, "the end of the sweeps", 6 * TRIALS)
        cls.xs = cls.stops.xs()
        cls.theirs, cls.their_best = halved_by_optuna(cls.xs)

    def rank(self, number):
        """The number of trials that are better than this one, if all are trained to their end."""
        return sum(loss(x, RUNGS[-1]) < loss(self.xs[number], RUNGS[-1]) for x in self.xs)

    def passed_over(self, lengths):
        """The trials that ended at a rung although they are among the best 1/FACTOR of those that came there."""
        passed = []
        for number, length in enumerate(lengths):
            there = [loss(x, length) for x, other in zip(self.xs, lengths) if other >= length]
            better = sum(value < loss(self.xs[number], length) for value in there)
            if length < RUNGS[-1] and better < len(there) // FACTOR:
                passed.append(number)
        return passed

    def test_without_waiting_all_decisions_are_those_of_optuna(self):
        lengths = [len(steps) for steps in self.stops.steps()]
        self.assertEqual(lengths, self.theirs)
        self.assertNotEqual(lengths, halved_by_optuna(self.xs, FACTOR + 1)[0])
        self.assertEqual(self.stops.sweep.best().number, self.their_best)
        self.assertGreater(len(set(lengths)), len(RUNGS) - 1, "trials have ended at each rung")

    def test_with_waiting_decisions_are_those_of_the_paper_which_bounds_what_differs(self):
        self.assertEqual(self.waits.xs(), self.xs, "the draws do not depend on the rule")
        steps = self.waits.steps()
        for trained in steps:
            self.assertEqual(trained, list(range(1, len(trained) + 1)), "nothing is trained twice")
        lengths = [len(trained) for trained in steps]
        self.assertEqual(lengths, halved_by_the_paper(self.xs))
        ours, theirs = reached(lengths), reached(self.theirs)
        self.assertEqual(ours[0], theirs[0])
        for here, above in itertools.pairwise(ours):
            self.assertGreaterEqual(above, here // FACTOR, "in the end, the best 1/FACTOR have gone on")
            self.assertLessEqual(above, here - (FACTOR - 1), "each that comes lets one go on, and the first ones none")
        # Trials come to the first rung in the same order. Of the first FACTOR - 1, some go on with Optuna alone. Here,
        # each FACTORth trial that comes may let one go on that was passed over.
        self.assertGreaterEqual(ours[1], theirs[1] - (FACTOR - 1))
        self.assertLessEqual(ours[1], theirs[1] + TRIALS // FACTOR)
        self.assertEqual(self.passed_over(lengths), [])
        self.assertNotEqual(self.passed_over(self.theirs), [], "it is this that waiting is for")
        # What is trained lies between halving in rounds, which is the least, and half of what random search needs.
        least = sum(TRIALS // FACTOR ** rung * (steps - before)
                    for rung, (before, steps) in enumerate(itertools.pairwise((0, *RUNGS))))
        for used in (sum(lengths), sum(self.theirs)):
            self.assertLess(used, TRIALS * RUNGS[-1] / 2)
        self.assertGreaterEqual(sum(lengths), least)
        best = self.waits.sweep.best().number
        self.assertLess(self.rank(best), TRIALS // FACTOR)
        self.assertLess(self.rank(self.their_best), TRIALS // FACTOR)
        print(f"trials at the rungs, steps, rank of the best: {ours}, {sum(lengths)}, {self.rank(best)} with waiting; "
              f"{theirs}, {sum(self.theirs)}, {self.rank(self.their_best)} as Optuna stops trials; "
              f"{least} steps at least, {TRIALS * RUNGS[-1]} for random search")


if __name__ == "__main__":
    unittest.main()
