"""Handles of jobs, and what they give. A handle is the name of a job and the address of its server, so it can be pickled,
and works after a restart of Python and of the server."""

from __future__ import annotations

import datetime
import fnmatch
import json
import os
import time
from typing import (
    TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, SupportsIndex, Tuple,
    Union, overload)
from urllib.parse import quote

from . import page, specs
from .errors import JobFailed, NotFound, TimedOut, TrainyardError, error_of, tell
from .records import File, Metrics, Point, file_of, point_of, time_of, without_prefix
from .sender import CodeSender
from .transport import bytes_of

if TYPE_CHECKING:
    from .client import Client

FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")
# Outputs of a job that has ended may arrive some moments after its end.
ARRIVAL_S = 30.0
# One WatchJobs names at most so many jobs, and one CancelJobs ten times as many.
_NAMES_AT_A_TIME = 1000
# Codes of gRPC.
_HAS_ENDED = 9
_CODES = {3: "invalid_argument", 5: "not_found", 7: "permission_denied"}


class Job:
    """A job on a server."""

    def __init__(self, client: "Client", name: str, data: Optional[Mapping[str, Any]] = None) -> None:
        self.client = client
        self.name = self.name_of(name)
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
    def name_of(number: str) -> str:
        """Returns "jobs/7" for "7" and for "jobs/7"."""
        return number if number.startswith("jobs/") else f"jobs/{number}"

    @staticmethod
    def _state_of(data: Mapping[str, Any]) -> str:
        return without_prefix(str(data.get("state", "")), "JOB_STATE_")

    @property
    def id(self) -> int:
        return int(self.name.rpartition("/")[2])

    def refresh(self, *, retry_for: Optional[float] = None) -> "Job":
        """Asks the server for all of the job."""
        self._data = self.client.call("JobService/GetJob", {"name": self.name}, retry_for=retry_for)
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
        """The spec with all defaults filled in, in the form of a spec file."""
        spec: Dict[str, Any] = specs.as_written((self._data or self.data).get("resolved_spec", {}))
        return spec

    @property
    def params(self) -> Dict[str, Any]:
        """The parameters of a program."""
        params: Dict[str, Any] = (self.spec.get("program") or {}).get("params") or {}
        return params

    @property
    def step(self) -> int:
        return int((self.data.get("progress") or {}).get("step", 0))

    @property
    def created(self) -> Optional[datetime.datetime]:
        return time_of((self._data or self.data).get("create_time"))

    @property
    def user(self) -> str:
        return str((self._data or self.data).get("user", ""))

    @property
    def note(self) -> str:
        """What somebody has written about the job."""
        return str(self.refresh().data.get("note", ""))

    @note.setter
    def note(self, text: str) -> None:
        self.annotate(note=text)

    @property
    def tags(self) -> List[str]:
        """The tags of the spec, and those that were added later."""
        return [*(self.spec.get("tags") or []), *(self._data.get("added_tags") or [])]

    def annotate(self, *, note: Optional[str] = None, add_tags: Union[str, Sequence[str]] = (),
                 remove_tags: Union[str, Sequence[str]] = ()) -> "Job":
        """Writes the note, and adds and removes tags. What is not given stays."""
        request: Dict[str, Any] = {"name": self.name, "add_tags": specs.words(add_tags),
                                   "remove_tags": specs.words(remove_tags)}
        if note is not None:
            request["note"] = note
        self._data = self.client.call("JobService/AnnotateJob", request)
        return self

    def explain(self) -> str:
        """Says why the job waits, and until when."""
        told = self.client.call("JobService/ExplainJob", {"name": self.name})
        lines = list(told.get("reasons") or []) or ["it does not wait"]
        lines += [told[key] for key in ("change_text", "start_basis") if told.get(key)]
        return "\n".join(lines)

    def wait(self, timeout: Optional[float] = None) -> "Job":
        """Waits until the job has ended, or is held for a person after a failure. Raises TimedOut."""
        if timeout is None:
            self._follow_to_end()
            return self
        end, pause = time.monotonic() + timeout, 0.05
        while True:
            if self._state_of(self._data) not in FINAL_STATES:
                # A server that is away is not waited for any longer than the job.
                left = max(0.0, end - time.monotonic())
                self.refresh(retry_for=min(self.client.transport.retry_for, left))
            if self._is_over(self._data):
                return self
            left = end - time.monotonic()
            if left <= 0:
                raise TimedOut(f"{self.name} is {self._state_of(self._data)} after {timeout} s", code="deadline_exceeded")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 1.0)

    def _is_over(self, data: Mapping[str, Any]) -> bool:
        state = self._state_of(data)
        return state in FINAL_STATES or (state == "SUSPENDED" and bool(data.get("failure")))

    def _follow_to_end(self) -> None:
        while self._state_of(self._data) not in FINAL_STATES:
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
                        failure_class=without_prefix(failure.get("failure_class", ""), "FAILURE_CLASS_"),
                        job_exit_code=int(failure.get("exit_code", 0)))

    @overload
    def logs(self, follow: Literal[False] = False, rank: Optional[int] = None,
             tail_bytes: Optional[int] = None) -> str: ...

    @overload
    def logs(self, follow: Literal[True], rank: Optional[int] = None,
             tail_bytes: Optional[int] = None) -> Iterator[str]: ...

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
        attempt, has_ranks = -1, False
        open_lines: Dict[int, bytes] = {}
        ends: Dict[int, int] = {}

        def text(rank: int, line: bytes) -> str:
            return (f"[{rank}] " if has_ranks else "") + line.decode("utf-8", "replace")

        for chunk in self.client.stream("JobService/TailLogs", request):
            if int(chunk.get("attempt", 0)) != attempt:
                yield from (text(rank, rest) for rank, rest in sorted(open_lines.items()) if rest)
                attempt, open_lines, ends = int(chunk.get("attempt", 0)), {}, {}
                # A job has no ranks before it is placed, and an attempt may have more of them than the one before.
                has_ranks = "rank" not in request and len(self.data.get("placement") or []) > 1
            rank, offset, data = int(chunk.get("rank", 0)), int(chunk.get("offset", 0)), bytes_of(chunk.get("data", ""))
            # After a lost connection, a stream of many ranks begins anew.
            data = data[max(0, ends.get(rank, offset) - offset):]
            ends[rank] = max(ends.get(rank, 0), offset + len(bytes_of(chunk.get("data", ""))))
            *complete, rest = (open_lines.get(rank, b"") + data).split(b"\n")
            open_lines[rank] = rest
            for line in complete:
                yield text(rank, line)
        yield from (text(rank, rest) for rank, rest in sorted(open_lines.items()) if rest)

    def metrics(self, *names: str, max_points: int = 0) -> Metrics:
        """Returns the curves of the job, or those of these names. to_pandas() makes a DataFrame of them."""
        return self._metrics(names, max_points)

    def _metrics(self, names: Sequence[str], max_points: int, retry_for: Optional[float] = None) -> Metrics:
        answer = self.client.call(
            "JobService/QueryMetrics", {"name": self.name, "metrics": list(names), "max_points": max_points},
            retry_for=retry_for)
        return Metrics({series["name"]: [point_of(point, series["name"]) for point in series.get("points", [])]
                        for series in answer.get("series", [])})

    def follow_metrics(self, *names: str) -> Iterator[Point]:
        """Yields all points as they come, until the job has ended."""
        for message in self.client.stream("JobService/WatchMetrics",
                                          {"name": self.name, "metrics": list(names), "follow": True}):
            for point in message.get("points", []):
                yield point_of(point)

    def clone(self, *, set: Optional[Mapping[str, Any]] = None, devices: Any = None, name: Optional[str] = None,
              code: Optional[specs.PathLike] = None, from_step: Optional[int] = None, request_id: Optional[str] = None,
              **values: Any) -> "Job":
        """Submits the job once more with changes: clone(lr=0.3), clone(set={"optimizer.sgd.lr": 0.3}), clone(devices=2).
        A name without a path is a parameter of a program, or the only field of the spec with that name. `code` is a folder
        that travels in place of the code of this job. from_step goes on from a checkpoint of this job."""
        spec = self.refresh().spec
        specs.check_clone(spec, values)
        paths = dict(set or {})
        for path, value in (("devices", devices), ("name", name)):
            if value is not None:
                paths[path] = value
        request: Dict[str, Any] = {"name": self.name, "request_id": request_id or self.client.new_request_id()}
        if from_step is not None:
            request["from_checkpoint"] = f"{self.name}/checkpoints/{from_step}"
        with CodeSender(self.client) as sender:
            if code is not None:
                made = sender.take_folder(os.fspath(code))
                paths = {**specs.changes_of_code(spec, os.fspath(code), made.digest), **paths}
                if made.origin:
                    request["options"] = {"code_origin": made.origin}
            request["changes"] = specs.changes(spec, values, paths)
            sender.send()
        job = self.client.call("JobService/CloneJob", request)["job"]
        for sentence in job.get("warnings", []):
            tell(sentence)
        return Job(self.client, job["name"], job)

    def verify(self, *, tolerance: float = 0.0, devices: Optional[int] = None,
               request_id: Optional[str] = None) -> Dict[str, Any]:
        """Runs the job again, waits for the end, and says what came out: `result` is IDENTICAL, EQUIVALENT, DIFFERENT or
        FAILED, and `reasons` are sentences. Metrics that differ by at most `tolerance` are equivalent (0.01)."""
        request: Dict[str, Any] = {"name": self.name, "verifies": True, "tolerance": tolerance,
                                   "request_id": request_id or self.client.new_request_id()}
        if devices is not None:
            request["changes"] = [{"path": "devices.count", "value_json": str(devices)}]
        made = self.client.call("JobService/CloneJob", request)["job"]
        again = Job(self.client, made["name"], made).wait()
        for found in self.verifications():
            if found["job"] == again.name:
                return found
        raise NotFound(f"{again.name} was deleted before it could be compared with {self.name}", code="not_found",
                       reason="NOT_FOUND")

    def verifications(self) -> List[Dict[str, Any]]:
        """What came out each time the job was run again."""
        found = self.client.call("JobService/ListVerifications", {"name": self.name}).get("verifications", [])
        return [{**one, "result": without_prefix(str(one.get("result", "")), "VERIFICATION_RESULT_")} for one in found]

    def lineage(self, *, max_jobs: int = 200) -> List[Dict[str, Any]]:
        """The jobs from which the job descends and those that descend from it, itself among them, in order of their
        numbers. The `links` of each say from what it descends: {"kind": "CLONE", "parent": "jobs/7"}."""
        answer = self.client.call("JobService/GetLineage", {"name": self.name, "max_jobs": max_jobs})
        if answer.get("is_cut"):
            tell(f"{self.name} has more than {max_jobs} relatives, and the nearest are listed; max_jobs= lists more")

        def link_of(raw: Mapping[str, Any]) -> Dict[str, Any]:
            return {**raw, "kind": without_prefix(str(raw.get("kind", "")), "LINEAGE_KIND_"),
                    "step": int(raw.get("step", 0))}

        return [{**node, "state": self._state_of(node), "links": [link_of(link) for link in node.get("links", [])]}
                for node in answer.get("nodes", [])]

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

    def download(self, folder: specs.PathLike, step: Union[int, str, None] = None) -> str:
        """Downloads the files of a checkpoint into a folder, and returns its path. Without a step it is the newest one, and
        step="best" is the best by the metric of keep.best. A download that broke off goes on."""
        checkpoint = self.client.call("CheckpointService/GetCheckpoint",
                                      {"name": f"{self.name}/checkpoints/{self._step_of(step)}"})
        name = checkpoint["name"]
        if checkpoint.get("damage"):
            raise TrainyardError(f"{name} is damaged: {checkpoint['damage']}; checkpoints() lists others", code="data_loss",
                                 reason="CHECKPOINT_DAMAGED")
        for file in [file_of(raw) for raw in checkpoint.get("files", [])]:
            target = os.path.join(os.fspath(folder), *file.name.split("/"))
            if "/" in file.name:
                # The server gives files in folders by calls alone.
                self.client.transport.download_events("CheckpointService/DownloadCheckpoint",
                                                      {"name": name, "file": file.name}, target, file.size, file.hash)
            else:
                self.client.transport.download(f"/files/{name}/{quote(file.name)}", target, file.size, file.hash)
        return os.fspath(folder)

    def _step_of(self, step: Union[int, str, None]) -> int:
        if step is not None and step != "best":
            return int(step)
        found = self.client.call("CheckpointService/ListCheckpoints", {"parent": self.name}).get("checkpoints", [])
        fitting = [int(each.get("step", 0)) for each in found if step is None or each.get("is_best")]
        if not fitting:
            raise NotFound(f"{self.name} has no {'checkpoint' if step is None else 'best checkpoint'}", code="not_found",
                           reason="NOT_FOUND")
        return fitting[-1]

    def _outputs(self) -> Tuple[List[File], int]:
        end = time.monotonic() + ARRIVAL_S
        while True:
            answer = self.client.call("CheckpointService/GetOutputs", {"name": self.name})
            if not answer.get("is_pending") or time.monotonic() >= end or not self.refresh().done:
                return [file_of(raw) for raw in answer.get("files", [])], int(answer.get("attempt", 0))
            time.sleep(0.1)

    def outputs(self) -> List[File]:
        """Lists the files that `outputs` of the spec names, as the newest attempt that has left any has left them."""
        return self._outputs()[0]

    def download_outputs(self, folder: specs.PathLike, pattern: str = "*") -> List[str]:
        """Downloads outputs whose names fit the pattern, in which a star stands for any text, into a folder, and returns
        their paths: download_outputs("got", "results/*.csv") makes got/results/table.csv. A download that broke off goes
        on."""
        files, attempt = self._outputs()
        chosen = [file for file in files if fnmatch.fnmatchcase(file.name, pattern)]
        if not chosen:
            raise NotFound(f"{self.name} has no output '{pattern}'" + (f"; it has {len(files)} others" if files else
                           ": they are kept when an attempt ends, if the spec names them (outputs: [results/**])"),
                           code="not_found", reason="NOT_FOUND")
        paths = []
        for file in chosen:
            paths.append(os.path.join(os.fspath(folder), *file.name.split("/")))
            self.client.transport.download_events(
                "CheckpointService/DownloadOutput", {"name": self.name, "file": file.name, "attempt": attempt}, paths[-1],
                file.size, file.hash)
        return paths

    def _repr_html_(self) -> str:
        # A notebook does not wait for a server that is away, and shows what went wrong in place of the job.
        try:
            if self._state_of(self._data) not in FINAL_STATES:
                self.refresh(retry_for=0)
            data, curves = self._data, self._metrics((), 300, retry_for=0)
        except TrainyardError as error:
            return page.failure(self.name, str(error))
        name = next((n for n in ("train.loss", "loss", "test.loss") if n in curves), next(iter(curves), ""))
        points = [(p.step, p.value) for p in curves[name]] if name else []
        return page.job(self.name, self._state_of(data), data, name, points)


