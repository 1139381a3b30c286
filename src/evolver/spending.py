"""What an agent says of its cost while it works, for those that say it: a budget need not wait for the end of an attempt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal

import msgspec

from evolver.definition import LoopDefinition
from evolver.steps.presets import find_preset
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
        except (msgspec.DecodeError, RecursionError):
            return Decimal(0)
        if step.type == "step_finish" and step.part is not None and step.part.cost:
            return _usd(str(step.part.cost))
    return Decimal(0)


def _usd(text: str) -> Decimal:
    return Decimal(money(text) or 0)


# What each parser finds in its agent's words. A command says nothing; a callable may say anything.
_TELL_COST = frozenset(("claude", "opencode", "aider", "mini-swe-agent"))
_TELL_TOKENS = _TELL_COST | {"codex", "gemini"}


def unwatched(definition: LoopDefinition, *, commands: bool) -> Iterator[str]:
    """A sentence for each budget that would never end the run, since nobody tells what is spent. `commands`: also of a plain
    command, which is known to tell nothing."""
    codegen, budget = definition.codegen, definition.budget
    costs = ("cost_usd", "cost_usd_per_day")
    keys = [(key, _TELL_COST) for key in costs if Decimal(getattr(budget, key))] + [("tokens", _TELL_TOKENS)] * bool(budget.tokens)
    for key, tell in keys:
        names = [codegen.agent, *codegen.fallback] if codegen.agent is not None else []
        silent = [name for name in names if name and find_preset(name, definition.agents).parser not in tell]
        if commands and codegen.command is not None:
            silent = ["a command"]
        if silent:
            what = "cost" if tell is _TELL_COST else "tokens"
            yield f"[budget] {key}: {', '.join(silent)} does not tell its {what}, which counts as none (a limit that holds: --max-time)"


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
