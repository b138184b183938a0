"""Speaks HTTP/1.1 with the server: over its Unix socket, over ssh, or over TLS."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, Generator, Iterator, List, Mapping, Optional, Tuple, TypeVar

from . import contexts, dial
from .errors import InvalidRequest, NotSignedIn, TrainyardError, Unreachable, error_of

# A stream says at least every 15 s that it is alive.
STREAM_SILENCE_S = 45.0
CALL_TIMEOUT_S = 60.0
SHORT_TIMEOUT_S = 10.0
# A server that restarts is back within this time.
RETRY_FOR_S = 60.0
_Result = TypeVar("_Result")


def unreachable(address: str, why: object) -> Unreachable:
    return Unreachable(f"cannot reach the server at {address}: {why}", code="unavailable", reason="SERVER_UNREACHABLE")


class _LocalFailure(Exception):
    """A file of this machine could not be written, for which no server is to blame."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _local() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _LocalFailure(error) from None


class _Connection(http.client.HTTPConnection):
    """A connection whose socket another function opens."""

    def __init__(self, opener: Callable[[], socket.socket], timeout: float) -> None:
        super().__init__("trainyard", timeout=timeout)
        self._open = opener
        self._wanted_timeout = timeout

    def set_timeout(self, timeout: float) -> None:
        self._wanted_timeout = timeout
        if self.sock is not None:
            self.sock.settimeout(timeout)

    def connect(self) -> None:
        self.sock = self._open()
        self.sock.settimeout(self._wanted_timeout)


