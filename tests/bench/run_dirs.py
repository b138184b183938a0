"""Attempts without a server, for benchmarks: a run directory, the supervisor on it, and speeds out of metrics.jsonl."""
import json
import os
import shutil
import statistics
import subprocess

# Number of steps before the measured ones: kernels are made, caches filled, and replicas shared by speed.
WARM_UP_STEPS = 4


def spec_of(model, data, batch, steps, replicas=1, **more):
    """Returns a resolved spec. `more` goes into `train`; `memory`, `stages` and `optimizer` are parts of the spec."""
    spec = {
        "name": "bench", "model": model, "data": data,
        "train": {"steps": steps, "global_batch": batch, "replicas": replicas, "seed": 1},
        "optimizer": more.pop("optimizer", {"sgd": {"lr": 0.001, "momentum": 0.9, "weight_decay": 5e-4}}),
        "schedule": {"constant": {}},
        "checkpoint": {"every": {"steps": 10 ** 9}}, "evaluate": {"every": {"steps": 10 ** 9}}}
    for part in ("memory", "stages"):
        if part in more:
            spec[part] = more.pop(part)
    spec["train"].update(more)
    return spec


def write_run_dir(path, spec, cpus, dataset_dir="", threads=1, **more):
    """`cpus` has, for each rank, the processors to which it is bound."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    assignment = {
        "format": 1, "job": 1, "attempt": 1, "fencing_token": 1, "world_size": len(cpus),
        "ranks": [{"rank": r, "local_rank": r, "device": f"cpu-{r}", "device_type": "cpu",
                   "cpus": list(own), "threads": threads} for r, own in enumerate(cpus)],
        "backend": "cpu", "interface": "lo", "dataset_dir": dataset_dir, "resume_from": "", "spec": spec, **more}
    with open(os.path.join(path, "assignment.json"), "w") as file:
        json.dump(assignment, file)


def start(binary_dir, path, *arguments):
    return subprocess.Popen([os.path.join(binary_dir, "trainyard-supervisor"), "--run_dir", path, *arguments],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def first_error(path):
    try:
        with open(os.path.join(path, "exit.json")) as file:
            return json.load(file).get("message", "")
    except OSError:
        return "no exit.json"


def finish(process, path, seconds=900):
    if process.wait(timeout=seconds) != 0:
        raise SystemExit(f"a run failed: {first_error(path)}")


def series(path, name, rank=0):
    """[(step, value, time in seconds)]"""
    points = []
    with open(os.path.join(path, f"ranks/{rank}/metrics.jsonl")) as file:
        for line in file:
            point = json.loads(line)
            if point["name"] == name:
                points.append((point["step"], point["value"], point["time"] / 1e6))
    return points


def samples_per_second(path, batch, first=WARM_UP_STEPS, last=None):
    """Uses the median of the step times after the warm-up."""
    times = [time for step, _, time in series(path, "train.loss") if step >= first and (last is None or step <= last)]
    return batch / statistics.median(b - a for a, b in zip(times, times[1:]))


def mean(path, name, first=WARM_UP_STEPS):
    values = [value for step, value, _ in series(path, name) if step > first]
    return statistics.mean(values) if values else float("nan")


def weights_hash(path):
    """Returns the hash of model.safetensors in the newest checkpoint."""
    folder = os.path.join(path, "checkpoints")
    newest = max(os.listdir(folder), key=lambda name: int(name.rsplit("-", 1)[1]))
    with open(os.path.join(folder, newest, "MANIFEST")) as file:
        return next(f["hash"] for f in json.load(file)["files"] if f["name"] == "model.safetensors")
