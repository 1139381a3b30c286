"""What an agent says of its cost while it works, for those that say it: a budget need not wait for the end of an attempt."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import msgspec

from evolver.steps.said import money

LINE_LIMIT = 1 << 20  # a longer line is no report of cost
_TEXT = re.compile(rb"^Tokens: .*Cost: \$([\d.]+) message")


class _Part(msgspec.Struct):
    cost: float | int | str | None = None


class _Step(msgspec.Struct):
    type: str = ""
    part: _Part | None = None


def cost_in(line: bytes) -> Decimal:
    """USD that one line of output adds: a finished step of `opencode run --format json`, or aider's line after a message."""
    if line.startswith(b"Tokens: ") and (found := _TEXT.match(line)):
        return _usd(found[1].decode())
    if b'"step_finish"' in line and line.lstrip().startswith(b"{"):
        try:
            step = msgspec.json.decode(line, type=_Step)
        except msgspec.DecodeError:
            return Decimal(0)
        if step.type == "step_finish" and step.part is not None and step.part.cost:
            return _usd(str(step.part.cost))
    return Decimal(0)


def _usd(text: str) -> Decimal:
    return Decimal(money(text) or 0)


class Meter:
    """Adds up what goes by in a step's output, and calls `over` once when that is more than `limit`."""

    def __init__(self, limit: Decimal, over: Callable[[], None], then: Callable[[bytes], None] | None) -> None:
        self.limit, self.spent, self.exceeded = limit, Decimal(0), False
        self._over, self._then = over, then
        self._line = b""

    def feed(self, chunk: bytes) -> None:
        if self._then is not None:
            self._then(chunk)
        *lines, rest = (self._line + chunk).split(b"\n")
        self._line = rest if len(rest) <= LINE_LIMIT else b""
        for line in lines:
            self.spent += cost_in(line)
        if self.spent > self.limit and not self.exceeded:
            self.exceeded = True
            self._over()