class JobList(List[Job]):
    """Several jobs, such as those of map()."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> Job: ...

    @overload
    def __getitem__(self, at: slice) -> "JobList": ...

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return JobList(found) if isinstance(at, slice) else found

    def __add__(self, other: Iterable[Job]) -> "JobList":  # type: ignore[override]
        return JobList([*self, *other])

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
        for client in dict.fromkeys(job.client for job in self):
            names = [job.name for job in self if job.client == client]
            for begin in range(0, len(names), 10 * _NAMES_AT_A_TIME):
                answer = client.call("JobService/CancelJobs",
                                     {"names": names[begin:begin + 10 * _NAMES_AT_A_TIME], "reason": reason})
                for failed in answer.get("errors", []):
                    error = failed.get("error") or {}
                    if error.get("code") != _HAS_ENDED:
                        raise error_of({"code": _CODES.get(int(error.get("code", 0)), "unknown"),
                                        "message": error.get("message", ""), "details": [
                                            {"type": "google.rpc.ErrorInfo", "debug": detail}
                                            for detail in error.get("details", []) if "reason" in detail]})

    def states(self) -> List[str]:
        self.refresh()
        return [Job._state_of(job._data) for job in self]

    def refresh(self) -> "JobList":
        """Asks the server for those that have not ended, in one call for many of them."""
        for client in dict.fromkeys(job.client for job in self):
            open_jobs = [job for job in self if job.client == client and Job._state_of(job._data) not in FINAL_STATES]
            for begin in range(0, len(open_jobs), _NAMES_AT_A_TIME):
                self._look(client, open_jobs[begin:begin + _NAMES_AT_A_TIME])
        return self

    @staticmethod
    def _look(client: "Client", jobs: Sequence[Job]) -> None:
        by_name: Dict[str, List[Job]] = {}
        for job in jobs:
            by_name.setdefault(job.name, []).append(job)
        # The stream begins with all jobs as they are, and goes on with changes, which are not waited for.
        for change in client.stream("JobService/WatchJobs", {"names": list(by_name)}):
            for job in by_name.pop(change["job"]["name"], []):
                job._data = change["job"]
            if not by_name:
                return

    def _repr_html_(self) -> str:
        try:
            self.refresh()
        except TrainyardError:
            pass  # what is known of them is better than nothing
        return page.jobs([(job.name, Job._state_of(job._data), job._data) for job in self])
