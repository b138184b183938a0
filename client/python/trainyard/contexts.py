"""Chooses a server as the command line does, from its config file, and reads what `trainyard login` has stored."""

from __future__ import annotations

import json
import os
import pathlib
import re
import stat
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .errors import InvalidRequest, NotAllowed, NotFound, NotSignedIn, Unreachable

SYSTEM_SOCKET = "/run/trainyard/trainyard.sock"
DEFAULT_PORT = 7070


class Credentials(NamedTuple):
    """What a client of a TLS port needs."""

    authority: str  # the pinned certificate, as PEM
    name: str  # the name that the server's certificate must have
    token: str


def config_folder() -> pathlib.Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return pathlib.Path(home) / "trainyard"


def local_sockets() -> List[str]:
    """The sockets of the user's own server and of the server of this machine."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state")
    return [os.path.join(state, "trainyard/server/server.sock"), SYSTEM_SOCKET]


def _scalar(text: str) -> str:
    text = text.strip()
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    text = re.sub(r"\s+#.*$", "", text)
    return "" if text in ("null", "~") else text


def parse_config(text: str) -> Dict[str, Any]:
    """Reads the config file: mappings in blocks, whose values are texts. That is the form in which the command line
    writes it."""
    root: Dict[str, Any] = {}
    open_maps: List[Tuple[int, Dict[str, Any]]] = [(-1, root)]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.match(r"""^( *)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s:#][^:]*?)\s*:(?:\s+(.*))?$""", line)
        if match is None:
            raise InvalidRequest(f"config file {config_folder() / 'config.yaml'}:{number}: cannot read '{line.strip()}'")
        indent, key, value = len(match.group(1)), _scalar(match.group(2)), match.group(3)
        while open_maps[-1][0] >= indent:
            open_maps.pop()
        parent = open_maps[-1][1]
        if value is None or not value.strip() or value.strip().startswith("#"):
            parent[key] = {}
            open_maps.append((indent, parent[key]))
        else:
            parent[key] = _scalar(value)
    return root


def _of_context(config: Mapping[str, Any], name: str) -> str:
    contexts = config.get("contexts") or {}
    if not isinstance(contexts, dict) or name not in contexts:
        raise NotFound(f"there is no context '{name}'; `trainyard contexts ls` lists them")
    server = contexts[name].get("server") if isinstance(contexts[name], dict) else None
    if not server:
        raise InvalidRequest(f"context '{name}' has no server")
    return str(server)


def choose_server(server: Optional[str] = None, context: Optional[str] = None) -> str:
    """Returns the address of the server: of the arguments, the environment, the config file, or this machine."""
    if server:
        return server
    if not context and os.environ.get("TRAINYARD_SERVER"):
        return os.environ["TRAINYARD_SERVER"]
    path = config_folder() / "config.yaml"
    config = parse_config(path.read_text(encoding="utf-8")) if path.exists() else {}
    name = context or os.environ.get("TRAINYARD_CONTEXT") or config.get("current") or ""
    if name:
        return _of_context(config, str(name))
    for socket_path in local_sockets():
        if os.path.exists(socket_path):
            return f"unix:{socket_path}"
    raise Unreachable("there is no server on this machine; start one with `trainyard up`, or name one: "
                      'connect("ssh://HOST")', code="unavailable", reason="SERVER_UNREACHABLE")


def split_host(address: str) -> Tuple[str, int]:
    """Splits "tls://lab.example:7070" or "tls:[::1]:7070"."""
    match = re.match(r"^tls:(?://)?(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]+)(?::(\d{1,5}))?$", address)
    if match is None:
        raise InvalidRequest(f"address '{address}' cannot be read; use tls://HOST:PORT")
    return match.group(1).strip("[]"), int(match.group(2) or DEFAULT_PORT)


def load_credentials(address: str) -> Credentials:
    """Reads what `trainyard login` has stored for a server."""
    host, port = split_host(address)
    folder = config_folder() / "servers" / f"{host}_{port}"
    try:
        authority = (folder / "authority.pem").read_text(encoding="ascii")
        name = (folder / "name").read_text(encoding="ascii").strip()
        renewed = folder / "token_file"
        if renewed.exists():
            # Kubernetes renews the token of a pod in its file, so that login has stored the path alone.
            path = pathlib.Path(renewed.read_text(encoding="utf-8").splitlines()[0])
            return Credentials(authority, name or host, path.read_text(encoding="ascii").strip())
        token_file = folder / "token"
        mode = stat.S_IMODE(token_file.stat().st_mode)
        if mode & 0o077:
            raise NotAllowed(f"other users may read the token in '{token_file}'; revoke it, or use chmod 0600 if you know "
                             "that nobody has read it")
        token = token_file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise NotSignedIn(f"you are not signed in to {address}; use `trainyard login {host}:{port}`, or give token= and "
                          "fingerprint=", code="unauthenticated", reason="NOT_SIGNED_IN") from None
    return Credentials(authority, name or host, token)
