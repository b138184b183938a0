"""Makes specs from what people give: a mapping, a file, or a command."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .errors import InvalidRequest

SpecLike = Union[Mapping[str, Any], str, "os.PathLike[str]", Sequence[str]]


def _load_yaml(text: str, name: str) -> Any:
    try:
        import yaml  # type: ignore[import]
    except ImportError:
        raise InvalidRequest(f"{name} is YAML, for which Python needs PyYAML (python3-yaml); give the spec as a mapping or "
                             "as JSON instead") from None

    class Loader(yaml.SafeLoader):
        """Reads scalars as the command line does: 5e-4 is a number, and `on` and 12:30 are texts."""

    Loader.yaml_implicit_resolvers = {}
    for tag, pattern, first in (("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
                                ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
                                ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
                                ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$",
                                 list("-+.0123456789"))):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), first)
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
    Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{name}: {error}") from None


def load_file(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """Reads a spec from a file of YAML or JSON."""
    name = os.fspath(path)
    text = pathlib.Path(name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        try:
            spec = json.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"{name}: {error}") from None
    else:
        spec = _load_yaml(text, name)
    if not isinstance(spec, dict):
        raise InvalidRequest(f"{name}: expected a mapping such as `name: my-job`")
    return spec


def _name_of(command: Sequence[str]) -> str:
    word = next((w for w in command if w.endswith((".py", ".sh"))), command[0])
    name = re.sub(r"[^A-Za-z0-9.-]", "_", os.path.basename(word))
    return re.sub(r"^[^A-Za-z0-9]+", "", name)[:63] or "program"


def of_command(command: Sequence[str], directory: Optional[str]) -> Dict[str, Any]:
    """The spec of a program, which runs in a folder of this machine and in the Python environment that is active."""
    program: Dict[str, Any] = {"command": list(command),
                               "directory": os.path.abspath(os.path.expanduser(directory or os.getcwd()))}
    if os.environ.get("VIRTUAL_ENV"):
        program["environment"] = {"venv": os.environ["VIRTUAL_ENV"]}
    elif os.environ.get("CONDA_PREFIX"):
        program["environment"] = {"conda": os.environ["CONDA_PREFIX"]}
    return {"name": _name_of(command), "program": program}


def make(what: SpecLike, *, args: Sequence[object] = (), directory: Optional[str] = None, devices: Any = None,
         params: Optional[Mapping[str, Any]] = None, env: Optional[Mapping[str, str]] = None,
         name: Optional[str] = None, project: Optional[str] = None, tags: Sequence[str] = ()) -> Dict[str, Any]:
    """Makes the spec of submit(what, ...)."""
    if isinstance(what, Mapping):
        spec = json.loads(json.dumps(dict(what)))  # a copy of all of it, which is JSON
    else:
        words: List[str]
        if isinstance(what, (str, os.PathLike)):
            text = os.fspath(what)
            if text.endswith((".yaml", ".yml", ".json")):
                words = []
            elif isinstance(what, os.PathLike) or text.endswith(".py") and " " not in text:
                words = [text]
            else:
                words = shlex.split(text)
            if len(words) == 1 and words[0].endswith(".py"):
                words = ["python3", words[0]]
        else:
            words, text = [str(word) for word in what], ""
        if words:
            spec = of_command(words + [str(word) for word in args], directory)
        elif text:
            spec = load_file(text)
        else:
            raise InvalidRequest("the command has no words")
    if devices is not None:
        spec["devices"] = devices
    if name is not None:
        spec["name"] = name
    if project is not None:
        spec["project"] = project
    if tags:
        spec["tags"] = list(spec.get("tags") or []) + list(tags)
    if params or env:
        program = spec.get("program")
        if not isinstance(program, dict):
            raise InvalidRequest("params= and env= are for programs, and this spec has none; "
                                 'change other fields with clone(set={"optimizer.sgd.lr": 0.1})')
        if params:
            program["params"] = {**(program.get("params") or {}), **params}
        if env:
            program["env"] = {**(program.get("env") or {}), **env}
    return spec


def set_path(spec: Dict[str, Any], path: str, value: Any) -> None:
    """Sets a field by its path: "optimizer.sgd.lr"."""
    node = spec
    *parents, last = path.split(".")
    for part in parents:
        child = node.get(part)
        if not isinstance(child, dict):
            # `schedule: cosine` is short for a mapping with that member.
            child = {child: {}} if isinstance(child, str) and child else {}
            node[part] = child
        node = child
    node[last] = value


def find_field(spec: Mapping[str, Any], name: str, path: str = "") -> List[str]:
    """Returns the paths of all fields of this name."""
    found = []
    for key, value in spec.items():
        here = f"{path}.{key}" if path else key
        if key == name and not isinstance(value, Mapping):
            found.append(here)
        elif isinstance(value, Mapping) and here not in ("program.env", "program.params"):
            found += find_field(value, name, here)
    return found


def changes(spec: Mapping[str, Any], values: Mapping[str, Any], paths: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Returns the changes of a clone: `values` by the name of a parameter or of a field, `paths` by path."""
    by_path = dict(paths)
    for name, value in values.items():
        if "program" in spec:
            by_path[f"program.params.{name}"] = value
            continue
        found = find_field(spec, name)
        if len(found) != 1:
            raise InvalidRequest(f"the spec has {'no field' if not found else 'several fields'} '{name}'"
                                 f"{': ' + ', '.join(found) if found else ''}; name the path: "
                                 f'set={{"optimizer.sgd.{name}": ...}}')
        by_path[found[0]] = value
    return [{"path": path, "value_json": "" if value is None else json.dumps(value)} for path, value in by_path.items()]
