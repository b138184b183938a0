"""The exceptions of the client. Each class is one class of exit codes of the command line."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

__all__ = [
    "TrainyardError", "InvalidRequest", "NotFound", "NotSignedIn", "NotAllowed", "Conflict", "QuotaExceeded", "JobFailed",
    "Unreachable", "TimedOut", "TrainyardWarning", "error_of", "tell",
]


class TrainyardWarning(UserWarning):
    """What the user should know of a submission, such as a file of the code that does not travel."""


def tell(sentence: str) -> None:
    """Warns, and names the line outside of this package that has called it."""
    package = __name__.rpartition(".")[0]
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(package + "."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, TrainyardWarning, stacklevel=level)


class TrainyardError(Exception):
    """Any failure of the client or of the server. `reason` is an UPPER_SNAKE_CASE word for programs, or empty."""

    exit_code = 1  # of the command line for the same failure

    def __init__(self, message: str, *, code: str = "unknown", reason: str = "",
                 metadata: Optional[Mapping[str, str]] = None,
                 violations: Optional[List[Tuple[str, str]]] = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata: Dict[str, str] = dict(metadata or {})
        self.violations: List[Tuple[str, str]] = list(violations or [])
        self.jobs: Any = []  # of map(): those that were submitted before the failure

    def __str__(self) -> str:
        shown = [f"  {field}: {why}" for field, why in self.violations if why not in self.message]
        lines = [self.message] + shown
        return "\n".join(lines) + (f" ({self.reason})" if self.reason else "")

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(kind: Type[TrainyardError], message: str, state: Dict[str, Any]) -> TrainyardError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class InvalidRequest(TrainyardError):
    """The spec or the request has mistakes; `violations` lists them as (field, what is wrong)."""

    exit_code = 2


class NotFound(TrainyardError):
    """There is no such job, checkpoint or worker."""

    exit_code = 3


class NotSignedIn(TrainyardError):
    """The server does not know who calls: `trainyard login`."""

    exit_code = 4


class NotAllowed(TrainyardError):
    """The caller may not do this."""

    exit_code = 5


class Conflict(TrainyardError):
    """The job is in a state in which this makes no sense, or could never run."""

    exit_code = 6


class QuotaExceeded(TrainyardError):
    """A quota leaves no room."""

    exit_code = 7


class JobFailed(TrainyardError):
    """A job has ended other than well. `job` is its handle, and `job_exit_code` that of its program."""

    exit_code = 8

    def __init__(self, message: str, *, job: Any = None, state: str = "", reason: str = "",
                 failure_class: str = "", job_exit_code: int = 0) -> None:
        super().__init__(message, code="job_failed", reason=reason)
        self.job = job
        self.state = state
        self.failure_class = failure_class
        self.job_exit_code = job_exit_code


class Unreachable(TrainyardError):
    """The server cannot be reached."""

    exit_code = 9


class TimedOut(TrainyardError, TimeoutError):
    """What was waited for has not happened in time."""

    exit_code = 124


_BY_CODE = {
    "invalid_argument": InvalidRequest, "out_of_range": InvalidRequest, "not_found": NotFound,
    "unauthenticated": NotSignedIn, "permission_denied": NotAllowed, "already_exists": Conflict,
    "failed_precondition": Conflict, "aborted": Conflict, "unavailable": Unreachable, "deadline_exceeded": TimedOut,
}


def error_of(body: Mapping[str, Any]) -> TrainyardError:
    """Makes the exception for an error of the server, which has the form of the Connect protocol."""
    reason, metadata, violations = "", {}, []
    for detail in body.get("details") or []:
        debug = detail.get("debug") or {}
        if detail.get("type") == "google.rpc.ErrorInfo":
            reason, metadata = debug.get("reason", ""), debug.get("metadata", {})
        elif detail.get("type") == "google.rpc.BadRequest":
            violations = [(v.get("field", ""), v.get("description", "")) for v in debug.get("fieldViolations", [])]
    code = body.get("code", "unknown")
    kind = _BY_CODE.get(code, TrainyardError)
    if reason == "QUOTA_EXCEEDED":
        kind = QuotaExceeded
    elif reason == "SERVER_BUSY":
        kind = Unreachable
    message = body.get("message", "the server has failed")
    return kind(message, code=code, reason=reason, metadata=metadata, violations=violations)
