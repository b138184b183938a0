"""Lets Optuna choose the trials of bench_sweep.py and stop the bad ones, in the loop that people write who have Optuna.
Each trial is a job, which the Python client submits, follows and cancels."""

import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import trainyard  # noqa: E402


class Loop:
    """One search within a budget of device time. The trials that train at a time are as many as there are devices."""

    def __init__(self, address, spec, epochs, factor, budget_s):
        self.address, self.spec, self.epochs, self.factor, self.budget_s = address, spec, epochs, factor, budget_s
        self.lock = threading.Lock()  # for all that follows
        self.running = {}  # when each job began
        self.used_s, self.begun, self.ended, self.best, self.errors = 0.0, 0, 0, float("nan"), []

    def run(self, kind, seed, trials, values, devices):
        """Runs so many trials. `values` are those of the first ones; "tpe" chooses the others by what the ones before
        have told, and "random" draws them."""
        import optuna
        from optuna.distributions import FloatDistribution, IntDistribution
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.trials, self.states = trials, optuna.trial.TrialState
        self.space = {"optimizer.sgd.lr": FloatDistribution(1e-5, 1, log=True),
                      "optimizer.sgd.momentum": FloatDistribution(0, 0.99),
                      "model.mlp.hidden[0]": IntDistribution(8, 256, log=True)}
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        self.study = optuna.create_study(
            direction="maximize", sampler=samplers[kind](seed=seed),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=self.factor))
        for each in values:
            self.study.enqueue_trial(each)
        threads = [threading.Thread(target=self._work) for _ in range(devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _is_used_up(self):
        now = time.monotonic()
        return self.used_s + sum(now - begin for begin in self.running.values()) >= self.budget_s

    def _work(self):
        try:
            with trainyard.connect(self.address) as client:
                while True:
                    with self.lock:
                        if self.begun == self.trials or self.errors or self._is_used_up():
                            return
                        self.begun += 1
                        trial = self.study.ask(self.space)
                    self._train(client, trial)
        except Exception as error:  # run raises it
            self.errors.append(error)

    def _train(self, client, trial):
        job = client.submit(self.spec, set=trial.params)
        with self.lock:
            self.running[job.name] = time.monotonic()
        is_stopped, value = False, None
        for epoch, point in enumerate(job.follow_metrics("test.accuracy"), 1):
            value = point.value
            if is_stopped:
                continue
            with self.lock:
                trial.report(value, epoch)
                is_stopped = epoch < self.epochs and (trial.should_prune() or self._is_used_up())
            if is_stopped:
                job.cancel("Optuna stops this trial")
        job.wait(60)
        with self.lock:
            del self.running[job.name]
            self.used_s += float(job.data.get("device_time", "0s").rstrip("s"))
            has_succeeded = job.state == "SUCCEEDED"
            self.ended += has_succeeded
            if value is not None and not value <= self.best:
                self.best = value
            self.study.tell(trial, value if has_succeeded else None,
                            state=self.states.COMPLETE if has_succeeded else self.states.PRUNED)
