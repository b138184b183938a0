"""Asks git about a folder with code: what its patterns leave out, and from which commit it comes. Without git, or without a
repository, the patterns hold all the same."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from typing import Dict, List, Optional, Sequence, Set, Tuple, Union

from .errors import InvalidRequest
from .ignore import RuleFile

GIT_IGNORE = b".gitignore"
OWN_IGNORE = b".trainyardignore"
RULES_BYTES_MAX = 1 << 20
# Differences are kept up to this size.
DIFF_BYTES_MAX = 64 << 10
# The paths that one call of git gets, which has a limit for its arguments.
_PATHS_AT_A_TIME = 200

# The differences have the form in which the command line writes them, and no program for them is run that the repository
# names.
_DIFF = ("-c", "core.fsmonitor=false", "-c", "core.bigFileThreshold=512k", "-c", "core.quotePath=true", "diff",
         "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-indent-heuristic",
         "--diff-algorithm=myers", "--unified=3", "--inter-hunk-context=0", "--ignore-submodules=all",
         "--src-prefix=a/", "--dst-prefix=b/", "--abbrev=7")


def _environment() -> Dict[str, str]:
    # A hook or an editor may have set variables that point git to another repository.
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("GIT_") or name.startswith(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NO"))}
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _start(folder: bytes, words: Sequence[Union[str, bytes]], stderr: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([b"git", b"-C", folder, *map(os.fsencode, words)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=stderr, env=_environment())


def _ask(folder: bytes, *words: Union[str, bytes]) -> Tuple[Optional[bytes], str]:
    """Returns what git prints, or None and its message."""
    try:
        with _start(folder, words, subprocess.PIPE) as process:
            out, err = process.communicate()
    except OSError as error:
        return None, str(error)
    if process.returncode != 0:
        return None, err.decode("utf-8", "replace").strip().split("\n")[0]
    return out, ""


def _line(folder: bytes, *words: str) -> bytes:
    out, _ = _ask(folder, *words)
    return (out or b"").rstrip(b"\n")


def read_rules(path: bytes, base: bytes) -> Optional[RuleFile]:
    """Reads a file with patterns, or returns None if there is none. git follows no link to such a file."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    with open(path, "rb") as file:
        text = file.read(RULES_BYTES_MAX + 1)
    if len(text) > RULES_BYTES_MAX:
        raise InvalidRequest(f"'{os.fsdecode(path)}' has more than 1 MiB; expected a name or a pattern in each line")
    return RuleFile(base, text)


def _put_first(rules: List[RuleFile], path: bytes, base: bytes) -> None:
    read = read_rules(path, base)
    if read is not None:
        rules.insert(0, read)


def _decide(rules: Sequence[RuleFile], path: bytes, is_folder: bool) -> Optional[bool]:
    """Returns True if the first of the files that names the path leaves it out, and None if none names it."""
    return next((answer for answer in (file.decides(path, is_folder) for file in rules) if answer is not None), None)


def without_password(url: str) -> str:
    """Returns an address without what stands before the '@' of https://user:password@host/."""
    return re.sub(r"^([^/]*?://)[^/]*@", r"\1", url)


class Origin(Dict[str, object]):
    """The commit, the branch and the like, as CodeOrigin of the API has them; empty without a commit."""

    diff = b""


