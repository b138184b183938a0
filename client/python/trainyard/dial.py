"""Opens connections to servers: to a Unix socket, through ssh, and with TLS."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import subprocess
import tempfile
from typing import Any, List, Optional, Tuple

from .errors import InvalidRequest, NotSignedIn, TrainyardError

# `trainyard dial-stdio` greets with this, behind whatever the shell of the account prints.
_MARK = b"\ntrainyard-dial "


def open_unix(path: str) -> socket.socket:
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


def open_ssh(address: str) -> socket.socket:
    command = ssh_command(address)
    ours, theirs = socket.socketpair()
    sock = _SshSocket(fileno=ours.detach())
    try:
        sock.messages = tempfile.TemporaryFile()
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=sock.messages)
            sock.process = process
        # The other end greets in one line, behind whatever the shell of the account prints.
        sock.settimeout(30)
        received = b""
        while True:
            byte = sock.recv(1)
            if not byte or len(received) > 65536:
                process.terminate()
                process.wait()
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


def tls_context(authority: str) -> ssl.SSLContext:
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
        inner: Any = getattr(sock, "_sslobj", None)
        shows_all = hasattr(inner, "get_unverified_chain")
        for found in (inner.get_unverified_chain() or []) if shows_all else []:
            text = found.public_bytes() if hasattr(found, "public_bytes") else found
            chain.append(ssl.PEM_cert_to_DER_cert(text) if isinstance(text, str) else text)
    for certificate in chain:
        if hashlib.sha256(certificate).hexdigest() == wanted:
            return ssl.DER_cert_to_PEM_cert(certificate), certificate == chain[0]
    if not shows_all:
        raise TrainyardError("Python before 3.10 cannot see the certificate with this fingerprint; use `trainyard login "
                             f"{host}:{port}` in place of fingerprint=")
    raise NotSignedIn(f"the server at {host}:{port} does not show the certificate with this fingerprint; somebody may "
                      "stand between, and nothing was sent", code="unauthenticated", reason="CERTIFICATE_CHANGED")
