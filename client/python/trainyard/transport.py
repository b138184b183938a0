"""Speaks HTTP/1.1 with the server: over its Unix socket, over ssh, or over TLS."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from . import contexts
from .errors import InvalidRequest, NotSignedIn, TrainyardError, Unreachable, error_of

# A stream says at least every 15 s that it is alive.
STREAM_SILENCE_S = 45.0
CALL_TIMEOUT_S = 60.0
# A server that restarts is back within this time.
RETRY_FOR_S = 60.0
_MARK = b"\ntrainyard-dial "


def unreachable(address: str, why: object) -> Unreachable:
    return Unreachable(f"cannot reach the server at {address}: {why}", code="unavailable", reason="SERVER_UNREACHABLE")


class _Connection(http.client.HTTPConnection):
    """A connection whose socket another function opens."""

    def __init__(self, opener: Callable[[], socket.socket], timeout: float) -> None:
        super().__init__("trainyard", timeout=timeout)
        self._open = opener
        self._wanted_timeout = timeout

    def connect(self) -> None:
        self.sock = self._open()
        self.sock.settimeout(self._wanted_timeout)


def _open_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(10)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def ssh_command(address: str) -> List[str]:
    """Returns the command that carries a connection to "ssh://anna@lab:22/path/to.sock"."""
    word = r"[A-Za-z0-9._+][A-Za-z0-9._+-]*"
    match = re.match(rf"^ssh://(?:({word})@)?({word}|\[[0-9A-Fa-f:.%]+\])(?::(\d{{1,5}}))?(/[!-~]*)?$", address)
    if match is None or re.search(r"[?#%]", match.group(4) or ""):
        raise InvalidRequest(f"address '{address}' cannot be read; use ssh://[USER@]HOST[:PORT][/path/to.sock]")
    user, host, port, path = match.groups()
    command = ["ssh", "-T", "-a", "-x"]
    for option in ("ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=2", "ClearAllForwardings=yes",
                   "BatchMode=yes"):
        command += ["-o", option]
    if port:
        command += ["-p", port]
    if user:
        command += ["-l", user]
    remote = ("exec sh -c 'PATH=$PATH:/usr/local/bin:$HOME/.local/bin:$HOME/bin; "
              "exec trainyard dial-stdio \"$@\"' trainyard")
    if path and path != "/":
        remote += " '" + path.replace("'", "'\\''") + "'"
    return command + ["--", host.strip("[]"), remote]


class _SshSocket(socket.socket):
    """One end of a pair whose other end ssh has. It ends ssh with it."""

    process: Optional["subprocess.Popen[bytes]"] = None
    messages: Any = None  # a file with what ssh says

    def _real_close(self, *args: Any) -> None:
        super()._real_close(*args)  # type: ignore[misc]
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            process.wait()
        if self.messages is not None:
            self.messages.close()


def _open_ssh(address: str) -> socket.socket:
    command = ssh_command(address)
    ours, theirs = socket.socketpair()
    sock = _SshSocket(fileno=ours.detach())
    try:
        sock.messages = tempfile.TemporaryFile()
        with theirs:
            sock.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=sock.messages)
        # The other end greets in one line, behind whatever the shell of the account prints.
        sock.settimeout(30)
        received = b""
        while True:
            byte = sock.recv(1)
            if not byte or len(received) > 65536:
                sock.process.terminate()
                sock.process.wait()
                sock.messages.seek(0)
                why = sock.messages.read(2000).decode("utf-8", "replace").strip()
                raise OSError(f"ssh: {why or 'the connection has ended'}")
            received += byte
            at = received.find(_MARK)
            if at >= 0 and byte == b"\n" and len(received) > at + len(_MARK):
                break
        answer = received[at + len(_MARK):].decode("ascii", "replace").strip()
        if not answer.startswith("1 ok "):
            raise OSError("there is no server on that host; start one there with `trainyard up`, or name its socket: "
                          "ssh://HOST/path/to/server.sock")
    except BaseException:
        sock.close()
        raise
    return sock


def _tls_context(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    context.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
    context.set_alpn_protocols(["http/1.1"])
    return context


def fetch_pinned(host: str, port: int, fingerprint: str) -> Tuple[str, bool]:
    """Returns the certificate of the server's chain that has the fingerprint, and whether it is the server's own."""
    wanted = re.sub(r"[^0-9a-f]", "", fingerprint.lower())
    if len(wanted) != 64:
        raise InvalidRequest("the fingerprint is no SHA-256; expected 64 hexadecimal digits, with or without colons")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    with socket.create_connection((host, port), timeout=10) as plain, context.wrap_socket(plain) as sock:
        chain = [sock.getpeercert(binary_form=True) or b""]
        inner = getattr(sock, "_sslobj", None)
        for found in (inner.get_unverified_chain() or []) if hasattr(inner, "get_unverified_chain") else []:
            text = found.public_bytes() if hasattr(found, "public_bytes") else found
            chain.append(ssl.PEM_cert_to_DER_cert(text) if isinstance(text, str) else text)
    for certificate in chain:
        if hashlib.sha256(certificate).hexdigest() == wanted:
            return ssl.DER_cert_to_PEM_cert(certificate), certificate == chain[0]
    raise NotSignedIn(f"the server at {host}:{port} does not show the certificate with this fingerprint; somebody may "
                      "stand between, and nothing was sent", code="unauthenticated", reason="CERTIFICATE_CHANGED")


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
            return lambda: _open_unix(path)
        if self.address.startswith("ssh://"):
            ssh_command(self.address)
            self._headers["Host"] = "localhost"
            return lambda: _open_ssh(self.address)
        if self.address.startswith("tls:"):
            return self._tls_opener()
        raise InvalidRequest(f"address '{self.address}' cannot be read; use unix:/path, ssh://HOST or tls://HOST:PORT")

    def _tls_opener(self) -> Callable[[], socket.socket]:
        host, port = contexts.split_host(self.address)
        check_name = True
        if self._fingerprint:
            token = self._token or os.environ.get("TRAINYARD_TOKEN", "")
            authority, is_own = fetch_pinned(host, port, self._fingerprint)
            name = host if is_own else "server.trainyard.internal"
            check_name = not is_own
        else:
            authority, name, token = contexts.load_credentials(self.address)
            token = self._token or token
        context = _tls_context(authority)
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

    def call(self, rpc: str, message: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Makes a unary call, such as "JobService/GetJob". All calls can be repeated, so a server that is away for a
        while costs nothing but time."""
        body = json.dumps(message or {}).encode()

        def once() -> Dict[str, Any]:
            connection = self._connection()
            response = self._exchange(connection, "POST", f"/trainyard.v1.{rpc}", body, {})
            data = response.read()
            if response.status == 200:
                return json.loads(data)
            raise error_of(_json_of(data, response.status))

        return self._repeat(once)

    def _repeat(self, once: Callable[[], Any]) -> Any:
        end = time.monotonic() + self.retry_for
        pause = 0.0  # a connection that was kept open may have ended meanwhile
        while True:
            try:
                result = once()
                self._has_answered = True
                return result
            except (http.client.HTTPException, OSError) as error:
                failure: TrainyardError = unreachable(self.address, error)
                # A server that was never there is told at once.
                if not self._has_answered:
                    end = 0.0
            except Unreachable as error:
                failure = error
            self.close()
            if time.monotonic() >= end:
                raise failure
            time.sleep(pause)
            pause = min(max(pause * 2, 0.05), 1.0)

    def stream(self, rpc: str, message: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Makes a call that answers with a stream. A connection that breaks is opened again where it was."""
        last_id, pause, end = "", 0.05, time.monotonic() + self.retry_for
        body = json.dumps(message).encode()
        while True:
            connection = _Connection(self._find()[0], STREAM_SILENCE_S)
            try:
                more = {"Accept": "text/event-stream"}
                if last_id:
                    more["Last-Event-ID"] = last_id
                response = self._exchange(connection, "POST", f"/trainyard.v1.{rpc}", body, more)
                if response.status != 200:
                    raise error_of(_json_of(response.read(), response.status))
                for kind, event_id, data in read_events(response):
                    pause, end = 0.05, time.monotonic() + self.retry_for
                    if kind == "end":
                        return
                    if kind == "error":
                        raise error_of(json.loads(data))
                    last_id = event_id or last_id
                    yield json.loads(data)
                failure: TrainyardError = unreachable(self.address, "the connection broke")
            except (http.client.HTTPException, OSError) as error:
                failure = unreachable(self.address, error)
            except Unreachable as error:
                failure = error
            finally:
                connection.close()
            if time.monotonic() >= end:
                raise failure
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def download(self, path: str, target: str) -> None:
        """Downloads a file, and goes on where it broke off."""
        partial = target + ".part"

        def once() -> None:
            have = os.path.getsize(partial) if os.path.exists(partial) else 0
            connection = _Connection(self._find()[0], STREAM_SILENCE_S)
            try:
                more = {"Range": f"bytes={have}-"} if have else {}
                response = self._exchange(connection, "GET", path, None, more)
                if response.status == 416 and have:
                    return  # all of it is there
                if response.status not in (200, 206):
                    raise error_of(_json_of(response.read(), response.status))
                size = int(response.headers["Content-Length"])
                with open(partial, "ab" if response.status == 206 else "wb") as file:
                    while True:
                        part = response.read(1 << 18)
                        if not part:
                            break
                        file.write(part)
                        size -= len(part)
                if size:
                    raise ConnectionError("the download broke off")
            finally:
                connection.close()

        self._repeat(once)
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
    kind, event_id, data = "", "", []
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
