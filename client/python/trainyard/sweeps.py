"""Handles of sweeps, which search for good values of some fields of a spec by many jobs. As that of a job, such a
handle is a name and the address of its server."""

from __future__ import annotations

import datetime
import math
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from . import page, specs
from .errors import NotFound, TimedOut, TrainyardError
from .handles import Job
from .records import time_of, without_prefix

if TYPE_CHECKING:
    from .client import Client

# Trials train for minutes, so nobody needs to ask more often. A sweep of thousands of trials takes longer to fetch, and
# is fetched less often.
_PAUSE_S = 1.0
_PAUSE_MAX_S = 30.0
_FETCHES_APART = 20


class Trial(NamedTuple):
    """One trial of a sweep as it was when the server was asked."""

    number: int  # from 0
    state: str  # ACTIVE, PAUSED, STOPPED, SUCCEEDED or FAILED
    values: Dict[str, Any]  # of the parameters, by their paths
    value: Optional[float]  # the last value of the metric by which trials are compared
    step: int  # of that value
    rung: int
    job: Optional[Job]  # the newest job that trains it
    data: Dict[str, Any]  # all that the server tells

    def __repr__(self) -> str:
        return f"<trainyard.Trial {self.number} {self.state} {self.values}, value {self.value}>"


def trial_of(client: "Client", raw: Mapping[str, Any]) -> Trial:
    value = raw.get("value")
    return Trial(int(raw.get("index", 0)), without_prefix(str(raw.get("state", "")), "TRIAL_STATE_"),
                 specs.read_values(raw.get("values") or {}), None if value is None else float(value),
                 int(raw.get("step", 0)), int(raw.get("rung", 0)), Job(client, raw["job"]) if raw.get("job") else None,
                 dict(raw))


