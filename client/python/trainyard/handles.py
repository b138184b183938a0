"""Handles of jobs, and what they give. A handle is the name of a job and the address of its server, so it can be pickled,
and works after a restart of Python and of the server."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import page, specs
from .errors import InvalidRequest, JobFailed, NotFound, TimedOut, Unreachable
from .transport import bytes_of

if TYPE_CHECKING:
    from .client import Client

FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    value: float
    attempt: int = 0
    name: str = ""


def _point(raw: Mapping[str, Any], name: str = "") -> Point:
    return Point(int(raw.get("step", 0)), float(raw.get("value", 0.0)), int(raw.get("attempt", 0)),
                 raw.get("name", name))


class Metrics(Dict[str, List[Point]]):
    """The curves of a job by name. Each is a list of points with a step and a value."""

    def steps(self, name: str) -> List[int]:
        return [point.step for point in self[name]]

    def values_of(self, name: str) -> List[float]:
        return [point.value for point in self[name]]

    def to_pandas(self) -> Any:
        """Returns a DataFrame with a row for each step and a column for each metric. It needs pandas."""
        import pandas  # type: ignore[import]
        columns = {name: pandas.Series({point.step: point.value for point in points}, dtype="float64")
                   for name, points in self.items()}
        frame = pandas.DataFrame(columns)
        frame.index.name = "step"
        return frame

    def _repr_html_(self) -> str:
        return "".join(page.curve(name, [(p.step, p.value) for p in points]) for name, points in self.items())


class Worker(NamedTuple):
    """A host that runs jobs."""

    name: str
    state: str
    scheduling: str
    devices: List[Dict[str, Any]]
    data: Dict[str, Any]  # all that the server tells


def _word(text: str, prefix: str) -> str:
    return text[len(prefix):] if text.startswith(prefix) else text


def _time(text: Optional[str]) -> Optional[datetime.datetime]:
    if not text:
        return None
    # The server writes up to nine digits of a second, and Python reads up to six.
    text = re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00")
    match = re.match(r"^(.*?)(?:\.(\d+))?(\+00:00)$", text)
    if match is None:
        return None
    return datetime.datetime.fromisoformat(match.group(1) + "." + (match.group(2) or "0").ljust(6, "0") + match.group(3))


class Job:
    """A job on a server."""

    def __init__(self, client: "Client", name: str, data: Optional[Mapping[str, Any]] = None) -> None:
        self.client = client
        self.name = name if name.startswith("jobs/") else f"jobs/{name}"
        self._data: Dict[str, Any] = dict(data or {})

    def __getstate__(self) -> Dict[str, Any]:
        return {"client": self.client, "name": self.name, "_data": {}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other.name, other.client) == (self.name, self.client)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        state = self._state_of(self._data)
        return f"<trainyard.Job {self.name}{' ' + state if state else ''}>"

    @staticmethod
    def _state_of(data: Mapping[str, Any]) -> str:
        return _word(str(data.get("state", "")), "JOB_STATE_")

    @property
    def id(self) -> int:
        return int(self.name.rpartition("/")[2])

    def refresh(self) -> "Job":
        """Asks the server for all of the job."""
        self._data = self.client.call("JobService/GetJob", {"name": self.name})
        return self

    @property
    def data(self) -> Dict[str, Any]:
        """All that the server tells of the job, as it is now."""
        if self._state_of(self._data) not in FINAL_STATES:
            self.refresh()
        return self._data

    @property
    def state(self) -> str:
        """QUEUED, STARTING, RUNNING, STOPPING, SUSPENDED, SUCCEEDED, FAILED or CANCELLED."""
        return self._state_of(self.data)

    @property
    def done(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def spec(self) -> Dict[str, Any]:
        """The spec with all defaults filled in."""
        return (self._data or self.data).get("resolved_spec", {})

    @property
    def params(self) -> Dict[str, Any]:
        """The parameters of a program."""
        raw = (self.spec.get("program") or {}).get("params") or {}
        values: Dict[str, Any] = {}
        for name, text in raw.items():
            try:
                values[name] = json.loads(text)
            except ValueError:
                values[name] = text
        return values

    @property
    def step(self) -> int:
        return int((self.data.get("progress") or {}).get("step", 0))

    @property
    def created(self) -> Optional[datetime.datetime]:
        return _time((self._data or self.data).get("create_time"))

    @property
    def user(self) -> str:
        return (self._data or self.data).get("user", "")

    def explain(self) -> str:
        """Says why the job waits, and until when."""
        told = self.client.call("JobService/ExplainJob", {"name": self.name})
        lines = list(told.get("reasons") or []) or ["it does not wait"]
        lines += [told[key] for key in ("change_text", "start_basis") if told.get(key)]
        return "\n".join(lines)

    def wait(self, timeout: Optional[float] = None) -> "Job":
        """Waits until the job has ended, or is held for a person after a failure. Raises TimedOut."""
        end = None if timeout is None else time.monotonic() + timeout
        if end is None:
            self._follow_to_end()
        else:
            pause = 0.05
            while not self._is_over(self.data):
                left = end - time.monotonic()
                if left <= 0:
                    raise TimedOut(f"{self.name} is {self._state_of(self._data)} after {timeout} s",
                                   code="deadline_exceeded")
                time.sleep(min(pause, left))
                pause = min(pause * 1.5, 1.0)
        return self

    def _is_over(self, data: Mapping[str, Any]) -> bool:
        state = self._state_of(data)
        return state in FINAL_STATES or (state == "SUSPENDED" and bool(data.get("failure")))

    def _follow_to_end(self) -> None:
        for change in self.client.stream("JobService/WatchJobs", {"names": [self.name]}):
            if change.get("deleted"):
                raise NotFound(f"{self.name} was deleted", code="not_found", reason="NOT_FOUND")
            self._data = change["job"]
            if self._is_over(self._data):
                return

    def result(self, timeout: Optional[float] = None) -> Dict[str, float]:
        """Waits for the job, and returns the last value of each of its metrics. If it has not succeeded, raises JobFailed
        with its failure."""
        self.wait(timeout)
        state = self._state_of(self._data)
        if state == "SUCCEEDED":
            # Points may arrive just after the end.
            values = {name: float(value) for name, value in (self._data.get("final_metrics") or {}).items()}
            return values or {name: points[-1].value for name, points in self.metrics().items() if points}
        failure = self._data.get("failure") or {}
        message = failure.get("message") or f"{self.name} is {state}"
        raise JobFailed(f"{self.name} is {state}: {message}" if failure else message, job=self, state=state,
                        reason=failure.get("reason", ""),
                        failure_class=_word(failure.get("failure_class", ""), "FAILURE_CLASS_"),
                        job_exit_code=int(failure.get("exit_code", 0)))

    def logs(self, follow: bool = False, rank: Optional[int] = None,
             tail_bytes: Optional[int] = None) -> Union[str, Iterator[str]]:
        """Returns what the job has printed, or, if it follows, an iterator over its lines as they come, until the job has
        ended. If several ranks print, each line begins with "[RANK] "."""
        request: Dict[str, Any] = {"name": self.name, "follow": follow}
        if rank is not None:
            request["rank"] = rank
        if tail_bytes is not None:
            request["offset"] = str(-tail_bytes)
        lines = self._lines(request)
        return lines if follow else "".join(line + "\n" for line in lines)

    def _lines(self, request: Dict[str, Any]) -> Iterator[str]:
        has_ranks = "rank" not in request and len(self.data.get("placement") or []) > 1
        open_lines: Dict[Any, bytes] = {}

        def text(key: Any, line: bytes) -> str:
            return (f"[{key[1]}] " if has_ranks else "") + line.decode("utf-8", "replace")

        for chunk in self.client.stream("JobService/TailLogs", request):
            key = (int(chunk.get("attempt", 0)), int(chunk.get("rank", 0)))
            *complete, rest = (open_lines.get(key, b"") + bytes_of(chunk.get("data", ""))).split(b"\n")
            open_lines[key] = rest
            for line in complete:
                yield text(key, line)
        for key, rest in sorted(open_lines.items()):
            if rest:
                yield text(key, rest)

    def metrics(self, *names: str, max_points: int = 0) -> Metrics:
        """Returns the curves of the job, or those of these names. to_pandas() makes a DataFrame of them."""
        answer = self.client.call("JobService/QueryMetrics",
                                  {"name": self.name, "metrics": list(names), "max_points": max_points})
        return Metrics({series["name"]: [_point(point, series["name"]) for point in series.get("points", [])]
                        for series in answer.get("series", [])})

    def follow_metrics(self, *names: str) -> Iterator[Point]:
        """Yields all points as they come, until the job has ended."""
        for message in self.client.stream("JobService/WatchMetrics",
                                          {"name": self.name, "metrics": list(names), "follow": True}):
            for point in message.get("points", []):
                yield _point(point)

    def clone(self, *, set: Optional[Mapping[str, Any]] = None, devices: Any = None, from_step: Optional[int] = None,
              request_id: Optional[str] = None, **values: Any) -> "Job":
        """Submits the job once more with changes: clone(lr=0.3), clone(set={"optimizer.sgd.lr": 0.3}), clone(devices=2).
        A name without a path is a parameter of a program, or the only field of the spec with that name. from_step goes on
        from a checkpoint of this job."""
        paths = dict(set or {})
        if devices is not None:
            paths["devices"] = devices
        request = {"name": self.name, "changes": specs.changes(self.refresh().spec, values, paths),
                   "request_id": request_id or self.client.new_request_id()}
        if from_step is not None:
            request["from_checkpoint"] = f"{self.name}/checkpoints/{from_step}"
        job = self.client.call("JobService/CloneJob", request)["job"]
        return Job(self.client, job["name"], job)

    def cancel(self, reason: str = "") -> "Job":
        """Ends the job for good."""
        self._data = self.client.call("JobService/CancelJob", {"name": self.name, "reason": reason})
        return self

    def suspend(self, reason: str = "") -> "Job":
        """Takes the job out of the queue, or stops it after a checkpoint."""
        self._data = self.client.call("JobService/SuspendJob", {"name": self.name, "reason": reason})
        return self

    def resume(self) -> "Job":
        self._data = self.client.call("JobService/ResumeJob", {"name": self.name})
        return self

    def checkpoints(self) -> List[int]:
        """Returns the steps of the job's checkpoints."""
        answer = self.client.call("CheckpointService/ListCheckpoints", {"parent": self.name})
        return [int(checkpoint.get("step", 0)) for checkpoint in answer.get("checkpoints", [])]

    def download(self, folder: Union[str, "os.PathLike[str]"], step: Optional[int] = None) -> str:
        """Downloads the files of a checkpoint, the newest if no step is given, into a folder, and returns its path."""
        if step is None:
            steps = self.checkpoints()
            if not steps:
                raise NotFound(f"{self.name} has no checkpoint", code="not_found", reason="NOT_FOUND")
            step = steps[-1]
        name = f"{self.name}/checkpoints/{step}"
        checkpoint = self.client.call("CheckpointService/GetCheckpoint", {"name": name})
        os.makedirs(folder, exist_ok=True)
        for file in checkpoint.get("files", []):
            # A name leads nowhere but into the folder.
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", file["name"]):
                raise InvalidRequest(f"the checkpoint has a file '{file['name']}', whose name is not taken")
            self.client.transport.download(f"/files/{name}/{file['name']}", os.path.join(os.fspath(folder), file["name"]))
        return os.fspath(folder)

    def _repr_html_(self) -> str:
        try:
            data, curves = self.data, self.metrics(max_points=300)
        except Unreachable as error:
            return page.failure(self.name, str(error))
        name = next((n for n in ("train.loss", "loss", "test.loss") if n in curves), next(iter(curves), ""))
        points = [(p.step, p.value) for p in curves[name]] if name else []
        return page.job(self.name, self._state_of(data), data, name, points)


