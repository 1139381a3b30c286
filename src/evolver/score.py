"""A number an attempt must improve: read from a validator, compared beyond its noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from stat import S_ISREG
from statistics import median

import msgspec

from evolver.definition import ScoreSection
from evolver.model import StepResult

LARGEST_EXPONENT = 300  # that of a double, about
READ_LIMIT = 1 << 20  # bytes of the log's end that are searched for the score


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    # A score is compared and averaged: 28 digits, and an exponent that a sum of two can hold.
    return +value if value.is_finite() and abs(value.adjusted()) <= LARGEST_EXPONENT else None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - READ_LIMIT))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _at(value: object, dotted: str) -> Decimal | None:
    for key in dotted.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return None if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)) else _decimal(str(value))


def read(section: ScoreSection, result: StepResult, files: Sequence[Path], before: Sequence[object]) -> Decimal | None:
    """The score one run of the validator gave; None: it gave none.

    `files`: where the section's file may be, and `before` their stamps from before the run: a file that lies there
    unchanged was written by somebody else, such as the agent.
    """
    if section.file:
        for path, old in zip(files, before, strict=True):
            if (now := stamp(path)) is not None and now != old:
                return _decimal(_tail(path))
        return None
    text = _tail(Path(result.log)) if result.log else result.tail
    if section.json:
        for line in reversed(text.splitlines()):
            if line.lstrip().startswith(("{", "[")):
                try:
                    parsed = msgspec.json.Decoder(float_hook=Decimal).decode(line)
                except (msgspec.DecodeError, RecursionError):
                    continue
                found = _at(parsed, section.json)
                if found is not None:
                    return found
        return None
    pattern = re.compile(section.pattern)
    for line in reversed(text.splitlines()):
        match = pattern.search(line)
        if match:
            return _decimal(match[1] if match.groups() else match[0])
    return None


Stamp = tuple[int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Tells a file that was written from one that lay there: inode, times, size. None: no regular file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size) if S_ISREG(found.st_mode) else None


@dataclass(frozen=True, slots=True)
class Measured:
    """Median of the repeats and their median absolute deviation."""

    value: Decimal
    noise: Decimal
    runs: int

    @classmethod
    def of(cls, values: Sequence[Decimal]) -> Measured:
        middle = median(values)
        return cls(middle, median([abs(v - middle) for v in values]), len(values))


def _plain(value: Decimal) -> str:
    return format(value.normalize(), "f")


def better(section: ScoreSection) -> Callable[[Decimal, Decimal], bool]:
    return (lambda a, b: a > b) if section.direction == "higher" else (lambda a, b: a < b)


def judge(section: ScoreSection, measured: Measured | None, best: Decimal | None) -> str | None:
    """Why the score rejects the attempt, with the numbers; None: it is an improvement (or the first)."""
    if measured is None:
        return "score: the validator printed none"
    if best is None:
        return None
    gain = measured.value - best if section.direction == "higher" else best - measured.value
    needed = max(Decimal(section.min_delta), measured.noise)
    if gain > 0 and gain >= Decimal(section.min_delta) and gain > measured.noise:
        return None
    beyond = f", {_plain(needed)} was needed (noise {_plain(measured.noise)} over {measured.runs} runs)" if needed else ""
    return f"score: {measured.value} against best {best} is no improvement{beyond}"
