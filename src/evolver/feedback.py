"""What a rejected attempt teaches the next one, and what tells two failures apart."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from evolver.model import Outcome, StepResult, Verdict
from evolver.scratch import put

TAIL_BYTES = 16_384
TRIED_LINES = 50

# What differs between two runs of the same failure: times, addresses, temporary paths, counts of seconds.
_NOISE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ][\d:.,Z+-]+"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|sec|secs|seconds|minutes|m)\b"), "DURATION"),
    (re.compile(r"/(?:tmp|var/tmp|private/var)/\S+"), "TMP"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "HEX"),
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\b(pid|port)[ =:]+\d+", re.IGNORECASE), "ID"),
)


def failure_hash(verdict: Verdict, output: str) -> str:
    """Equal for failures that say the same thing."""
    text = f"{verdict.step}\n{verdict.reason}\n{output}"
    for pattern, stand_in in _NOISE:
        text = pattern.sub(stand_in, text)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the next attempt is told."""

    reason: str = ""
    output: str = ""  # the failing step's last bytes, redacted
    tried: tuple[str, ...] = ()  # one line per rejected attempt, oldest first
    diff_stat: str = ""

    def rejected(self, number: int, verdict: Verdict, output: str, diff_stat: str) -> Feedback:
        line = f"#{number}: {verdict.reason.splitlines()[0][:200] if verdict.reason else verdict.judgement}"
        if diff_stat:
            line += f" ({diff_stat})"
        return Feedback(verdict.reason, output[-TAIL_BYTES:], (*self.tried, line)[-TRIED_LINES:], diff_stat)

    def after(self, number: int, outcome: Outcome, verdict: Verdict | None, output: str, diff_stat: str) -> Feedback:
        if outcome is Outcome.ACCEPTED:
            return Feedback()
        if verdict is None or outcome is Outcome.NO_CHANGE:
            return replace(self, reason=self.reason or "the last attempt changed nothing")
        return self.rejected(number, verdict, output, diff_stat)

    def write(self, path: Path) -> None:
        """The file behind EVOLVER_LAST_FAILURE; empty when nothing failed."""
        text = f"{self.reason}\n\n{self.output}" if self.reason else ""
        put(path, text.encode("utf-8", "replace").decode())


def output_of(result: StepResult) -> str:
    return result.tail[-TAIL_BYTES:]
