"""Stop conditions over the run's state."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from evolver.definition import BreakerSection, BudgetSection, Loop
from evolver.durations import Duration
from evolver.model import Judgement, Outcome, Verdict
from evolver.stop import IterationResult, RunState, conditions, first

FAIL = Verdict(Judgement.FAIL, "test: exit 1", "test")
UNSURE = Verdict(Judgement.INCONCLUSIVE, "test: exit 125", "test")


def rejected(patch: str = "p", failure: str = "f", verdict: Verdict = FAIL) -> IterationResult:
    return IterationResult(1, Outcome.ROLLED_BACK, verdict, failure_hash=failure, patch_id=patch)


def run(
    results: list[IterationResult],
    loop: Loop | None = None,
    budget: BudgetSection | None = None,
    breaker: BreakerSection | None = None,
) -> str:
    """The name of what stops after these results; empty: nothing does."""
    state = RunState()
    for result in results:
        state = state.after(result)
    found = first(conditions(loop or Loop(max_iters=1000), budget or BudgetSection(), breaker or BreakerSection()), state)
    return found.name if found is not None else ""


def different(count: int) -> list[IterationResult]:
    return [rejected(patch=str(n)) for n in range(count)]


ACCEPTED = IterationResult(1, Outcome.ACCEPTED)
UNCHANGED = IterationResult(1, Outcome.NO_CHANGE)


@pytest.mark.parametrize(
    ("results", "name"),
    [
        (different(9), ""),
        (different(10), "breaker_rejections"),
        ([*different(9), ACCEPTED, *different(9)], ""),
        ([*different(5), UNCHANGED, *different(5)], "breaker_rejections"),
        ([rejected()] * 2, ""),
        ([rejected()] * 3, "breaker_same_failure"),
        ([rejected(), rejected(patch="q"), rejected()], ""),
        ([rejected(failure="a"), rejected(failure="b"), rejected(failure="c")], ""),
        ([UNCHANGED] * 2, ""),
        ([UNCHANGED] * 3, "breaker_no_change"),
        ([UNCHANGED, UNCHANGED, ACCEPTED, UNCHANGED], ""),
        ([rejected(patch=str(n), verdict=UNSURE) for n in range(4)], ""),
        ([rejected(patch=str(n), verdict=UNSURE) for n in range(5)], "breaker_inconclusive"),
    ],
)
def test_breaker_limits(results: list[IterationResult], name: str) -> None:
    assert run(results) == name


def test_zero_switches_a_breaker_off() -> None:
    off = BreakerSection(rejections=0, same_failure=0, no_change=0, inconclusive=0)
    assert run([rejected()] * 50 + [UNCHANGED] * 50, breaker=off) == ""


def test_budgets() -> None:
    spent = IterationResult(1, Outcome.ACCEPTED, tokens=600, cost=Decimal("0.30"))
    assert run([spent], budget=BudgetSection(tokens=1000)) == ""
    assert run([spent, spent], budget=BudgetSection(tokens=1000)) == "budget_tokens"
    assert run([spent], budget=BudgetSection(cost_usd="0.31")) == ""
    assert run([spent], budget=BudgetSection(cost_usd="0.3")) == "budget_cost"
    state = replace(RunState(cost_today_before=Decimal("0.9")), cost=Decimal("0.1"))
    found = first(conditions(Loop(), BudgetSection(cost_usd_per_day="1"), BreakerSection()), state)
    assert found is not None
    assert found.name == "budget_cost_per_day"


def test_iterations_and_wall_time() -> None:
    assert run([ACCEPTED] * 3, Loop(max_iters=3)) == "max_iterations"
    late = RunState(started_ms=0, now_ms=61_000)
    found = first(conditions(Loop(max_time=Duration.parse("1m")), BudgetSection(), None), late)
    assert found is not None
    assert found.name == "max_time"


def test_goals() -> None:
    scored = IterationResult(1, Outcome.ACCEPTED, score=Decimal("7"))
    assert run([ACCEPTED], Loop(until="accepted")) == "goal"
    assert run([scored], Loop(until="score >= 7")) == "goal"
    assert run([scored], Loop(until="score > 7")) == ""
    assert run([IterationResult(1, Outcome.NO_CHANGE, promised=True)], Loop(until="promise")) == "goal"
    assert run([UNCHANGED], Loop(until="promise")) == ""


def test_held_outranks_everything() -> None:
    assert run([IterationResult(1, Outcome.HELD, FAIL)], Loop(max_iters=1)) == "held"
    assert run([IterationResult(1, Outcome.ROLLBACK_FAILED, FAIL)], Loop(max_iters=1)) == "rollback_failed"
