"""The two ends of every parser."""

from __future__ import annotations

import time

import msgspec

from evolver.model import AgentReport
from evolver.steps.said import Said, is_transient, retry_after, short


def failed(said: Said, words: str, **known: object) -> AgentReport:
    """A report of failure; `words` decide whether it passes by itself."""
    words = words or said.last_line() or f"exit {said.exit_code} without a report"
    report = AgentReport(
        ok=False,
        reason=short(words),
        transient=is_transient(words, said.rate_limit),
        retry_after_ms=retry_after(words, time.time()),
    )
    return msgspec.structs.replace(report, **known)


def finished(said: Said, words: str, **known: object) -> AgentReport:
    """Its own word that it finished; then a non-zero exit still counts against it."""
    if said.exit_code != 0:
        return failed(said, f"exit {said.exit_code} after a report of success" + (f": {words}" if words else ""), **known)
    return msgspec.structs.replace(AgentReport(ok=True, reason=short(words)), **known)
