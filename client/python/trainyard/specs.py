"""Makes specs from what people give: a mapping, a file, or a command."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shlex
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import InvalidRequest

PathLike = Union[str, "os.PathLike[str]"]
SpecLike = Union[Mapping[str, Any], str, "os.PathLike[str]", Sequence[str]]


def _load_yaml(text: str, name: str) -> Any:
    try:
        import yaml  # type: ignore[import]
    except ImportError:
        raise InvalidRequest(f"{name} is YAML, for which Python needs PyYAML (python3-yaml); give the spec as a mapping or "
                             "as JSON instead") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
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


def plain(value: Any, path: str = "") -> Any:
    """Copies a value into what JSON has. Numbers and arrays of numpy and the like become those of Python. Raises
    InvalidRequest with the path of what has no such form."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each, f"{path}.{key}" if path else str(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value), path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(f"{path or 'the value'} is {float(value)}, for which JSON has no number; give it as a "
                                 "text")
        return float(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist(), path)
    raise InvalidRequest(f"{path or 'the value'} is of type {type(value).__name__}; expected a number, a text, a list or a "
                         "mapping")


def to_json(value: Any, path: str = "") -> str:
    return json.dumps(plain(value, path))


def words(value: Union[str, Iterable[Any]]) -> List[str]:
    """Returns the words of a list. A text alone is one word."""
    return [value] if isinstance(value, str) else [str(each) for each in value]


def _split(text: str) -> List[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidRequest(f"the command '{text}' cannot be split into words: {error}") from None


def _name_of(command: Sequence[str]) -> str:
    word = next((w for w in command if w.endswith((".py", ".sh"))), command[0])
    name = re.sub(r"[^A-Za-z0-9.-]", "_", os.path.basename(word))
    return re.sub(r"^[^A-Za-z0-9]+", "", name)[:63] or "program"


def _python_environment() -> Dict[str, str]:
    """The environment of the Python that runs this, or else the one of the shell. The kernel of a notebook runs in its own
    without any shell that has activated it."""
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return {"conda": sys.prefix}
    if sys.prefix != sys.base_prefix:
        return {"venv": sys.prefix}
    if os.environ.get("VIRTUAL_ENV"):
        return {"venv": os.environ["VIRTUAL_ENV"]}
    if os.environ.get("CONDA_PREFIX"):
        return {"conda": os.environ["CONDA_PREFIX"]}
    return {}


def folder_below(path: str, code: str) -> str:
    """Returns a path relative to the folder of the code, or an empty text if it is not below that."""
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(code))
    return "" if relative in (os.curdir, os.pardir) or relative.startswith(os.pardir + os.sep) else relative