class Repository:
    """A folder, and the repository in which it lies, if there is one. Paths are relative to the folder."""

    def __init__(self, folder: bytes) -> None:
        self.folder = folder
        self.warning = ""  # why the repository is not looked at
        self._top = folder
        self._prefix = b""  # of the folder below the top: b"sub/folder/", or empty
        self._is_real = False
        self._tracked: Set[bytes] = set()
        self._tracked_folders: Set[bytes] = set()
        # The files with patterns. Those that outweigh others stand before them.
        self._own: List[RuleFile] = []
        self._rules: List[RuleFile] = []
        self._last: List[RuleFile] = []
        # What is decided of folders: by `.trainyardignore` alone, and by all patterns.
        self._known: Dict[bytes, Tuple[Optional[bool], Optional[bool]]] = {b"": (None, None)}
        everywhere = read_rules(self._excludes_file(), b"")
        self._last = [everywhere] if everywhere is not None else []
        self._find()

    def _excludes_file(self) -> bytes:
        path = _line(self.folder, "config", "--path", "--get", "core.excludesfile")
        if not path:
            home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
            path = os.fsencode(os.path.join(home, "git", "ignore"))
        return os.path.join(self.folder, path)

    def _find(self) -> None:
        out, message = _ask(self.folder, "rev-parse", "--show-toplevel")
        top = os.path.realpath(out.rstrip(b"\n")) if out else b""
        if top and (self.folder + b"/").startswith(top.rstrip(b"/") + b"/"):
            self._open(top)
        elif out is None and self._is_below_a_repository():
            self.warning = (f"git does not read the repository of '{os.fsdecode(self.folder)}' ({message}), so files that "
                            "it tracks travel only if no pattern leaves them out, and the commit is not noted")

    def _is_below_a_repository(self) -> bool:
        above = self.folder
        while not os.path.exists(os.path.join(above, b".git")):
            if os.path.dirname(above) == above:
                return False
            above = os.path.dirname(above)
        return True

    def _open(self, top: bytes) -> None:
        prefix = (self.folder + b"/")[len(top.rstrip(b"/")) + 1:]
        tracked, _ = _ask(self.folder, "ls-files", "-z", "--cached")
        self._tracked = set((tracked or b"").split(b"\0")) - {b""}
        for path in self._tracked:
            parent = os.path.dirname(path)
            while parent and parent not in self._tracked_folders:
                self._tracked_folders.add(parent)
                parent = os.path.dirname(parent)
        # The patterns of the folders above. Those of the folder itself come with the walk through it.
        parts = prefix.split(b"/")[:-1]
        rules: List[RuleFile] = []
        for depth in range(len(parts)):
            base = b"".join(part + b"/" for part in parts[:depth])
            _put_first(rules, os.path.join(top, base, GIT_IGNORE), base)
        last = list(self._last)
        exclude = _line(self.folder, "rev-parse", "--git-path", "info/exclude")
        _put_first(last, os.path.join(self.folder, exclude), b"")
        is_left_out = None
        for depth in range(len(parts), 0, -1):
            is_left_out = _decide(rules + last, b"/".join(parts[:depth]), True)
            if is_left_out is not None:
                break
        # A repository that ignores the folder itself does not look into it, and counts as none.
        if is_left_out and not self._tracked:
            return
        self._is_real, self._top, self._prefix = True, top, prefix
        self._rules, self._last = rules, last
        self._known[b""] = (None, is_left_out)

    def enter(self, path: bytes) -> None:
        """Takes the patterns of a folder into account. It is called before a file in the folder is asked for."""
        here = os.path.join(self.folder, path) if path else self.folder
        base = path + b"/" if path else b""
        _put_first(self._rules, os.path.join(here, GIT_IGNORE), self._prefix + base)
        _put_first(self._own, os.path.join(here, OWN_IGNORE), base)

    def _look(self, path: bytes, is_folder: bool) -> Tuple[Optional[bool], Optional[bool]]:
        """Returns what `.trainyardignore` says of the path, and what it says together with git's patterns. What none of
        them names is as the folder in which it lies."""
        own = _decide(self._own, path, is_folder)
        both = own if own is not None else _decide(self._rules + self._last, self._prefix + path, is_folder)
        above = self._known[os.path.dirname(path)]
        decided = (own if own is not None else above[0], both if both is not None else above[1])
        if is_folder:
            self._known[path] = decided
        return decided

    def is_ignored(self, path: bytes, is_folder: bool) -> bool:
        """Returns True if the patterns leave the path out. Files that git tracks are left out by `.trainyardignore` alone,
        and folders with such files are not left out by git's patterns."""
        own, both = self._look(path, is_folder)
        if own:
            return True
        if path in (self._tracked_folders if is_folder else self._tracked):
            return False
        return bool(both)

    def is_tracked(self, path: bytes) -> bool:
        """Returns True if git knows the file, or the folder is a submodule."""
        return path in self._tracked

    def _is_own_ignored(self, path: bytes) -> bool:
        """Returns True if `.trainyardignore` leaves out the path, which need not be there any more."""
        parts = path.split(b"/")
        for depth in range(len(parts), 0, -1):
            answer = _decide(self._own, b"/".join(parts[:depth]), depth < len(parts))
            if answer is not None:
                return answer
        return False

    def origin(self) -> Origin:
        """Returns the commit, the branch and the address of the remote repository, without passwords, and how tracked
        files differ from the commit, without those that `.trainyardignore` leaves out."""
        found = Origin()
        commit = _line(self.folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") if self._is_real else b""
        if not commit:
            return found
        found["commit"] = commit.decode()
        branch = _line(self.folder, "symbolic-ref", "--quiet", "--short", "HEAD").decode("utf-8", "replace")
        remote = _line(self.folder, "remote", "get-url", "origin").decode("utf-8", "replace")
        for name, value in (("branch", branch), ("remote", without_password(remote))):
            if value:
                found[name] = value
        names, _ = _ask(self.folder, *_DIFF, "--name-only", "-z", "HEAD", "--", ".")
        paths = [path for path in (names or b"").split(b"\0")
                 if path and not self._is_own_ignored(path[len(self._prefix):])]
        if paths:
            found["is_dirty"] = True
            found.diff = self._differences(paths)
        return found

    def _differences(self, paths: Sequence[bytes]) -> bytes:
        diff = b""
        for begin in range(0, len(paths), _PATHS_AT_A_TIME):
            words: List[Union[str, bytes]] = ["--literal-pathspecs", *_DIFF, "HEAD", "--"]
            words += paths[begin:begin + _PATHS_AT_A_TIME]
            with _start(self._top, words, subprocess.DEVNULL) as process:
                assert process.stdout is not None
                diff += process.stdout.read(DIFF_BYTES_MAX + 1)
                process.kill()  # what comes behind the limit is not needed
            if len(diff) > DIFF_BYTES_MAX:
                return diff[:diff.rfind(b"\n", 0, DIFF_BYTES_MAX) + 1]
        return diff
