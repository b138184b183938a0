#!/usr/bin/env python3
"""What early stopping finds beside random search in the same device time, and what a pause of a trial costs.

Starts a server and a worker of its own (`trainyard up`). For each seed, a sweep with ASHA runs to its end, and then
random search with the device time that ASHA has used as its budget; both draw the same trials. The data are
Fashion-MNIST, or generated glyphs if no folder is given. Then a job is suspended and resumed again and again; a pause
costs what its attempts hold of a device beyond the training that they do.

With --optuna, Optuna searches with the same trainer, the same budget and as many devices, in two ways. In both, its
SuccessiveHalvingPruner stops trials. "halving" has the trials of ASHA, in their order, and "tpe" has those that its
TPESampler chooses.
usage: bench_sweep.py --bin DIR [--datasets DIR] [--trials 27] [--seeds 3] [--epochs 27] [--optuna] [--no-pauses]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import optuna_loop

SPEC = """name: search
model: {{mlp: {{hidden: [64]}}}}
data: {data}
train: {{epochs: {epochs}, global_batch: 50, seed: 1}}
optimizer: {{sgd: {{lr: 0.05, momentum: 0.9}}}}
evaluate: {{every: 1 epoch}}
devices: 1
sweep:
  parameters:
    optimizer.sgd.lr: log(1e-5, 1)
    optimizer.sgd.momentum: uniform(0, 0.99)
    model.mlp.hidden[0]: log_int(8, 256)
  maximize: test.accuracy
  factor: {factor}
"""
FACTOR = 3
DEVICES = 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--datasets", default="")
    parser.add_argument("--trials", type=int, default=27)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--optuna", action="store_true")
    parser.add_argument("--no-pauses", action="store_true")
    args = parser.parse_args()
    cli = os.path.join(args.bin, "trainyard")
    with tempfile.TemporaryDirectory() as state:
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{state}/server/server.sock", HOME=state)

        def run(*words, check=True):
            done = subprocess.run([cli, *words], env=env, capture_output=True, text=True)
            if check and done.returncode != 0:
                raise SystemExit(f"{words}: {done.stderr}")
            return done.stdout

        def show(*words):
            return json.loads(run(*words, "-o", "json"))

        def seconds(text):
            return float(text.rstrip("s"))

        data = "{dataset: glyphs, train_size: 6000, test_size: 2000}"
        flags = []
        if args.datasets:
            data = "{dataset: fashion-mnist, normalize: dataset, train_size: 6000, test_size: 2000}"
            flags = ["--dataset-dir", args.datasets]
        spec = os.path.join(state, "sweep.yaml")
        with open(spec, "w", encoding="utf-8") as file:
            file.write(SPEC.format(data=data, epochs=args.epochs, factor=FACTOR))
        run("up", "--detach", "--state-dir", state, "--cpu-devices", str(DEVICES), "--threads-per-device", "1", *flags)
        try:
            print(f"{args.trials} trials, {data}")
            print(f"{'seed':>4} {'search':>7} {'begun':>6} {'to the end':>10} {'device s':>9} {'best':>8}")
            best = {"asha": [], "random": []}
            if args.optuna:
                best.update({"halving": [], "tpe": []})

            def tell(seed, search, begun, ended, used, value):
                best[search].append(value)
                print(f"{seed:4} {search:>7} {begun:6} {ended:10} {used:9.1f} {value:8.4f}", flush=True)

            for seed in range(args.seeds):
                budget = ""
                for search in ("asha", "random"):
                    words = ["sweep", "run", spec, "--search", search, "--trials", str(args.trials),
                             "--seed", str(seed)]
                    run(*words, *(["--budget", budget] if budget else []), check=False)
                    sweep = show("sweep", "show", "last")
                    used = seconds(sweep["device_time"])
                    if search == "asha":
                        budget = f"{used:.3f}s"
                        drawn = [{path: json.loads(value) for path, value in trial["values"].items()}
                                 for trial in sweep["trials"]]
                    ended = sum(trial["state"] == "TRIAL_STATE_SUCCEEDED" for trial in sweep["trials"])
                    tell(seed, search, sweep["trials_begun"], ended, used, sweep.get("best_value", float("nan")))
                for kind in ("halving", "tpe") if args.optuna else ():
                    loop = optuna_loop.Loop(env["TRAINYARD_SERVER"], spec_of_job(spec), args.epochs, FACTOR,
                                            seconds(budget))
                    if kind == "halving":
                        loop.run("random", seed, len(drawn), drawn, DEVICES)
                    else:  # it begins as many trials as there is time for
                        loop.run("tpe", seed, 10 * args.trials, [], DEVICES)
                    tell(seed, kind, loop.begun, loop.ended, loop.used_s, loop.best)
            for search, values in best.items() if args.seeds else ():
                print(f"{search}: mean best {statistics.mean(values):.4f}")

            if args.no_pauses:
                return
            whole = pauses(run, show, seconds, spec, 0)
            paused = pauses(run, show, seconds, spec, 10)
            print(f"a pause and resume: {(paused - whole) / 10 * 1e3:.0f} ms of a device "
                  f"({whole:.2f} s without, {paused:.2f} s with 10)")
        finally:
            run("down", "--cancel", "--state-dir", state)


def spec_of_job(spec):
    """Writes the spec of one job of the sweep, and returns the file."""
    with open(spec, encoding="utf-8") as file:
        text = file.read().split("sweep:")[0]
    path = os.path.join(os.path.dirname(spec), "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def pauses(run, show, seconds, spec, count):
    """Trains one job that is paused `count` times; the seconds for which it has held its device."""
    job = run("submit", spec_of_job(spec), "--set", "train.epochs=120", "-q").strip()
    for _ in range(count):
        wait(lambda: show("show", job)["state"] == "JOB_STATE_RUNNING")
        time.sleep(0.3)
        run("suspend", job)
        wait(lambda: show("show", job)["state"] == "JOB_STATE_SUSPENDED")
        run("resume", job)
    wait(lambda: show("show", job)["state"] == "JOB_STATE_SUCCEEDED")
    return seconds(show("show", job)["device_time"])


def wait(holds):
    deadline = time.monotonic() + 120
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("it takes too long")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