def _is_within(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _directory(directory: Optional[str], code: Optional[str]) -> str:
    """Returns the folder in which a command starts: one of this machine, or one below the folder of the code."""
    if code is None:
        return os.path.abspath(os.path.expanduser(directory or os.getcwd()))
    if directory is None:
        return folder_below(os.getcwd(), code)
    directory = os.path.expanduser(directory)
    return folder_below(directory, code) if os.path.isabs(directory) and _is_within(directory, code) else directory


def _script_in(code: str, directory: str, script: str) -> str:
    """Returns the path by which the script is found where the program starts, in a copy of the folder of the code."""
    start = os.path.join(code, directory)
    if not os.path.isabs(script) and os.path.exists(os.path.join(start, script)):
        return script
    if not _is_within(script, code) or not os.path.exists(script):
        raise InvalidRequest(f"the script '{script}' is not in the folder '{code}', which travels with the job")
    return os.path.relpath(os.path.realpath(script), os.path.realpath(start))


def _of_command(command: List[str], script_at: Optional[int], directory: Optional[str],
                code: Optional[str]) -> Dict[str, Any]:
    """The spec of a program, which runs in the Python environment that is active: in a folder of this machine, or in a copy
    of the folder of the code. `script_at` is the place of the word that is the path of a script."""
    start = _directory(directory, code)
    name = _name_of(command)
    if script_at is not None:
        script = command[script_at]
        if code is not None and not os.path.isabs(start):
            script = _script_in(code, start, script)
        if script_at == 0 and not os.path.dirname(script):
            script = os.path.join(os.curdir, script)  # a name without a folder would be looked for in the PATH
        command = [*command[:script_at], script, *command[script_at + 1:]]
    program: Dict[str, Any] = {"command": command}
    if start:
        program["directory"] = start
    environment = _python_environment()
    if environment:
        program["environment"] = environment
    return {"name": name, "program": program}


def _of_file(path: str) -> Dict[str, Any]:
    """The spec of a file, in which the folder of the code is relative to the file."""
    spec = load_file(path)
    program = spec.get("program")
    code = program.get("code") if isinstance(program, dict) else None
    if isinstance(program, dict) and isinstance(code, str) and code and not code.startswith(("sha256:", "~")):
        program["code"] = os.path.join(os.path.dirname(os.path.abspath(path)), code)
    return spec


def _is_script(text: str) -> bool:
    return text.endswith(".py") and (not re.search(r"\s", text) or os.path.exists(text))


def _program_of(spec: Dict[str, Any], what: str) -> Dict[str, Any]:
    program = spec.get("program")
    if not isinstance(program, dict):
        raise InvalidRequest(f"{what} for programs, and this spec has none; change other fields with "
                             'set={"optimizer.sgd.lr": 0.1}')
    return program


def _variables(env: Mapping[str, Any]) -> Dict[str, str]:
    for name, value in env.items():
        if value is None and name not in os.environ:
            raise InvalidRequest(f"env has no value for '{name}', and there is no such variable here")
    return {name: os.environ[name] if value is None else str(plain(value, name)) for name, value in env.items()}


def make(what: SpecLike, *, args: Union[str, Sequence[object]] = (), directory: Optional[PathLike] = None,
         devices: Any = None, params: Optional[Mapping[str, Any]] = None, env: Optional[Mapping[str, Any]] = None,
         name: Optional[str] = None, project: Optional[str] = None, tags: Union[str, Sequence[str]] = (),
         code: Optional[PathLike] = None, set: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """Makes the spec of submit(what, ...). Its program.code is still the path of a folder of this machine."""
    more = _split(args) if isinstance(args, str) else [str(word) for word in args]
    folder = None if directory is None else os.fspath(directory)
    code_folder = None if code is None else os.path.abspath(os.path.expanduser(os.fspath(code)))
    script_at: Optional[int] = None
    command: List[str] = []
    spec: Optional[Dict[str, Any]] = None
    if isinstance(what, Mapping):
        spec = plain(what)
    elif isinstance(what, (str, os.PathLike)):
        text = os.fspath(what)
        if text.endswith((".yaml", ".yml", ".json")):
            spec = _of_file(text)
        elif isinstance(what, os.PathLike) or _is_script(text):
            command = (["python3"] if text.endswith(".py") else []) + [os.path.expanduser(text)]
            script_at = len(command) - 1
        else:
            command = _split(text)
    else:
        command = [str(word) for word in what]
    if spec is not None:
        if more or folder is not None:
            raise InvalidRequest(f"{'args=' if more else 'directory='} belongs to a script or a command, and this is a "
                                 'spec; change it with set={"program.command": [...]} or set={"program.directory": ...}')
        if code_folder is not None:
            _program_of(spec, "code= is")["code"] = code_folder
    elif command:
        spec = _of_command(command + more, script_at, folder, code_folder)
        if code_folder is not None:
            spec["program"]["code"] = code_folder
    else:
        raise InvalidRequest("the command has no words")
    for key, value in (("devices", devices), ("name", name), ("project", project)):
        if value is not None:
            spec[key] = plain(value, key)
    if tags:
        spec["tags"] = words(spec.get("tags") or []) + words(tags)
    if params:
        program = _program_of(spec, "params= is")
        program["params"] = {**(program.get("params") or {}), **plain(params)}
    if env:
        program = _program_of(spec, "env= is")
        program["env"] = {**(program.get("env") or {}), **_variables(env)}
    for path, value in (set or {}).items():
        set_path(spec, path, value)
    return spec


def _element(node: List[Any], index: int, path: str, key: str) -> None:
    if index >= len(node):
        raise InvalidRequest(f"the path '{path}' names '{key}[{index}]', and the list has {len(node)} elements")


def read_values(raw: Mapping[str, str]) -> Dict[str, Any]:
    """Returns values that the server gives as JSON. One that is no JSON is a text."""
    values: Dict[str, Any] = {}
    for name, text in raw.items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


# The names of choices in the server's answers: PRECISION_F32 for `precision: f32`. The fields are those that have
# choices, so that texts of users stay as they are.
_CHOICES = {
    "events": "NOTIFY_EVENT_", "exchange_precision": "PRECISION_", "isolation": "ISOLATION_", "normalize": "NORMALIZE_",
    "on_corrupt": "ON_CORRUPT_", "precision": "PRECISION_", "ranks": "PROGRAM_RANKS_",
    "reproducibility": "REPRODUCIBILITY_", "schedule": "PIPELINE_SCHEDULE_", "search": "SWEEP_SEARCH_", "stem": "STEM_",
}
# Fields in which a number is a text of people, such as a word of a command.
_TEXTS = ("command", "cuts", "description", "digest", "directory", "env", "from", "labels", "name", "outputs", "path",
          "project", "retain", "script", "tags")


def as_written(value: Any, key: str = "") -> Any:
    """Turns a spec of the server's answers into the form of a spec file, in which it can be changed and submitted."""
    if key in _TEXTS:
        return value
    if isinstance(value, Mapping):
        if key in ("params", "parameters"):
            return read_values(value)
        return {name: as_written(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [as_written(each, key) for each in value]
    if not isinstance(value, str):
        return value
    # Whole numbers of 64 bits come as texts. In other fields of texts, the server takes a number for its text.
    if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value):
        return int(value)
    choice = _CHOICES.get(key)
    return value[len(choice):].lower() if choice and value.startswith(choice) else value


def differences(left: Any, right: Any, path: str = "") -> Dict[str, Tuple[Any, Any]]:
    """Returns the fields that differ by their paths, with both values; None for a field that one side lacks. Lists of
    unequal length are compared as wholes, since an element that was put in shifts all that follow."""
    found: Dict[str, Tuple[Any, Any]] = {}
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            found.update(differences(left.get(key), right.get(key), f"{path}.{key}" if path else key))
    elif (isinstance(left, list) and isinstance(right, list) and len(left) == len(right)
          and all(isinstance(each, Mapping) for each in [*left, *right])):
        for index, each in enumerate(left):
            found.update(differences(each, right[index], f"{path}[{index}]"))
    elif left != right:
        found[path] = (left, right)
    return found


def set_path(spec: Dict[str, Any], path: str, value: Any) -> None:
    """Sets a field by its path: "optimizer.sgd.lr", or "layers[0].channels". None unsets it."""
    parts: List[Union[str, int]] = []
    for part in path.split("."):
        match = re.fullmatch(r"([^\[\]]+)((?:\[\d+\])*)", part)
        if match is None:
            raise InvalidRequest(f"the path '{path}' cannot be read; expected one such as optimizer.sgd.lr or "
                                 "layers[0].channels")
        parts.append(match.group(1))
        parts += [int(index) for index in re.findall(r"\d+", match.group(2))]
    node: Any = spec
    for at, step in enumerate(parts[:-1]):
        wants_list = isinstance(parts[at + 1], int)
        if isinstance(step, int):
            _element(node, step, path, str(parts[at - 1]))
            child = node[step]
        else:
            child = node.get(step)
        if wants_list and not isinstance(child, list):
            raise InvalidRequest(f"the path '{path}' names an element of '{step}', which is no list")
        if not wants_list and not isinstance(child, dict):
            # `schedule: cosine` is short for a mapping with that member.
            child = {child: {}} if isinstance(child, str) and child else {}
            node[step] = child
        node = child
    last = parts[-1]
    if isinstance(last, int):
        _element(node, last, path, str(parts[-2]))
        node[last] = plain(value, path)
    elif value is None:
        node.pop(last, None)
    else:
        node[last] = plain(value, path)


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


def path_of(spec: Mapping[str, Any], name: str) -> str:
    """Returns the path that a name without dots means: a parameter of a program, or else the only field with that
    name."""
    if "program" in spec:
        return f"program.params.{name}"
    found = find_field(spec, name)
    if len(found) != 1:
        raise InvalidRequest(f"the spec has {'no field' if not found else 'several fields'} '{name}'"
                             f"{': ' + ', '.join(found) if found else ''}; name the path: "
                             f'{{"optimizer.sgd.{name}": ...}}')
    return found[0]


def changes(spec: Mapping[str, Any], values: Mapping[str, Any], paths: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Returns the changes of a clone: `values` by the name of a parameter or of a field, `paths` by path."""
    by_path = dict(paths)
    for name, value in values.items():
        by_path[path_of(spec, name)] = value
    return [{"path": path, "value_json": "" if value is None else to_json(value, path)} for path, value in by_path.items()]


def add_sweep(spec: Dict[str, Any], parameters: Mapping[str, Any], fields: Mapping[str, Any], *, maximize: str = "",
              minimize: str = "") -> None:
    """Makes the spec one of a sweep, or changes the sweep that it is."""
    sweep = dict(spec.get("sweep") or {})
    if maximize or minimize:
        sweep.pop("maximize", None)
        sweep.pop("minimize", None)
        sweep.update({name: metric for name, metric in (("maximize", maximize), ("minimize", minimize)) if metric})
    sweep.update(fields)
    searched = {name if "." in name else path_of(spec, name): plain(values, name)
                for name, values in parameters.items()}
    if searched:
        sweep["parameters"] = {**(sweep.get("parameters") or {}), **searched}
    if not sweep:
        raise InvalidRequest('the spec has no sweep; say what is searched: '
                             'parameters={"optimizer.sgd.lr": "log(1e-3, 1)"}, maximize="test.accuracy"')
    spec["sweep"] = sweep


# What submit takes and clone does not.
_OF_SUBMIT = {"args": "program.command", "env": "program.env.NAME", "params": "program.params.NAME",
              "directory": "program.directory", "project": "project", "tags": "tags", "after": "", "after_ok": "",
              "reservation": "", "wait_for_devices": "", "from_checkpoint": ""}


def check_clone(spec: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuses the options of submit, which would become parameters of the program that nobody wants."""
    if "program" not in spec:
        return
    known = (spec["program"] or {}).get("params") or {}
    for name in values:
        if name in _OF_SUBMIT and name not in known:
            field = _OF_SUBMIT[name]
            instead = f"write set={{'{field}': ...}}; " if field else ""
            raise InvalidRequest(f"clone has no {name}=; {instead}for a parameter of that name, write "
                                 f"set={{'program.params.{name}': ...}}")


def changes_of_code(spec: Mapping[str, Any], code: str, digest: str) -> Dict[str, Any]:
    """Returns the changes of a clone that runs other code. If the job had none and ran in the folder itself, or below it,
    the clone runs at the same place of the copy."""
    code = os.path.expanduser(code)
    program = spec.get("program")
    if not isinstance(program, Mapping):
        raise InvalidRequest("code= is for programs, and the spec of this job has none")
    directory = program.get("directory", "")
    found: Dict[str, Any] = {"program.code": digest}
    if not program.get("code") and os.path.isabs(directory) and _is_within(directory, code):
        found["program.directory"] = folder_below(directory, code) or None
    return found