class Sweep:
    """A sweep on a server."""

    def __init__(self, client: "Client", name: str, data: Optional[Mapping[str, Any]] = None) -> None:
        self.client = client
        self.name = name if name.startswith("sweeps/") else f"sweeps/{name}"
        self._data: Dict[str, Any] = dict(data or {})

    def __getstate__(self) -> Dict[str, Any]:
        return {"client": self.client, "name": self.name, "_data": {}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sweep) and (other.name, other.client) == (self.name, self.client)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        state = self._state_of(self._data)
        return f"<trainyard.Sweep {self.name}{' ' + state if state else ''}>"

    @staticmethod
    def _state_of(data: Mapping[str, Any]) -> str:
        return without_prefix(str(data.get("state", "")), "SWEEP_STATE_")

    @property
    def id(self) -> int:
        return int(self.name.rpartition("/")[2])

    def refresh(self, *, retry_for: Optional[float] = None) -> "Sweep":
        """Asks the server for all of the sweep."""
        self._data = self.client.call("SweepService/GetSweep", {"name": self.name}, retry_for=retry_for)
        return self

    @property
    def data(self) -> Dict[str, Any]:
        """All that the server tells of the sweep, as it is now. One that has ended may go on again."""
        self.refresh()
        return self._data

    def _known(self) -> Dict[str, Any]:
        # A list has the best trial alone, and of the spec only what is searched.
        return self._data if "name" in (self._data.get("spec") or {}) else self.data

    @property
    def state(self) -> str:
        """RUNNING, SUCCEEDED, STOPPED or FAILED."""
        return self._state_of(self.data)

    @property
    def done(self) -> bool:
        return self.state != "RUNNING"

    @property
    def reason(self) -> str:
        """Why it has ended, or what keeps it from going on."""
        return str(self.data.get("reason", ""))

    @property
    def spec(self) -> Dict[str, Any]:
        """The spec with all defaults filled in, in the form of a spec file."""
        spec: Dict[str, Any] = specs.as_written(self._known().get("spec") or {})
        return spec

    @property
    def user(self) -> str:
        return str(self._known().get("user", ""))

    @property
    def created(self) -> Optional[datetime.datetime]:
        return time_of(self._known().get("create_time"))

    @property
    def trials(self) -> List[Trial]:
        """The trials that have begun, in their order."""
        return self._trials(self.data)

    def _trials(self, data: Mapping[str, Any]) -> List[Trial]:
        return [trial_of(self.client, raw) for raw in data.get("trials") or []]

    def best(self) -> Trial:
        """Returns the best trial so far. Raises NotFound if none has told a value."""
        data = self.data
        number = int(data.get("best_trial", 0))
        found = next((trial for trial in self._trials(data) if trial.number == number), None)
        if found is None:
            raise NotFound(f"no trial of {self.name} has told a value of {self._metric(data)} yet", code="not_found",
                           reason="NOT_FOUND")
        return found

    @staticmethod
    def _metric(data: Mapping[str, Any]) -> str:
        """Returns the name of the metric by which trials are compared."""
        sweep = (data.get("spec") or {}).get("sweep") or {}
        return str(sweep.get("maximize") or sweep.get("minimize") or "value")

    def wait(self, timeout: Optional[float] = None) -> "Sweep":
        """Waits until the sweep has ended or is stopped. Raises TimedOut."""
        for _ in self._watch(False, timeout):
            pass
        return self

    def follow(self) -> Iterator[str]:
        """Yields what was decided so far, and what is decided from now on, until the sweep has ended or is stopped:
        "trial 5 goes on to rung 2: it is 1 of the best 2 of 8"."""
        return self._watch(True, None)

    def _watch(self, with_decisions: bool, timeout: Optional[float]) -> Iterator[str]:
        end = None if timeout is None else time.monotonic() + timeout
        told, pause = 0, 0.05
        while True:
            begin = time.monotonic()
            # A server that is away is not waited for any longer than the sweep.
            retry_for = None if end is None else min(self.client.transport.retry_for, max(0.0, end - begin))
            self._data = self.client.call("SweepService/GetSweep", {
                "name": self.name, "with_decisions": with_decisions, "decisions_after": str(told)}, retry_for=retry_for)
            took = time.monotonic() - begin
            for decision in self._data.pop("decisions", []):
                told = int(decision.get("sequence", 0))
                yield str(decision.get("text", ""))
            if self._state_of(self._data) != "RUNNING":
                return
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f"{self.name} is RUNNING after {timeout} s", code="deadline_exceeded")
            pause = min(max(min(pause * 1.5, _PAUSE_S), _FETCHES_APART * took), _PAUSE_MAX_S)
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))

    def stop(self, *, cancel: bool = False) -> "Sweep":
        """Stops the sweep: no trial begins any more, and those that run are suspended after a checkpoint. With
        `cancel`, they are cancelled, and the sweep cannot go on."""
        self._data = self.client.call("SweepService/StopSweep", {"name": self.name, "cancel": cancel})
        return self

    def resume(self, *, failed: bool = False) -> "Sweep":
        """Goes on with a sweep that was stopped. With `failed`, its failed trials run again with the values that they
        had."""
        self._data = self.client.call("SweepService/ResumeSweep", {"name": self.name, "retry_failed": failed})
        return self

    def delete(self) -> None:
        """Forgets a sweep that has ended. Its jobs stay."""
        self.client.call("SweepService/DeleteSweep", {"name": self.name})

    def to_pandas(self) -> Any:
        """Returns a DataFrame with a row for each trial, and columns for its parameters, the metric by which trials are
        compared, its step, the rung, the state and the name of the job. It needs pandas."""
        import pandas  # type: ignore[import]
        data = self.data
        trials = self._trials(data)
        frame = pandas.DataFrame([{
            **trial.values, self._metric(data): trial.value, "step": trial.step, "rung": trial.rung,
            "state": trial.state, "job": trial.job.name if trial.job is not None else None} for trial in trials],
            index=[trial.number for trial in trials])
        frame.index.name = "trial"
        return frame

    def _repr_html_(self) -> str:
        try:
            data = self.refresh(retry_for=0)._data
        except TrainyardError as error:
            return page.failure(self.name, str(error))
        trials = self._trials(data)
        sign = -1.0 if "maximize" in ((data.get("spec") or {}).get("sweep") or {}) else 1.0

        def rank(trial: Trial) -> float:  # NaN is the worst value
            return math.inf if trial.value is None or math.isnan(trial.value) else sign * trial.value

        def text(value: Any) -> str:
            return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

        paths = sorted({path for trial in trials for path in trial.values})
        rows = [[trial.number, *(text(trial.values.get(path)) for path in paths), trial.state, trial.rung,
                 text(trial.value), trial.step, trial.job.name if trial.job is not None else ""]
                for trial in sorted(trials, key=rank)]
        return page.sweep(self.name, self._state_of(data), data,
                          ["trial", *paths, "state", "rung", self._metric(data), "step", "job"], rows)
