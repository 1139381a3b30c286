"""Durations and sizes as people write them: `90s`, `8h`, `1h30m`, `500ms`; `64MiB`, `2GiB`."""

from __future__ import annotations

import re

LONGEST_MS = 10_000 * 86_400_000
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_UNIT_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB|TiB|)")


class Duration(int):
    """Milliseconds, parsed from text."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Raise `ValueError` that says what was expected. A bare number is seconds."""
        if text.isascii() and text.isdigit():
            return cls._bounded(int(text[:30]) * 1000, text)
        parts = _PART.findall(text)
        if not parts or "".join(n + u for n, u in parts) != text:
            raise ValueError(f"expected a duration such as 90s, 8h or 1h30m, got {text!r}")
        return cls._bounded(sum(int(n[:30]) * _UNIT_MS[u] for n, u in parts), text)

    @classmethod
    def _bounded(cls, ms: int, text: str) -> Duration:
        if ms > LONGEST_MS:
            raise ValueError(f"expected at most 10000d, got {text[:40]!r}")
        return cls(ms)

    def __str__(self) -> str:
        rest, words = int(self), []
        for unit in ("d", "h", "m", "s", "ms"):
            count, rest = divmod(rest, _UNIT_MS[unit])
            if count:
                words.append(f"{count}{unit}")
        return "".join(words) or "0s"


class Size(int):
    """Bytes, parsed from text."""

    @classmethod
    def parse(cls, text: str) -> Size:
        """Raise `ValueError` that says what was expected."""
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"expected a size such as 64MiB or 2GiB, got {text!r}")
        return cls(int(match[1]) * _UNIT_BYTES[match[2]])
