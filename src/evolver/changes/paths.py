"""Paths of a changes log as text: what can be refused without asking the filesystem.

A log is written by an agent, so a path in it may point anywhere: above the root, into `.git`, at the root itself. What only
the filesystem knows (symlinks, hard links) is checked in `files.py` and `check.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
# Code points that HFS+ drops when it compares names, so that `.g\u200cit` opens `.git` there.
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


class BadPathError(ValueError):
    """Why a text is no path below the root."""


@dataclass(frozen=True, slots=True)
class RelativePath:
    """A path below the root: at least one name, none of them `.`, `..` or a git folder's."""

    text: str  # as the log spells it
    names: tuple[bytes, ...]

    @property
    def raw(self) -> bytes:
        return b"/".join(self.names)

    @property
    def shown(self) -> str:
        """The log's spelling, safe to print: control characters and undecodable bytes come out escaped."""
        return shown(self.text)

    def holds(self, other: RelativePath) -> bool:
        """Is `other` this path or below it?"""
        return other.names[: len(self.names)] == self.names


def shown(text: str) -> str:
    """Text of an agent, for people and JSON: nothing that moves a cursor, hides text or is no Unicode."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def is_git_name(name: bytes) -> bool:
    """Does a folder of this name open `.git` on some filesystem (case-blind, HFS+, NTFS short names)?"""
    text = _IGNORABLE.sub("", name.decode("utf-8", "surrogateescape")).casefold().rstrip(". ")
    return text in (".git", "git~1")


def relative(text: str) -> RelativePath:
    """The path `text` means, or `BadPathError` that says what is wrong with it."""
    if not text:
        raise BadPathError("is empty")
    if "\0" in text:
        raise BadPathError("has a NUL character")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadPathError("is no file name (lone surrogate)") from error
    if raw.startswith(b"/"):
        raise BadPathError("is absolute, so outside the root")
    if len(raw) > MAX_PATH_BYTES:
        raise BadPathError(f"is longer than {MAX_PATH_BYTES} bytes")
    names = tuple(name for name in raw.split(b"/") if name not in (b"", b"."))
    if b".." in names:
        raise BadPathError("has `..`, so may be outside the root")
    if not names:
        raise BadPathError("is the root itself")
    if any(len(name) > MAX_NAME_BYTES for name in names):
        raise BadPathError(f"has a name longer than {MAX_NAME_BYTES} bytes")
    if any(is_git_name(name) for name in names):
        raise BadPathError("is inside .git")
    return RelativePath(text, names)
