"""Talks to a server of Trainyard: trainyard.connect() finds it as the command line does."""

from __future__ import annotations

import re
import uuid
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import contexts, specs
from .catalogue import SavedSpec, full_name, list_saved, names_version
from .errors import InvalidRequest, NotFound, TrainyardError, tell
from .handles import Job, JobList
from .records import Worker, workers_of
from .sender import CodeSender
from .sweeps import Sweep
from .transport import RETRY_FOR_S, Transport

__all__ = ["Client", "connect"]

STATES = ("QUEUED", "STARTING", "RUNNING", "STOPPING", "SUSPENDED", "SUCCEEDED", "FAILED", "CANCELLED")

JobLike = Union[Job, str, int]
SpecLike = Union[specs.SpecLike, SavedSpec]


class Client:
    """A server. It can be used by several threads and can be pickled. As a context manager, it closes the connection of the
    thread at the end."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Client) and (other.transport.address, other.transport.act_as) == (
            self.transport.address, self.transport.act_as)

    def __hash__(self) -> int:
        return hash(self.transport.address)

    def __repr__(self) -> str:
        return f"<trainyard.Client {self.transport.address}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection of this thread. The client can still be used, and then opens a new one."""
        self.transport.close()

    def call(self, rpc: str, message: Optional[Mapping[str, Any]] = None, *,
             retry_for: Optional[float] = None) -> Dict[str, Any]:
        """Makes any call of the API: call("FleetService/ListWorkers")."""
        return self.transport.call(rpc, message, retry_for=retry_for)

    def stream(self, rpc: str, message: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Makes any call of the API that answers with a stream."""
        return self.transport.stream(rpc, message)

    @staticmethod
    def new_request_id() -> str:
        # A call that is repeated because its answer was lost makes no second job.
        return f"py-{uuid.uuid4()}"

    def submit(self, what: SpecLike, *, args: Union[str, Sequence[object]] = (), devices: Any = None,
               params: Optional[Mapping[str, Any]] = None, env: Optional[Mapping[str, Any]] = None,
               name: Optional[str] = None, directory: Optional[specs.PathLike] = None,
               code: Optional[specs.PathLike] = None, project: Optional[str] = None,
               tags: Union[str, Sequence[str]] = (), set: Optional[Mapping[str, Any]] = None,
               after: Union[JobLike, Sequence[JobLike]] = (), after_ok: Union[JobLike, Sequence[JobLike]] = (),
               reservation: str = "", wait_for_devices: bool = False, from_checkpoint: Union[Job, str] = "",
               request_id: Optional[str] = None) -> Job:
        """Submits a job and returns its handle. `what` is a spec as a mapping, the path of a file with one (.yaml, .json),
        a script ("train.py", with `args`), a command as one text, a command as a list of words, or a saved spec, also
        by its name with a version ("resnet@2"). A command runs in `directory`, the present folder if it is not given,
        on the hosts of the workers.

        `code` is a folder that travels with the job as it is now, so that it need not be on the hosts. The command then
        runs in a copy of it, in the present folder if that lies below, or in `directory`, which is relative to it.
        `set` changes any field by its path: set={"outputs": ["results/**"]}. `from_checkpoint` is "12/600", or a job for
        its newest one."""
        source, origin = self._source(what)
        spec = specs.make(source, args=args, directory=directory, devices=devices, params=params, env=env, name=name,
                          project=project, tags=tags, code=code, set=set)
        options = {**self._options(after, after_ok, reservation, wait_for_devices), **origin}
        start = self._checkpoint(from_checkpoint)
        with CodeSender(self) as sender:
            options.update(sender.take(spec))
            sender.send()
        return self._create(spec, options, start, request_id or self.new_request_id())

    def _source(self, what: SpecLike) -> Tuple[specs.SpecLike, Dict[str, Any]]:
        """Returns the spec of a saved one, and the options of a submission that name it."""
        if isinstance(what, str) and names_version(what):
            what = self.saved_spec(what)
        return (what.spec, {"saved_spec": what.data["name"]}) if isinstance(what, SavedSpec) else (what, {})

    @staticmethod
    def _options(after: Union[JobLike, Sequence[JobLike]] = (), after_ok: Union[JobLike, Sequence[JobLike]] = (),
                 reservation: str = "", wait_for_devices: bool = False) -> Dict[str, Any]:
        options = {"after": _names(after), "after_ok": _names(after_ok), "reservation": reservation,
                   "wait_for_devices": wait_for_devices}
        return {key: value for key, value in options.items() if value}

    def _checkpoint(self, start: Union[Job, str]) -> str:
        if isinstance(start, Job):
            steps = start.checkpoints()
            if not steps:
                raise NotFound(f"{start.name} has no checkpoint", code="not_found", reason="NOT_FOUND")
            return f"{start.name}/checkpoints/{steps[-1]}"
        match = re.fullmatch(r"(\d+)/(\d+)", start)
        return f"jobs/{match.group(1)}/checkpoints/{match.group(2)}" if match else start

    def _create(self, spec: Mapping[str, Any], options: Mapping[str, Any], from_checkpoint: str, request_id: str) -> Job:
        data = self.call("JobService/CreateJob", {"spec": spec, "request_id": request_id,
                                                  "from_checkpoint": from_checkpoint, "options": options})
        for sentence in data.get("warnings", []):
            tell(sentence)
        return Job(self, data["name"], data)

    def map(self, what: SpecLike, values: Iterable[Mapping[str, Any]], *,
            after: Union[JobLike, Sequence[JobLike]] = (), after_ok: Union[JobLike, Sequence[JobLike]] = (),
            reservation: str = "", wait_for_devices: bool = False, from_checkpoint: Union[Job, str] = "",
            request_id: Optional[str] = None, **options: Any) -> JobList:
        """Submits one job for each set of values, and returns their handles in order. A name without dots is a parameter
        of the program; one with dots is the path of a field: {"optimizer.sgd.lr": 0.1}. `options` are those of submit.
        All specs are checked before the first job is submitted. If a submission fails all the same, the error has the
        jobs that were made before it as `jobs`. With a `request_id`, the same call once more makes the missing ones."""
        source, origin = self._source(what)
        base = specs.make(source, **options)
        chosen = {**self._options(after, after_ok, reservation, wait_for_devices), **origin}
        start = self._checkpoint(from_checkpoint)
        prefix = request_id or self.new_request_id()
        ready: List[Dict[str, Any]] = []
        for each in values:
            if not isinstance(each, Mapping):
                raise InvalidRequest(f"map takes mappings such as {{'lr': 0.1}}, and found a {type(each).__name__}; of a "
                                     'DataFrame, give frame.to_dict("records")')
            spec = specs.make(base, params={k: v for k, v in each.items() if "." not in k})
            for path, value in each.items():
                if "." in path:
                    specs.set_path(spec, path, value)
            ready.append(spec)
        jobs = JobList()
        with CodeSender(self) as sender:
            of_code = [sender.take(spec) for spec in ready]
            for spec in ready:
                self.call("JobService/CreateJob", {"spec": spec, "validate_only": True, "from_checkpoint": start,
                                                   "options": {"wait_for_devices": True}})
            sender.send()
        try:
            for index, spec in enumerate(ready):
                jobs.append(self._create(spec, {**chosen, **of_code[index]}, start, f"{prefix}/{index}"))
        except TrainyardError as error:
            error.jobs = jobs
            if jobs:
                error.message += f" (after {len(jobs)} of {len(ready)} jobs, the last of which is {jobs[-1].name})"
            raise
        return jobs

    def sweep(self, what: Union[SpecLike, int], parameters: Optional[Mapping[str, Any]] = None, *, maximize: str = "",
              minimize: str = "", search: str = "", trials: Optional[int] = None, concurrent: Optional[int] = None,
              seed: Optional[int] = None, budget: str = "", target: Optional[float] = None,
              patience: Optional[int] = None, reservation: str = "", wait_for_devices: bool = False,
              request_id: Optional[str] = None, **options: Any) -> Sweep:
        """Begins a sweep and returns its handle; sweep(3) returns that of one that has begun. `parameters` are the
        values of each field that is searched: {"optimizer.sgd.lr": "log(1e-3, 1)", "train.global_batch": [32, 64]}. A
        name without dots is a parameter of the program, or the only field of the spec with that name. `search` is
        "grid", "random", "asha" or "pbt". All of these override the `sweep` of a spec that has one, and further fields
        are set by their paths: set={"sweep.rungs": 3}. `options` are those of submit."""
        fields = {"search": search, "trials": trials, "concurrent": concurrent, "seed": seed, "budget": budget,
                  "target": target, "patience": patience}
        given = {name: specs.plain(value, name) for name, value in fields.items() if value not in (None, "")}
        if isinstance(what, int) or (isinstance(what, str) and re.fullmatch(r"sweeps/\d+", what)):
            if parameters or maximize or minimize or given or options:
                raise InvalidRequest(f"'{what}' is a sweep that has begun; to begin another, give a spec")
            return Sweep(self, str(what)).refresh()
        source, origin = self._source(what)
        spec = specs.make(source, **options)
        specs.add_sweep(spec, parameters or {}, given, maximize=maximize, minimize=minimize)
        chosen = {**self._options(reservation=reservation, wait_for_devices=wait_for_devices), **origin}
        with CodeSender(self) as sender:
            chosen.update(sender.take(spec))
            sender.send()
        data = self.call("SweepService/CreateSweep", {"spec": spec, "options": chosen,
                                                      "request_id": request_id or self.new_request_id()})
        for sentence in data.get("warnings", []):
            tell(sentence)
        return Sweep(self, data["name"], data)

    def sweeps(self, *, user: str = "", limit: int = 50) -> List[Sweep]:
        """Lists sweeps, the newest first. `user` is empty for all."""
        found: List[Sweep] = []
        token = ""
        while len(found) < limit:
            answer = self.call("SweepService/ListSweeps", {
                "page_size": min(limit - len(found), 1000), "page_token": token, "user": user})
            found += [Sweep(self, data["name"], data) for data in answer.get("sweeps", [])]
            token = answer.get("next_page_token", "")
            if not token:
                break
        return found

    def save_spec(self, what: Union[SpecLike, Job, int], name: str, *, note: str = "",
                  tags: Union[str, Sequence[str]] = (), **options: Any) -> SavedSpec:
        """Saves the spec of a job, or one that was not run yet, as the next version of a name of the catalogue.
        `options` are those of submit for a spec that was not run; its own name and tags are set by
        set={"name": ...}."""
        request: Dict[str, Any] = {"name": name, "note": note, "tags": specs.words(tags)}
        with CodeSender(self) as sender:
            if isinstance(what, (Job, int)):
                if options:
                    raise InvalidRequest(f"{', '.join(options)}: a job is saved as it ran; clone it with the changes, "
                                         "and save that")
                request["job"] = Job.name_of(str(what)) if isinstance(what, int) else what.name
            else:
                request["spec"] = specs.make(self._source(what)[0], **options)
                request.update(sender.take(request["spec"]))
            sender.send()
        return SavedSpec(self, self.call("SpecService/SaveSpec", request))

    def saved_spec(self, name: str) -> SavedSpec:
        """Returns a saved spec: "resnet" for its newest version, "resnet@2" for another one. Raises NotFound."""
        return SavedSpec(self, self.call("SpecService/GetSavedSpec", {"name": full_name(name)}))

    def saved_specs(self, text: str = "", *, tags: Union[str, Sequence[str]] = ()) -> List[SavedSpec]:
        """Lists the newest version of each saved spec, or of those with this text in their names, notes, models, data
        sets or tags, and with all these tags."""
        return list_saved(self, {"text": text, "tags": specs.words(tags)})

    def job(self, name: Union[int, str]) -> Job:
        """Returns the handle of a job by its number. Raises NotFound."""
        return Job(self, str(name)).refresh()

    def jobs(self, *, states: Union[str, Sequence[str]] = (), user: str = "", project: str = "",
             tags: Union[str, Sequence[str]] = (), name: str = "", where: str = "", order_by: str = "",
             limit: int = 50) -> JobList:
        """Lists jobs, the newest first. `name` may have stars; `user` is empty for all. `where` is an expression such as
        "test.accuracy > 0.9 and model = resnet", and `order_by` a field of it, or one and " desc"."""
        wanted = [state.upper() for state in specs.words(states)]
        for state in wanted:
            if state not in STATES:
                raise InvalidRequest(f"there is no state '{state}'; expected {', '.join(STATES[:-1])} or {STATES[-1]}")
        found = JobList()
        token = ""
        while len(found) < limit:
            answer = self.call("JobService/ListJobs", {
                "page_size": min(limit - len(found), 1000), "page_token": token, "user": user, "project": project,
                "tags": specs.words(tags), "job_name": name, "states": [f"JOB_STATE_{state}" for state in wanted],
                "where": where, "order_by": order_by})
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
        return str(self.call("AccessService/WhoAmI").get("user", ""))

    def cancel(self, *jobs: JobLike) -> None:
        """Ends jobs for good."""
        JobList(job if isinstance(job, Job) else Job(self, str(job)) for job in jobs).cancel()


def _names(jobs: Union[JobLike, Sequence[JobLike]]) -> List[str]:
    """The names of several jobs, or of one."""
    several = [jobs] if isinstance(jobs, (Job, str, int)) else jobs
    return [job.name if isinstance(job, Job) else Job.name_of(str(job)) for job in several]


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
