"""Tells Trainyard how a job is doing: metrics, checkpoints, and whether it has to stop.

This file needs nothing but Python and no other file, so it can be copied beside a script, as trainyard.py. Outside a job
all functions do nothing, so a script that uses them runs anywhere:

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

With the whole package, trainyard.connect() talks to a server: it submits jobs and sweeps, follows them, and reads their
curves.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional

if TYPE_CHECKING:  # type checkers see what __getattr__ below loads
    from .catalogue import SavedSpec as SavedSpec
    from .client import Client as Client, connect as connect
    from .errors import (
        Conflict as Conflict, InvalidRequest as InvalidRequest, JobFailed as JobFailed, NotAllowed as NotAllowed,
        NotFound as NotFound, NotSignedIn as NotSignedIn, QuotaExceeded as QuotaExceeded, TimedOut as TimedOut,
        TrainyardError as TrainyardError, TrainyardWarning as TrainyardWarning, Unreachable as Unreachable)
    from .handles import Job as Job, JobList as JobList
    from .records import File as File, Metrics as Metrics, Point as Point, Worker as Worker
    from .sweeps import Sweep as Sweep, Trial as Trial

__all__ = [
    "in_job", "params", "rank", "world_size", "log", "set_total_steps", "checkpoint", "should_checkpoint",
    "should_stop", "resume_from", "data_folder", "secret",
]

# What the other files of the package have, by name. They are loaded when they are first used, so that a script of a job
# starts fast.
_OF_CLIENT = {
    **dict.fromkeys(["Client", "connect"], "client"),
    **dict.fromkeys(["Job", "JobList"], "handles"),
    **dict.fromkeys(["SavedSpec"], "catalogue"),
    **dict.fromkeys(["Sweep", "Trial"], "sweeps"),
    **dict.fromkeys(["File", "Metrics", "Point", "Worker"], "records"),
    **dict.fromkeys(["Conflict", "InvalidRequest", "JobFailed", "NotAllowed", "NotFound", "NotSignedIn", "QuotaExceeded",
                     "TimedOut", "TrainyardError", "TrainyardWarning", "Unreachable"], "errors"),
}


def __getattr__(name: str) -> Any:
    if name not in _OF_CLIENT:
        raise AttributeError(f"module 'trainyard' has no attribute '{name}'")
    if "__path__" not in globals():
        raise AttributeError(f"trainyard.{name} needs the whole package; this is its first file alone")
    import importlib
    return getattr(importlib.import_module(f"{__name__}.{_OF_CLIENT[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_OF_CLIENT))


_run_dir = os.environ.get("TRAINYARD_RUN_DIR", "")
_checkpoint_dir = os.environ.get("TRAINYARD_CHECKPOINT_DIR", "")
_answered = 0  # the last request for a checkpoint that was answered
_stop = False
_metrics: Any = None
_unwritten = b""  # what the disk had no room for
_UNWRITTEN_MAX = 1 << 20


def in_job() -> bool:
    """Returns True if the script runs as a job."""
    return bool(_run_dir)


def rank() -> int:
    """Returns the number of this process in its job, from 0."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Returns the number of processes of the job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _read_params() -> Dict[str, Any]:
    path = os.environ.get("TRAINYARD_PARAMS", "")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        params: Dict[str, Any] = json.load(file)
        return params


params = _read_params()


def resume_from() -> Optional[pathlib.Path]:
    """Returns the folder of the checkpoint to go on from, or None for a new start."""
    path = os.environ.get("TRAINYARD_RESUME_FROM", "")
    return pathlib.Path(path) if path else None


def data_folder() -> Optional[pathlib.Path]:
    """Returns the folder of the job's data set, or None if it names none."""
    path = os.environ.get("TRAINYARD_DATA", "")
    return pathlib.Path(path) if path else None


def secret(name: str) -> str:
    """Returns the secret of this name as text, without the end of its last line. The job has to name it:
    `secrets: [hf_token]`. Do not print it: logs are for everybody who may see the job."""
    folder = os.environ.get("TRAINYARD_SECRETS", "")
    if not folder:
        raise KeyError(f"the job has no secret '{name}': it names none (program.secrets in its spec)")
    try:
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            text = file.read()
    except FileNotFoundError:
        raise KeyError(f"the job has no secret '{name}' (program.secrets in its spec)") from None
    return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith("\n") else text


def _append(record: Mapping[str, Any]) -> None:
    global _metrics, _unwritten
    if not in_job():
        return
    if _metrics is None:
        _metrics = open(os.path.join(_run_dir, "metrics.jsonl"), "ab", buffering=0)
    line = (json.dumps(record) + "\n").encode()
    data = _unwritten + (line if len(_unwritten) < _UNWRITTEN_MAX else b"")
    # A training does not end because its curves have no room: they wait for it.
    try:
        written = _metrics.write(data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise
        written = 0
    if written < len(data) and not _unwritten:
        print("trainyard: the disk is full; metrics wait for room", file=sys.stderr, flush=True)
    _unwritten = data[written:]


def _number(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else float(value)
    return value if math.isfinite(value) else repr(float(value))


def log(step: int, metrics: Optional[Mapping[str, Any]] = None, **more: Any) -> None:
    """Logs metrics of a step: log(12, loss=0.5) or log(12, {"test/loss": 0.5}). Values are numbers, or anything with
    item(), such as a tensor of one element."""
    values = {name: _number(value) for name, value in {**(metrics or {}), **more}.items()}
    _append({"step": int(step), "time": time.time(), "metrics": values})


def set_total_steps(steps: int) -> None:
    """Says how many steps the job has, so that its progress and its end can be told."""
    _append({"total_steps": int(steps)})


def _requested() -> int:
    try:
        with open(os.path.join(_run_dir, "checkpoint_requested"), encoding="ascii") as file:
            return int(file.read() or 0)
    except (OSError, ValueError):
        return 0


def should_checkpoint(every: int = 0, step: int = 0) -> bool:
    """Returns True if it is time for a checkpoint: each `every` steps, when Trainyard asks for one because the devices
    are needed elsewhere, and before the job stops."""
    is_due = every > 0 and step > 0 and step % every == 0
    return is_due or (in_job() and _requested() > _answered) or should_stop()


@contextlib.contextmanager
def checkpoint(step: int) -> Iterator[pathlib.Path]:
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
        for file in temporary.rglob("*"):
            if file.is_file():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        if not in_job():
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            # Trainyard has not taken over the one of this step yet, and takes no second one.
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _answered = max(_answered, request)


def should_stop() -> bool:
    """Returns True if the job is asked to stop. It has `stop_grace` for a last checkpoint then."""
    global _stop
    # A script may have a handler of its own for the signal, or none because it uses this in another thread than the main
    # one. The file is there all the same.
    _stop = _stop or (in_job() and os.path.exists(os.path.join(_run_dir, "stop_requested")))
    return _stop


def _on_stop(number: int, frame: Any) -> None:
    global _stop
    _stop = True


# Without a handler the signal would end the script before its last checkpoint. A script that has set one keeps it.
if in_job() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    with contextlib.suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGTERM, _on_stop)
