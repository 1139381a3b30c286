"""Path patterns of a loop file, as in a `.gitignore`: those that can match nothing are mistakes, and would switch off what they are for."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPED_LETTER = re.compile(r"\\[A-Za-z0-9._/-]")


def why_wrong(patterns: Sequence[str]) -> str:
    """Why one of them, or all together, match nothing; empty when they may."""
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        if why := _why(plain):
            return f"{pattern!r} matches nothing: {why}"
    if patterns and all(pattern.startswith("!") for pattern in patterns):
        return f"{patterns[0]!r} takes away from what stands before it, and nothing does"
    return ""


def _why(pattern: str) -> str:
    if not pattern.strip().strip("/"):
        return "it is empty"
    if pattern.startswith("#"):
        return "it is a comment; write `\\#`"
    if pattern.startswith("./"):
        return f"leave out the `./`: {pattern.lstrip('./')!r}"
    if ".." in pattern.split("/"):
        return "paths are relative to the worktree's top, and below it"
    if _ESCAPED_LETTER.search(pattern):
        return "folders are separated by `/`"
    if "[" in pattern.replace("\\[", "") and "]" not in pattern.partition("[")[2]:
        return "the `[` is never closed"
    return ""
