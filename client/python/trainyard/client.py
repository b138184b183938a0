"""Talks to a server of Trainyard: trainyard.connect() finds it as the command line does."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from . import contexts, specs
from .handles import Job, JobList, Worker, workers_of
from .transport import RETRY_FOR_S, Transport

__all__ = ["Client", "connect"]


class Client:
    """A server. It can be used by several threads and can be pickled."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Client) and (other.transport.address, other.transport.act_as) == (
            self.transport.address, self.transport.act_as)

    def __hash__(self) -> int:
        return hash(self.transport.address)

    def __repr__(self) -> str:
        return f"<trainyard.Client {self.transport.address}>"

    def call(self, rpc: str, message: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Makes any call of the API: call("FleetService/ListWorkers")."""
        return self.transport.call(rpc, message)

    def stream(self, rpc: str, message: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Makes any call of the API that answers with a stream."""
        return self.transport.stream(rpc, message)

    @staticmethod
    def new_request_id() -> str:
        # A call that is repeated because its answer was lost makes no second job.
        return f"py-{uuid.uuid4()}"

    def submit(self, what: specs.SpecLike, *, args: Sequence[object] = (), devices: Any = None,
               params: Optional[Mapping[str, Any]] = None, env: Optional[Mapping[str, str]] = None,
               name: Optional[str] = None, directory: Optional[str] = None, project: Optional[str] = None,
               tags: Sequence[str] = (), after: Sequence[Union[Job, str]] = (),
               after_ok: Sequence[Union[Job, str]] = (), reservation: str = "", wait_for_devices: bool = False,
               from_checkpoint: str = "", request_id: Optional[str] = None) -> Job:
        """Submits a job and returns its handle. `what` is a spec as a mapping, the path of a file with one (.yaml, .json),
        a script ("train.py", with `args`), a command as one text, or a command as a list of words. A command runs in
        `directory`, the present folder if it is not given, on the hosts of the workers."""
        spec = specs.make(what, args=args, directory=directory, devices=devices, params=params, env=env, name=name,
                          project=project, tags=tags)
        return self._create(spec, {"after": _names(after), "after_ok": _names(after_ok), "reservation": reservation,
                                   "wait_for_devices": wait_for_devices}, from_checkpoint, request_id)

    def _create(self, spec: Mapping[str, Any], options: Mapping[str, Any], from_checkpoint: str,
                request_id: Optional[str]) -> Job:
        data = self.call("JobService/CreateJob", {
            "spec": spec, "request_id": request_id or self.new_request_id(), "from_checkpoint": from_checkpoint,
            "options": {key: value for key, value in options.items() if value}})
        return Job(self, data["name"], data)

    def map(self, what: specs.SpecLike, values: Iterable[Mapping[str, Any]], **options: Any) -> JobList:
        """Submits one job for each set of values, and returns their handles in order. A name without dots is a parameter
        of the program; one with dots is the path of a field: {"optimizer.sgd.lr": 0.1}. `options` are those of submit.
        All specs are checked before the first job is submitted."""
        base = specs.make(what, **{key: options.pop(key) for key in (
            "args", "directory", "devices", "params", "env", "name", "project", "tags") if key in options})
        ready: List[Dict[str, Any]] = []
        for each in values:
            spec = specs.make(base, params={k: v for k, v in each.items() if "." not in k})
            for path, value in each.items():
                if "." in path:
                    specs.set_path(spec, path, value)
            ready.append(spec)
        for spec in ready:
            self.call("JobService/CreateJob", {"spec": spec, "validate_only": True,
                                               "options": {"wait_for_devices": True}})
        return JobList(self.submit(spec, **options) for spec in ready)

    def job(self, name: Union[int, str]) -> Job:
        """Returns the handle of a job by its number. Raises NotFound."""
        return Job(self, str(name)).refresh()

    def jobs(self, *, states: Sequence[str] = (), user: str = "", project: str = "", tags: Sequence[str] = (),
             name: str = "", limit: int = 50) -> JobList:
        """Lists jobs, the newest first. `name` may have stars; `user` is empty for all."""
        found = JobList()
        token = ""
        while len(found) < limit:
            answer = self.call("JobService/ListJobs", {
                "page_size": min(limit - len(found), 1000), "page_token": token, "user": user, "project": project,
                "tags": list(tags), "job_name": name, "states": [f"JOB_STATE_{state.upper()}" for state in states]})
            found += [Job(self, data["name"], data) for data in answer.get("jobs", [])]
            token = answer.get("next_page_token", "")
            if not token:
                break
        return found

    def workers(self) -> List[Worker]:
        """Lists the hosts that run jobs."""
        return workers_of(self.call("FleetService/ListWorkers"))

    def whoami(self) -> str:
        """Returns the user as whom the server knows the caller."""
        return self.call("AccessService/WhoAmI").get("user", "")

    def cancel(self, *jobs: Union[Job, str, int]) -> None:
        """Ends jobs for good."""
        JobList(job if isinstance(job, Job) else Job(self, str(job)) for job in jobs).cancel()


def _names(jobs: Sequence[Union[Job, str]]) -> List[str]:
    return [job.name if isinstance(job, Job) else Job(None, str(job)).name for job in jobs]  # type: ignore[arg-type]


def connect(server: Optional[str] = None, *, context: Optional[str] = None, act_as: str = "", token: str = "",
            fingerprint: str = "", retry_for: float = RETRY_FOR_S) -> Client:
    """Connects to a server: unix:/path, ssh://HOST or tls://HOST:PORT. Without an address, the server is the one that the
    command line would use: of $TRAINYARD_SERVER, of the context in use, or of this machine. For TLS, what
    `trainyard login` has stored is used, or `token` and the `fingerprint` of the server's certificate. `act_as` is for
    administrators. A server that is away is waited for `retry_for` seconds, but for the first call. Raises Unreachable."""
    client = Client(Transport(contexts.choose_server(server, context), act_as=act_as, token=token,
                              fingerprint=fingerprint, retry_for=retry_for))
    client.whoami()
    return client
