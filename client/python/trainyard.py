"""Tells Trainyard how a job is doing: metrics, checkpoints, and whether it has to stop.

One file that needs nothing but Python. Outside a job all functions do nothing, so a script that uses them runs
anywhere:

    import trainyard

    lr = trainyard.params.get("lr", 0.1)
    start = load(trainyard.resume_from()) if trainyard.resume_from() else 0
    for step in range(start, 1000):
        loss = train_step(lr)
        trainyard.log(step + 1, loss=loss)
        if trainyard.should_checkpoint(every=100, step=step + 1):
            with trainyard.checkpoint(step + 1) as folder:
                torch.save(model.state_dict(), folder / "model.pt")
        if trainyard.should_stop():
            break
"""

import contextlib
import json
import math
import os
import pathlib
import shutil
import signal
import time

__all__ = [
    "in_job", "params", "rank", "world_size", "log", "set_total_steps", "checkpoint", "should_checkpoint",
    "should_stop", "resume_from", "data_folder",
]

_run_dir = os.environ.get("TRAINYARD_RUN_DIR", "")
_checkpoint_dir = os.environ.get("TRAINYARD_CHECKPOINT_DIR", "")
_answered = 0  # the last request for a checkpoint that was answered
_stop = False
_metrics = None


def in_job():
    """Returns True if the script runs as a job."""
    return bool(_run_dir)


def rank():
    """Returns the number of this process in its job, from 0."""
    return int(os.environ.get("RANK", "0"))


def world_size():
    """Returns the number of processes of the job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _read_params():
    path = os.environ.get("TRAINYARD_PARAMS", "")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


params = _read_params()


def resume_from():
    """Returns the folder of the checkpoint to go on from, or None for a new start."""
    path = os.environ.get("TRAINYARD_RESUME_FROM", "")
    return pathlib.Path(path) if path else None


def data_folder():
    """Returns the folder of the job's data set, or None if it names none."""
    path = os.environ.get("TRAINYARD_DATA", "")
    return pathlib.Path(path) if path else None


def _append(record):
    global _metrics
    if not in_job():
        return
    if _metrics is None:
        _metrics = open(os.path.join(_run_dir, "metrics.jsonl"), "a", encoding="utf-8", buffering=1)
    _metrics.write(json.dumps(record) + "\n")


def _number(value):
    value = value.item() if hasattr(value, "item") else float(value)
    return value if math.isfinite(value) else repr(float(value))


def log(step, metrics=None, **more):
    """Logs metrics of a step: log(12, loss=0.5) or log(12, {"test/loss": 0.5}). Values are numbers, or anything with
    item(), such as a tensor of one element."""
    values = {name: _number(value) for name, value in {**(metrics or {}), **more}.items()}
    _append({"step": int(step), "time": time.time(), "metrics": values})


def set_total_steps(steps):
    """Says how many steps the job has, so that its progress and its end can be told."""
    _append({"total_steps": int(steps)})


def _requested():
    try:
        with open(os.path.join(_run_dir, "checkpoint_requested"), encoding="ascii") as file:
            return int(file.read() or 0)
    except (OSError, ValueError):
        return 0


def should_checkpoint(every=0, step=0):
    """Returns True if it is time for a checkpoint: each `every` steps, when Trainyard asks for one because the devices
    are needed elsewhere, and before the job stops."""
    is_due = every > 0 and step > 0 and step % every == 0
    return is_due or (in_job() and _requested() > _answered) or should_stop()


@contextlib.contextmanager
def checkpoint(step):
    """Gives a folder to write the files of a checkpoint into, which becomes the checkpoint of `step` once all of them
    are there. If the block fails, there is none. Only rank 0 writes checkpoints; elsewhere, and outside a job, the
    folder goes to checkpoints/ in the current folder."""
    global _answered
    request = _requested() if in_job() else 0
    parent = pathlib.Path(_checkpoint_dir or "checkpoints")
    folder = parent / f"step-{int(step)}"
    temporary = parent / f"step-{int(step)}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        if not in_job():
            shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _answered = max(_answered, request)


def should_stop():
    """Returns True if the job is asked to stop. It has `stop_grace` for a last checkpoint then."""
    return _stop


def _on_stop(number, frame):
    global _stop
    _stop = True


# Without a handler the signal would end the script before its last checkpoint. A script that has set one keeps it.
if in_job() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    with contextlib.suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGTERM, _on_stop)
