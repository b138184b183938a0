"""Sends the code of programs to the server before their jobs. A folder that many specs name is looked at once, and what the
server has already is not sent again."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from typing import TYPE_CHECKING, IO, Any, Dict, List, NamedTuple

from .archive import make_archive
from .errors import TrainyardError, tell

if TYPE_CHECKING:
    from .client import Client

_CHUNK_BYTES = 1 << 20
# A larger archive goes to the disk.
_MEMORY_BYTES = 16 << 20
# An upload that a restart of the server has cut off goes on where the server says.
_TRIES = 5
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class _Content(NamedTuple):
    digest: str
    size: int
    file: IO[bytes]


class _Made(NamedTuple):
    digest: str
    origin: Dict[str, Any]
    contents: List[_Content]


class CodeSender:
    """Puts digests in the place of folders, and sends what they stand for. It is closed at the end of a `with`."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._made: Dict[str, _Made] = {}

    def __enter__(self) -> "CodeSender":
        return self

    def __exit__(self, *_: object) -> None:
        for made in self._made.values():
            for content in made.contents:
                content.file.close()

    def take(self, spec: Dict[str, Any]) -> Dict[str, Any]:
        """Makes the archive of the folder that the spec names in program.code, and puts its digest there. Returns the
        options of the submission that go with it. A spec without code, or with a digest, stays as it is."""
        program = spec.get("program")
        code = program.get("code") if isinstance(program, dict) else None
        if not isinstance(code, str) or not code or _DIGEST.fullmatch(code):
            return {}
        made = self.take_folder(code)
        spec["program"] = {**spec["program"], "code": made.digest}
        return {"code_origin": made.origin} if made.origin else {}

    def take_folder(self, folder: str) -> _Made:
        """Makes the archive of a folder."""
        key = os.path.realpath(os.path.expanduser(folder))
        if key not in self._made:
            self._made[key] = self._make(os.path.expanduser(folder))
        return self._made[key]

    @staticmethod
    def _make(folder: str) -> _Made:
        file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)
        try:
            archive = make_archive(folder, file)
        except BaseException:
            file.close()
            raise
        for sentence in archive.left_out:
            tell(sentence)
        contents = [_Content(archive.digest, archive.size, file)]
        origin = dict(archive.origin)
        diff = archive.origin.diff
        if diff:
            digest = f"sha256:{hashlib.sha256(diff).hexdigest()}"
            origin["diff_digest"] = digest
            text = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)
            text.write(diff)
            contents.append(_Content(digest, len(diff), text))
        return _Made(archive.digest, origin, contents)

    def send(self) -> None:
        """Sends what the server does not have yet."""
        for made in self._made.values():
            wanted = [content.digest for content in made.contents]
            try:
                there = self._client.call("CodeService/FindCode", {"digests": wanted}).get("digests", [])
            except TrainyardError as error:
                if error.code != "unimplemented":
                    raise
                raise TrainyardError("the server is older than this client and takes no code; leave code= out",
                                     code="unimplemented") from None
            for content in made.contents:
                if content.digest not in there:
                    self._upload(content)

    def _upload(self, content: _Content) -> None:
        offset, tries = 0, 0
        while offset < content.size:
            content.file.seek(offset)
            data = content.file.read(_CHUNK_BYTES)
            try:
                answer = self._client.call("CodeService/UploadCode", {
                    "digest": content.digest, "size": str(content.size), "offset": str(offset),
                    "data": base64.b64encode(data).decode("ascii")})
                offset, before = int(answer.get("next_offset", 0)), offset
                if offset > before:
                    continue
                failure = TrainyardError(f"the server takes no bytes of the code beyond {offset}", code="data_loss")
            except TrainyardError as error:
                if "expected_offset" not in error.metadata:
                    raise
                failure = error
                offset = min(int(error.metadata["expected_offset"]), content.size)
            tries += 1
            if tries == _TRIES:
                raise failure