class JobList(List[Job]):
    """Several jobs, such as those of map()."""

    def wait(self, timeout: Optional[float] = None) -> "JobList":
        end = None if timeout is None else time.monotonic() + timeout
        for job in self:
            job.wait(None if end is None else max(0.0, end - time.monotonic()))
        return self

    def results(self, timeout: Optional[float] = None) -> List[Dict[str, float]]:
        """Waits for all jobs, and returns their results in order. Raises the failure of the first that has failed."""
        self.wait(timeout)
        return [job.result() for job in self]

    def cancel(self, reason: str = "") -> None:
        """Ends all of them that have not ended."""
        if self:
            self[0].client.call("JobService/CancelJobs", {"names": [job.name for job in self], "reason": reason})

    def states(self) -> List[str]:
        return [job.state for job in self]

    def _repr_html_(self) -> str:
        return page.jobs([(job.name, Job._state_of(job._data), job._data) for job in self])


def workers_of(answer: Mapping[str, Any]) -> List[Worker]:
    return [Worker(raw.get("name", ""), _word(raw.get("state", ""), "WORKER_STATE_"),
                   _word(raw.get("scheduling", ""), "WORKER_SCHEDULING_"), raw.get("devices", []), raw)
            for raw in answer.get("workers", [])]


Params = Sequence[Mapping[str, Any]]
