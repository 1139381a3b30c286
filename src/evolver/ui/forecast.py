"""What ends the run next, and when: from the definition and what happened so far. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from evolver.definition import LoopDefinition
from evolver.ui import words
from evolver.ui.views import RUNNING, RunView


@dataclass(frozen=True, slots=True)
class Limit:
    """One stop condition: how much of it is used up (0 to 1), and the words for it."""

    name: str
    used: float
    text: str


def _in_a_row(run: RunView, wanted: frozenset[str]) -> int:
    """As the breaker counts: an acceptance ends a row, what is neither is passed over."""
    row = 0
    for iteration in reversed(run.iterations):
        if iteration.outcome == RUNNING:
            continue
        if iteration.outcome in wanted:
            row += 1
        elif iteration.outcome == "accepted" or "no_change" in wanted:
            break
    return row


def limits(run: RunView, definition: LoopDefinition, elapsed_ms: int, *, breaker: bool = True) -> list[Limit]:
    """Every limit in force, the nearest first."""
    done = sum(iteration.outcome != RUNNING for iteration in run.iterations)
    most = run.max_iterations or definition.loop.max_iters
    found = [Limit("max_iterations", done / most, f"{words.plural(most - done, 'iteration')} left")]
    if definition.loop.max_time:
        left = max(0, definition.loop.max_time - elapsed_ms)
        found.append(Limit("max_time", elapsed_ms / definition.loop.max_time, f"{words.took(left)} left"))
    if definition.budget.tokens:
        of = f"{words.count(run.tokens)} of {words.count(definition.budget.tokens)} tokens"
        found.append(Limit("budget_tokens", run.tokens / definition.budget.tokens, of))
    cost = Decimal(definition.budget.cost_usd)
    if cost:
        found.append(Limit("budget_cost", float(run.cost / cost), f"{words.money(run.cost)} of {words.money(cost)}"))
    if breaker:
        rejected = _in_a_row(run, frozenset({"rolled_back", "held", "rollback_failed"}))
        idle = _in_a_row(run, frozenset({"no_change"}))
        for name, row, most in (
            ("breaker_rejections", rejected, definition.breaker.rejections),
            ("breaker_no_change", idle, definition.breaker.no_change),
        ):
            if most:
                found.append(Limit(name, row / most, f"{row} of {most} in a row"))
    return sorted(found, key=lambda limit: -limit.used)


def expected_ms(run: RunView) -> int:
    """Mean duration of the finished iterations; 0 when there is none yet."""
    finished = [iteration.duration_ms for iteration in run.iterations if iteration.ended_at]
    return sum(finished) // len(finished) if finished else 0
