"""Reads patterns in the form of .gitignore. Paths are bytes, because git compares bytes, and because names on a disk need
not be texts. Python's fnmatch has other rules."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Pattern, Tuple

# What a name such as [:digit:] stands for within a set of letters.
_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb"\t ", b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9",
    b"graph": rb"!-~", b"lower": rb"a-z", b"print": rb" -~", b"punct": rb"!-/:-@\[-`{-~", b"space": rb"\t-\r ",
    b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}


_NAMED = re.compile(rb"\[:([a-z]+):\]")


class _Unreadable(Exception):
    """The pattern has a set of letters that does not end. It matches nothing."""


def _set_of_letters(pattern: bytes, at: int) -> Tuple[bytes, int]:
    """Translates the set that begins behind the bracket at `at` - 1. Returns it and the place behind its end."""
    is_negated = pattern[at:at + 1] in (b"!", b"^")
    at += is_negated
    parts: List[bytes] = []
    begin: Optional[int] = None  # of a range such as a-z
    is_first = True
    while True:
        if at >= len(pattern):
            raise _Unreadable
        letter = pattern[at:at + 1]
        if letter == b"]" and not is_first:
            break
        is_first = False
        named = _NAMED.match(pattern, at)
        if named is not None:
            if named.group(1) not in _CLASSES:
                raise _Unreadable
            parts.append(_CLASSES[named.group(1)])
            at, begin = named.end(), None
            continue
        if letter == b"-" and begin is not None and pattern[at + 1:at + 2] not in (b"", b"]"):
            at += 1
            if pattern[at:at + 1] == b"\\":
                at += 1
            end = pattern[at:at + 1]
            if not end:
                raise _Unreadable
            parts.append(b"" if end[0] < begin else re.escape(bytes([begin])) + b"-" + re.escape(end))
            at, begin = at + 1, None
            continue
        if letter == b"\\":
            at += 1
            letter = pattern[at:at + 1]
            if not letter:
                raise _Unreadable
        parts.append(re.escape(letter))
        at, begin = at + 1, letter[0]
    letters = b"".join(parts)
    # No set matches a slash.
    if is_negated:
        return b"[^/" + letters + b"]", at + 1
    return (b"(?!/)[" + letters + b"]" if letters else b"(?!)"), at + 1


def _expression(pattern: bytes) -> bytes:
    """Translates a pattern into a regular expression for the whole path."""
    result = b""
    at = 0
    while at < len(pattern):
        letter = pattern[at:at + 1]
        if letter == b"*":
            end = at
            while pattern[end:end + 1] == b"*":
                end += 1
            is_alone = (at == 0 or pattern[at - 1:at] == b"/") and pattern[end:end + 1] in (b"", b"/")
            if end - at >= 2 and is_alone and end == len(pattern):
                result += b".*"
            elif end - at >= 2 and is_alone:
                result += b"(?:.*/)?"
                end += 1
            else:
                result += b"[^/]*"
            at = end
        elif letter == b"?":
            result += b"[^/]"
            at += 1
        elif letter == b"[":
            letters, at = _set_of_letters(pattern, at + 1)
            result += letters
        elif letter == b"\\":
            if at + 1 == len(pattern):
                raise _Unreadable
            result += re.escape(pattern[at + 1:at + 2])
            at += 2
        else:
            result += re.escape(letter)
            at += 1
    return result


class Rule(NamedTuple):
    """One pattern."""

    expression: Pattern[bytes]
    is_negated: bool  # it takes back what an earlier one leaves out
    is_for_folders: bool
    is_for_names: bool  # it is compared with the last part of a path

    def matches(self, path: bytes, is_folder: bool) -> bool:
        if self.is_for_folders and not is_folder:
            return False
        subject = path[path.rfind(b"/") + 1:] if self.is_for_names else path
        return self.expression.fullmatch(subject) is not None


def _rule(line: bytes) -> Optional[Rule]:
    if line.startswith(b"#"):
        return None
    # Spaces at the end do not count, unless a backslash stands before them.
    stripped = line.rstrip(b" ")
    if stripped != line and (len(stripped) - len(stripped.rstrip(b"\\"))) % 2 == 1:
        stripped += b" "
    pattern = stripped
    is_negated = pattern.startswith(b"!")
    pattern = pattern[is_negated:]
    is_for_folders = pattern.endswith(b"/")
    if is_for_folders:
        pattern = pattern[:-1]
    is_for_names = b"/" not in pattern
    if pattern.startswith(b"/"):
        pattern = pattern[1:]
    if not pattern:
        return None
    try:
        expression = re.compile(_expression(pattern), re.DOTALL)
    except _Unreadable:
        return None
    return Rule(expression, is_negated, is_for_folders, is_for_names)


class RuleFile:
    """The patterns of one file, which hold in the folder `base` and below. `base` is empty for the top, and ends with a
    slash otherwise."""

    def __init__(self, base: bytes, text: bytes) -> None:
        self.base = base
        if text.startswith(b"\xef\xbb\xbf"):
            text = text[3:]
        lines = [line[:-1] if line.endswith(b"\r") else line for line in text.split(b"\n")]
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]
        self._rules.reverse()  # the last one that matches decides

    def decides(self, path: bytes, is_folder: bool) -> Optional[bool]:
        """Returns True if the patterns leave the path out, False if they take it back, and None if none matches."""
        if not path.startswith(self.base):
            return None
        inner = path[len(self.base):]
        for rule in self._rules:
            if rule.matches(inner, is_folder):
                return not rule.is_negated
        return None
