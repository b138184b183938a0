"""Makes the archive of a folder with code, which travels with a job. The same content gives the same bytes, here and in the
command line, so that a server that has them gets them no second time."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import IO, Dict, List, NamedTuple

from .errors import NotFound, TrainyardError
from .repository import OWN_IGNORE, Origin, Repository

# Code is text. What is larger than this is data, which belongs into the folder of data sets.
CONTENT_BYTES_MAX = 256 << 20
ENTRIES_MAX = 50_000
PATH_BYTES_MAX = 1024
DEPTH_MAX = 64
# A file may change while the folder is read, which is then read again.
_TRIES = 3
_NAMED_LARGEST = 5
_BLOCK = 512

FILE, FOLDER, LINK = b"0", b"5", b"2"  # as tar has them


class Entry(NamedTuple):
    """A file, a folder or a link. Its path is relative to the folder of the code."""

    path: bytes
    kind: bytes
    size: int = 0
    is_executable: bool = False
    target: bytes = b""


class Listing:
    """What an archive of a folder has."""

    def __init__(self) -> None:
        self.entries: List[Entry] = []
        self.left_out: List[str] = []  # sentences about what is left out although no pattern says so
        self.bytes = 0
        self.has_untracked = False  # files are there that git does not track


class MadeArchive(NamedTuple):
    """An archive, and where it comes from."""

    digest: str
    size: int
    origin: Origin
    left_out: List[str]


class _Changed(Exception):
    """A file was changed while it was read."""


def leads_out(path: bytes, target: bytes) -> bool:
    """Returns True if a link may lead out of the folder: each '..' of its target must stand at the beginning, because
    behind the name of another link nobody knows where '..' leads."""
    if not target or len(target) > PATH_BYTES_MAX or target.startswith(b"/"):
        return True
    depth, is_down = path.count(b"/"), False
    for part in target.split(b"/"):
        if part in (b"", b"."):
            continue
        if part != b"..":
            is_down = True
            continue
        depth -= 1
        if is_down or depth < 0:
            return True
    return False


def format_bytes(count: float) -> str:
    """1536 is "1.5 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = 0
    while count >= 1024 and unit + 1 < len(units):
        count /= 1024
        unit += 1
    return f"{count:.{1 if unit and count < 10 else 0}f} {units[unit]}"


class _Walk:
    """Walks through the folder. A folder that is left out is not entered, however large it is."""

    def __init__(self, repository: Repository, entries_max: int) -> None:
        self._folder = repository.folder
        self._repository = repository
        # The walk goes on past the limit, so that the message can name what is large, but not for ever.
        self._listed_max = 4 * entries_max
        self.listing = Listing()

    def enter(self, path: bytes, is_in_submodule: bool) -> None:
        self._repository.enter(path)
        with os.scandir(os.path.join(self._folder, path) if path else self._folder) as found:
            names = sorted(entry.name for entry in found)
        for name in names:
            if name != b".git":
                self._take(path + b"/" + name if path else name, is_in_submodule)

    def _take(self, path: bytes, is_in_submodule: bool) -> None:
        full = os.path.join(self._folder, path)
        try:
            info = os.lstat(full)
        except FileNotFoundError:
            return  # it has just been removed
        is_folder = stat.S_ISDIR(info.st_mode)
        if self._repository.is_ignored(path, is_folder):
            return
        if len(path) > PATH_BYTES_MAX or path.count(b"/") >= DEPTH_MAX:
            return self._leave_out(path, "its path is too long")
        if is_folder:
            entry = Entry(path, FOLDER)
        elif stat.S_ISLNK(info.st_mode):
            entry = Entry(path, LINK, target=os.readlink(full))
            if leads_out(path, entry.target):
                return self._leave_out(path, f"it is a link to {os.fsdecode(entry.target)}, out of the folder or by a way "
                                             "that leads back up")
        elif stat.S_ISREG(info.st_mode):
            entry = Entry(path, FILE, info.st_size, bool(info.st_mode & stat.S_IXUSR))
        else:
            return self._leave_out(path, "it is neither a file nor a folder")
        is_tracked = self._repository.is_tracked(path)
        if not is_folder and not is_in_submodule and not is_tracked:
            self.listing.has_untracked = True
        self.listing.bytes += entry.size
        self.listing.entries.append(entry)
        if is_folder and len(self.listing.entries) <= self._listed_max:
            self.enter(path, is_in_submodule or is_tracked)

    def _leave_out(self, path: bytes, why: str) -> None:
        self.listing.left_out.append(f"'{os.fsdecode(path)}' does not travel with the code: {why}")