class Transport:
    """Makes calls. It can be used by several threads, each of which has a connection of its own, and can be pickled: the
    copy connects by itself."""

    def __init__(self, address: str, *, act_as: str = "", token: str = "", fingerprint: str = "",
                 retry_for: float = RETRY_FOR_S) -> None:
        self.address = address
        self.act_as = act_as
        self.retry_for = retry_for
        self._token = token
        self._fingerprint = fingerprint
        self._begin()

    def _begin(self) -> None:
        self._local = threading.local()
        self._opener: Optional[Callable[[], socket.socket]] = None
        self._headers: Dict[str, str] = {}
        self._has_answered = False
        self._lock = threading.Lock()

    def __getstate__(self) -> Dict[str, Any]:
        # A token does not go into files that others may read. It is read again from where `trainyard login` has put it.
        return {"address": self.address, "act_as": self.act_as, "retry_for": self.retry_for, "_token": "",
                "_fingerprint": self._fingerprint}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _find(self) -> Tuple[Callable[[], socket.socket], Dict[str, str]]:
        with self._lock:
            if self._opener is None:
                self._opener = self._make_opener()
                if self.act_as:
                    self._headers["Trainyard-As"] = self.act_as
            return self._opener, dict(self._headers)

    def _make_opener(self) -> Callable[[], socket.socket]:
        if self.address.startswith("unix:"):
            path = self.address[len("unix:"):]
            path = path[2:] if path.startswith("//") else path
            self._headers["Host"] = "localhost"
            return lambda: dial.open_unix(path)
        if self.address.startswith("ssh://"):
            dial.ssh_command(self.address)  # or it cannot be read
            self._headers["Host"] = "localhost"
            return lambda: dial.open_ssh(self.address)
        if self.address.startswith("tls:"):
            return self._tls_opener()
        raise InvalidRequest(f"address '{self.address}' cannot be read; use unix:/path, ssh://HOST or tls://HOST:PORT")

    def _tls_opener(self) -> Callable[[], socket.socket]:
        host, port = contexts.split_host(self.address)
        check_name = True
        if self._fingerprint:
            token = self._token or os.environ.get("TRAINYARD_TOKEN", "")
            authority, is_own = dial.fetch_pinned(host, port, self._fingerprint)
            name = host if is_own else "server.trainyard.internal"
            check_name = not is_own
        else:
            authority, name, token = contexts.load_credentials(self.address)
            token = self._token or token
        context = dial.tls_context(authority)
        context.check_hostname = check_name
        self._headers["Host"] = name
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

        def opener() -> socket.socket:
            plain = socket.create_connection((host, port), timeout=10)
            try:
                return context.wrap_socket(plain, server_hostname=name)
            except BaseException:
                plain.close()
                raise

        return opener

    def _connection(self) -> _Connection:
        held = getattr(self._local, "held", None)
        # A process that was forked must not use the connection of its parent.
        if held is None or held[0] != os.getpid():
            held = (os.getpid(), _Connection(self._find()[0], CALL_TIMEOUT_S))
            self._local.held = held
        return held[1]

    def close(self) -> None:
        """Closes the connection of this thread. The next call opens a new one."""
        held = getattr(self._local, "held", None)
        if held is not None:
            held[1].close()
            self._local.held = None

    def _exchange(self, connection: _Connection, method: str, path: str, body: Optional[bytes],
                  more: Mapping[str, str]) -> http.client.HTTPResponse:
        headers = {**self._find()[1], **more}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body=body, headers=headers)
        return connection.getresponse()

    def _check(self, response: http.client.HTTPResponse) -> None:
        """Raises the error of an answer that is one."""
        if response.status in (200, 206):
            return
        error = error_of(_json_of(response.read(), response.status))
        if isinstance(error, NotSignedIn):
            self._forget()
        raise error

    def _forget(self) -> None:
        # Another `trainyard login` may have stored another token, which the next call uses.
        with self._lock:
            self._opener = None
            self._headers = {}
        self.close()

    def call(self, rpc: str, message: Optional[Mapping[str, Any]] = None, *,
             retry_for: Optional[float] = None) -> Dict[str, Any]:
        """Makes a unary call, such as "JobService/GetJob". All calls can be repeated, so a server that is away for a
        while, `retry_for` seconds at most, costs nothing but time."""
        body = json.dumps(message or {}).encode()
        # Whoever does not want to wait for a server that is away does not wait long for one that says nothing, either.
        timeout = CALL_TIMEOUT_S if retry_for is None else min(CALL_TIMEOUT_S, max(retry_for, SHORT_TIMEOUT_S))

        def once() -> Dict[str, Any]:
            connection = self._connection()
            connection.set_timeout(timeout)
            response = self._exchange(connection, "POST", f"/trainyard.v1.{rpc}", body, {})
            self._check(response)
            answer: Dict[str, Any] = json.loads(response.read())
            return answer

        return self._repeat(once, retry_for)

    def _repeat(self, once: Callable[[], _Result], retry_for: Optional[float] = None,
                progress: Optional[Callable[[], int]] = None) -> _Result:
        """Repeats what fails because the server is away, until that has lasted `retry_for` seconds. Whatever makes
        `progress` begins to wait anew."""
        wait_for = self.retry_for if retry_for is None else retry_for
        end: Optional[float] = None
        pause, before = 0.0, 0
        while True:
            began = time.monotonic()
            try:
                result = once()
                self._has_answered = True
                return result
            except _LocalFailure as local:
                raise local.error from None
            except (http.client.HTTPException, OSError) as error:
                failure: TrainyardError = unreachable(self.address, error)
                # A server that was never there is told at once.
                if not self._has_answered:
                    wait_for = 0.0
            except Unreachable as error:
                failure = error
            self.close()
            now = time.monotonic()
            done = progress() if progress is not None else 0
            if end is None or done > before:
                is_first, end, before = end is None, now + wait_for, done
                pause = 0.0
                if is_first and self._has_answered and now - began < 1.0:
                    continue  # a connection that was kept open had ended, which says nothing about the server
            if now >= end:
                raise failure
            time.sleep(pause)
            pause = min(max(pause * 2, 0.05), 1.0)

    def _events(self, rpc: str, body: bytes, last_id: str = "") -> Generator[Tuple[str, str], None, None]:
        """Makes a call that answers with a stream, and gives the id and the data of each event. Raises Unreachable or an
        error of the connection if it breaks before its end."""
        connection = _Connection(self._find()[0], STREAM_SILENCE_S)
        try:
            more = {"Accept": "text/event-stream"}
            if last_id:
                more["Last-Event-ID"] = last_id
            response = self._exchange(connection, "POST", f"/trainyard.v1.{rpc}", body, more)
            self._check(response)
            for kind, event_id, data in read_events(response):
                if kind == "end":
                    return
                if kind == "error":
                    raise error_of(json.loads(data))
                yield event_id, data
            raise unreachable(self.address, "the connection broke")
        finally:
            connection.close()

    def stream(self, rpc: str, message: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Makes a call that answers with a stream. A connection that breaks is opened again where it was."""
        last_id, pause = "", 0.05
        end: Optional[float] = None
        body = json.dumps(message).encode()
        while True:
            events = self._events(rpc, body, last_id)
            try:
                while True:
                    try:
                        event_id, data = next(events)
                    except StopIteration:
                        return
                    last_id, pause, end = event_id or last_id, 0.05, None
                    yield json.loads(data)
            except (http.client.HTTPException, OSError) as error:
                failure: TrainyardError = unreachable(self.address, error)
            except Unreachable as error:
                failure = error
            finally:
                events.close()
            end = time.monotonic() + self.retry_for if end is None else end
            if time.monotonic() >= end:
                raise failure
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def download(self, path: str, target: str, size: int, content_hash: str) -> None:
        """Downloads a file from a path of the server, and goes on where a download of the same content broke off."""
        def parts(have: int) -> Generator[bytes, None, None]:
            connection = _Connection(self._find()[0], STREAM_SILENCE_S)
            try:
                response = self._exchange(connection, "GET", path, None, {"Range": f"bytes={have}-"} if have else {})
                self._check(response)
                if have and response.status != 206:
                    raise TrainyardError(f"the server gives '{path}' from its beginning alone", code="data_loss")
                while True:
                    part = response.read(1 << 18)
                    if not part:
                        return
                    yield part
            finally:
                connection.close()

        self._fetch(parts, target, size, content_hash)

    def download_events(self, rpc: str, message: Mapping[str, Any], target: str, size: int, content_hash: str) -> None:
        """Downloads a file by a call that answers with a stream of its bytes, such as CheckpointService/DownloadOutput."""
        def parts(have: int) -> Generator[bytes, None, None]:
            for _, text in self._events(rpc, json.dumps({**message, "offset": str(have)}).encode()):
                chunk = json.loads(text)
                if int(chunk.get("offset", 0)) != have:
                    raise TrainyardError(f"the server goes on at byte {chunk.get('offset', 0)} of {target}; expected "
                                         f"{have}", code="data_loss")
                data = bytes_of(chunk.get("data", ""))
                have += len(data)
                yield data

        self._fetch(parts, target, size, content_hash)

    def _fetch(self, parts: Callable[[int], Generator[bytes, None, None]], target: str, size: int,
               content_hash: str) -> None:
        """Writes the file from `parts`, which are those from an offset on. They are kept beside it, under a name that
        belongs to the content, until all are there."""
        partial = f"{target}.{hashlib.sha256(content_hash.encode()).hexdigest()[:8]}.part"
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)

        def have() -> int:
            try:
                return os.path.getsize(partial)
            except FileNotFoundError:
                return 0

        def once() -> None:
            with _local():
                file = open(partial, "ab")
            with file:
                if file.tell() > size:
                    file.truncate(0)
                left = size - min(have(), size)
                if left == 0:
                    return
                source = parts(size - left)
                try:
                    for part in source:
                        with _local():
                            file.write(part)
                        left -= len(part)
                finally:
                    source.close()
            if left:
                raise ConnectionError("the download broke off")

        self._repeat(once, progress=have)
        os.replace(partial, target)


def _json_of(data: bytes, status: int) -> Dict[str, Any]:
    try:
        body = json.loads(data)
        return body if isinstance(body, dict) else {"message": str(body)}
    except ValueError:
        return {"code": "unknown", "message": f"the server answers with status {status}: "
                                              f"{data[:200].decode('utf-8', 'replace')}"}


def read_events(lines: Any) -> Iterator[Tuple[str, str, str]]:
    """Reads server-sent events: (kind, id, data) for each. An event that is not complete is left out."""
    kind, event_id = "", ""
    data: List[str] = []
    while True:
        line = lines.readline(16 << 20)
        if not line.endswith(b"\n"):
            return
        text = line.rstrip(b"\r\n").decode("utf-8")
        if not text:
            if data:
                yield kind or "message", event_id, "\n".join(data)
            kind, event_id, data = "", "", []
        elif not text.startswith(":"):
            name, _, value = text.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "event":
                kind = value
            elif name == "id":
                event_id = value
            elif name == "data":
                data.append(value)


def bytes_of(text: str) -> bytes:
    return base64.b64decode(text)
