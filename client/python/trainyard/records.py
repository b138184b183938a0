"""What the client gives besides jobs: points of metrics, files, and hosts."""

from __future__ import annotations

import csv
import datetime
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from . import page
from .errors import InvalidRequest


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    value: float
    attempt: int = 0
    name: str = ""


def point_of(raw: Mapping[str, Any], name: str = "") -> Point:
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

    def to_csv(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a file with a line for each point: step, name, value and attempt."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "name", "value", "attempt"])
            writer.writerows([point.step, name, point.value, point.attempt]
                             for name, points in self.items() for point in points)

    def _repr_html_(self) -> str:
        return "".join(page.curve(name, [(p.step, p.value) for p in points]) for name, points in self.items())


class Worker(NamedTuple):
    """A host that runs jobs."""

    name: str
    state: str
    scheduling: str
    devices: List[Dict[str, Any]]
    data: Dict[str, Any]  # all that the server tells


class File(NamedTuple):
    """A file that a job has left."""

    name: str  # with its folders: "results/table.csv"
    size: int
    hash: str


def file_of(raw: Mapping[str, Any]) -> File:
    name = str(raw.get("name", ""))
    # A name leads nowhere but into the folder.
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") for part in parts) and not re.search(r"[\x00-\x1f\x7f\\:]", name)
    if not is_plain:
        raise InvalidRequest(f"the server names a file {name!r}, which is not written here")
    return File(name, int(raw.get("size", 0)), str(raw.get("hash", "")))


def without_prefix(text: str, prefix: str) -> str:
    return text[len(prefix):] if text.startswith(prefix) else text


def time_of(text: Optional[str]) -> Optional[datetime.datetime]:
    if not text:
        return None
    # The server writes up to nine digits of a second, and Python reads up to six.
    text = re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00")
    match = re.match(r"^(.*?)(?:\.(\d+))?(\+00:00)$", text)
    if match is None:
        return None
    return datetime.datetime.fromisoformat(match.group(1) + "." + (match.group(2) or "0").ljust(6, "0") + match.group(3))


def workers_of(answer: Mapping[str, Any]) -> List[Worker]:
    return [Worker(raw.get("name", ""), without_prefix(raw.get("state", ""), "WORKER_STATE_"),
                   without_prefix(raw.get("scheduling", ""), "WORKER_SCHEDULING_"), raw.get("devices", []), raw)
            for raw in answer.get("workers", [])]