def _too_large(folder: bytes, listing: Listing, content_bytes: int, entries: int) -> TrainyardError:
    has_many = len(listing.entries) > entries
    sizes: Dict[bytes, int] = {}
    for entry in listing.entries:
        if not has_many:
            sizes[entry.path] = entry.size
        elif b"/" in entry.path:
            above = os.path.dirname(entry.path)
            sizes[above] = sizes.get(above, 0) + 1
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_NAMED_LARGEST]
    name = os.fsdecode(folder)
    lines = [f"the code is too large: the folder '{name}' has {format_bytes(listing.bytes)} in "
             f"{len(listing.entries):,} files and folders; expected at most {format_bytes(content_bytes)} and {entries:,}. The largest are:"]
    lines += [f"  {f'{size:,} files' if has_many else format_bytes(size)}  {os.fsdecode(path)}" for path, size in largest]
    lines.append(f"Write what is no code into {os.path.join(name, os.fsdecode(OWN_IGNORE))}, a name or a pattern in each "
                 "line, as in .gitignore")
    return TrainyardError("\n".join(lines), code="resource_exhausted", reason="CODE_TOO_LARGE")


def list_folder(repository: Repository, content_bytes: int = CONTENT_BYTES_MAX, entries: int = ENTRIES_MAX) -> Listing:
    """Lists what an archive of the folder has, in the order of the paths. `.git` is never taken."""
    walk = _Walk(repository, entries)
    walk.enter(b"", False)
    listing = walk.listing
    if listing.bytes > content_bytes or len(listing.entries) > entries:
        raise _too_large(repository.folder, listing, content_bytes, entries)
    listing.entries.sort(key=lambda entry: entry.path)
    return listing


def _header(name: bytes, mode: int, size: int, kind: bytes, target: bytes = b"", user: bytes = b"",
            group: bytes = b"") -> bytes:
    """One header in GNU's form of tar. There are no times and no owners, which differ between copies of a folder."""
    def field(text: bytes, length: int) -> bytes:
        return text[:length].ljust(length, b"\0")

    before = field(name, 100) + b"%07o\0" % mode + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
    after = (kind + field(target, 100) + b"ustar  \0" + field(user, 32) + field(group, 32)).ljust(_BLOCK - 156, b"\0")
    return before + b"%06o\0 " % (sum(before) + sum(after) + 8 * ord(" ")) + after


def _long_name(text: bytes, kind: bytes, target: bytes) -> bytes:
    # The target and the owners mean nothing here, but libarchive, with which the command line writes, puts them there.
    data = text + b"\0"
    return _header(b"././@LongLink", 0, len(data), kind, target, b"root", b"wheel") + data + _padding(len(data))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


def _headers_of(entry: Entry) -> bytes:
    name = entry.path + (b"/" if entry.kind == FOLDER else b"")
    mode = {FOLDER: 0o755, LINK: 0o777}.get(entry.kind, 0o755 if entry.is_executable else 0o644)
    return ((_long_name(entry.target, b"K", entry.target) if len(entry.target) > 100 else b"")
            + (_long_name(name, b"L", entry.target) if len(name) > 100 else b"")
            + _header(name, mode, entry.size, entry.kind, entry.target))


class _Writer:
    """Writes into a file, and hashes what it writes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.hash.update(data)
        self.size += len(data)


def _open(path: bytes) -> IO[bytes]:
    # Since it was listed, a file may have become something else.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _Changed(f"'{os.fsdecode(path)}' is no file any more")
    return os.fdopen(descriptor, "rb")


def _write(folder: bytes, listing: Listing, writer: _Writer) -> None:
    for entry in listing.entries:
        writer.write(_headers_of(entry))
        if entry.kind != FILE:
            continue
        try:
            file = _open(os.path.join(folder, entry.path))
        except FileNotFoundError:
            raise _Changed(f"'{os.fsdecode(entry.path)}' has just been removed") from None
        with file:
            left = entry.size
            while left > 0:
                data = file.read(min(left, 1 << 20))
                if not data:
                    raise _Changed(f"'{os.fsdecode(entry.path)}' has just become shorter")
                writer.write(data)
                left -= len(data)
        writer.write(_padding(entry.size))
    writer.write(b"\0" * (2 * _BLOCK))


def make_archive(folder: str, file: IO[bytes], content_bytes: int = CONTENT_BYTES_MAX,
                 entries: int = ENTRIES_MAX) -> MadeArchive:
    """Writes the archive of a folder into an open file."""
    path = os.path.realpath(os.fsencode(folder))
    if not os.path.isdir(path):
        raise NotFound(f"there is no folder '{folder}' with code", code="not_found", reason="NOT_FOUND")
    for tries_left in reversed(range(_TRIES)):
        repository = Repository(path)
        listing = list_folder(repository, content_bytes, entries)
        file.seek(0)
        file.truncate()
        writer = _Writer(file)
        try:
            _write(path, listing, writer)
            break
        except _Changed as changed:
            if not tries_left:
                raise TrainyardError(f"the folder '{folder}' changes while it is read: {changed}", code="aborted") from None
    origin = repository.origin()
    if origin and listing.has_untracked:
        origin["is_dirty"] = True
    left_out = ([repository.warning] if repository.warning else []) + listing.left_out
    return MadeArchive(f"sha256:{writer.hash.hexdigest()}", writer.size, origin, left_out)
