"""Saved specs: the versions of the catalogue, from which jobs are run again by name."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from . import specs
from .errors import InvalidRequest
from .handles import Job
from .records import time_of

if TYPE_CHECKING:
    from .client import Client

_NAME = r"[A-Za-z][A-Za-z0-9_.-]*"


def full_name(name: str) -> str:
    """Returns specs/NAME for "NAME", and specs/NAME/versions/2 for "NAME@2"."""
    match = re.fullmatch(rf"({_NAME})(?:@(\d+))?|specs/({_NAME})(?:/versions/(\d+))?", name)
    if match is None:
        raise InvalidRequest(f"'{name}' is no name of a saved spec; expected one such as resnet-baseline or "
                             "resnet-baseline@2")
    version = match.group(2) or match.group(4)
    return f"specs/{match.group(1) or match.group(3)}" + (f"/versions/{version}" if version else "")


def names_version(what: object) -> bool:
    """Returns True for "resnet-baseline@2", which is no command."""
    return isinstance(what, str) and re.fullmatch(rf"{_NAME}@\d+", what) is not None


class SavedSpec:
    """A version of a saved spec, which never changes."""

    def __init__(self, client: "Client", data: Mapping[str, Any]) -> None:
        self.client = client
        self._data: Dict[str, Any] = dict(data)
        _, base, _, version = str(data["name"]).split("/")
        self.name = f"{base}@{version}"
        self.version = int(version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SavedSpec) and (other.name, other.client) == (self.name, self.client)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<trainyard.SavedSpec {self.name}>"

    @property
    def data(self) -> Dict[str, Any]:
        """All that the server tells of it."""
        if "resolved_spec" not in self._data:  # a list leaves out the specs
            self._data.update(self.client.call("SpecService/GetSavedSpec", {"name": self._data["name"]}))
        return self._data

    @property
    def spec(self) -> Dict[str, Any]:
        """The spec with all defaults filled in, in the form of a spec file."""
        spec: Dict[str, Any] = specs.as_written(self.data.get("resolved_spec") or {})
        return spec

    @property
    def note(self) -> str:
        return str(self._data.get("note", ""))

    @property
    def tags(self) -> List[str]:
        return list(self._data.get("tags") or [])

    @property
    def user(self) -> str:
        """The user who has saved it; "(trainyard)" for the published ones."""
        return str(self._data.get("user", ""))

    @property
    def created(self) -> Optional[datetime.datetime]:
        return time_of(self._data.get("create_time"))

    @property
    def job(self) -> Optional[Job]:
        """The job of which it was saved. It may have been deleted."""
        name = (self._data.get("result") or {}).get("job")
        return Job(self.client, name) if name else None

    def history(self) -> List["SavedSpec"]:
        """Lists all versions of the name, the newest first."""
        return list_saved(self.client, {"parent": full_name(self.name.partition("@")[0])})

    def diff(self, other: Union["SavedSpec", Job, Mapping[str, Any]]) -> Dict[str, Tuple[Any, Any]]:
        """Returns the fields in which another saved spec, a job, or a spec with all defaults differs, by their paths:
        {"optimizer.sgd.lr": (0.1, 0.02)}."""
        return specs.differences(self.spec, other if isinstance(other, Mapping) else other.spec)

    def delete(self, *, all_versions: bool = False) -> None:
        """Deletes this version, or the name with all its versions."""
        self.client.call("SpecService/DeleteSavedSpec",
                         {"name": full_name(self.name.partition("@")[0] if all_versions else self.name)})


def list_saved(client: "Client", request: Mapping[str, Any]) -> List[SavedSpec]:
    found: List[SavedSpec] = []
    token = ""
    while True:
        answer = client.call("SpecService/ListSavedSpecs", {**request, "page_size": 1000, "page_token": token})
        found += [SavedSpec(client, raw) for raw in answer.get("specs", [])]
        token = answer.get("next_page_token", "")
        if not token:
            return found
