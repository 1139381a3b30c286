"""When a run ends: small callables over one frozen state, tried in order. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from evolver.definition import BreakerSection, BudgetSection, Loop
from evolver.model import Judgement, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class IterationResult:
    """What one iteration contributes to the run."""

    number: int
    outcome: Outcome
    verdict: Verdict | None = None
    commit: str | None = None
    score: Decimal | None = None
    failure_hash: str = ""  # of the normalised output of the failing validator
    patch_id: str = ""
    tokens: int = 0
    cost: Decimal = Decimal(0)
    duration_ms: int = 0
    promised: bool = False  # the agent's completion promise matched and the validators agreed
    interrupted: int | None = None
    needs_person: bool = False
    paths: int = 0
    unavailable: bool = False  # every agent was turned away for as long as anybody wanted to wait: that was no attempt
    passed: frozenset[str] = frozenset()  # validators that passed an accepted attempt; those that `when` left out did not


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ends: the condition's name, and the words for a person."""

    name: str
    detail: str = ""
    alert: bool = False
    goal: bool = False


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything the stop conditions look at. Lives in the run, never across runs: a crash cannot break the next one."""

    started_ms: int = 0
    now_ms: int = 0
    iterations: int = 0
    accepted: int = 0
    no_change: int = 0
    rolled_back: int = 0
    held: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    cost_today_before: Decimal = Decimal(0)  # of earlier runs of this repository, today; less what this run spent before today
    day: str = ""  # the one that counts as today (UTC)
    best: Decimal | None = None
    rejections_in_row: int = 0
    no_change_in_row: int = 0
    inconclusive_in_row: int = 0
    same_in_row: int = 0
    last_failure: tuple[str, str] = ("", "")  # failure hash, patch id
    last: IterationResult | None = None
    signal: int | None = None
    pause: bool = False
    stop_asked: bool = False
    baseline_red: bool | None = None  # what the validators said before the first attempt; None: not asked
    reds: frozenset[str] | None = None  # the validators that did not pass on what the attempts start from; None: not known

    def after(self, result: IterationResult, *, better: Callable[[Decimal, Decimal], bool] | None = None) -> RunState:
        """The state once `result` is in."""
        accepted, unchanged = result.outcome is Outcome.ACCEPTED, result.outcome is Outcome.NO_CHANGE
        inconclusive = result.verdict is not None and result.verdict.judgement is Judgement.INCONCLUSIVE
        rejected = not accepted and not unchanged and not result.unavailable
        key = (result.failure_hash, result.patch_id)
        same = rejected and bool(result.failure_hash) and key == self.last_failure
        reds = self.reds - result.passed if accepted and self.reds is not None else self.reds
        best = self.best
        if accepted and result.score is not None and (best is None or better is None or better(result.score, best)):
            best = result.score
        return replace(
            self,
            iterations=self.iterations + 1,
            accepted=self.accepted + accepted,
            no_change=self.no_change + unchanged,
            rolled_back=self.rolled_back + (result.outcome is Outcome.ROLLED_BACK),
            held=self.held + (result.outcome is Outcome.HELD),
            tokens=self.tokens + result.tokens,
            cost=self.cost + result.cost,
            best=best,
            # A no-change is neither success nor failure: it neither counts as a rejection nor ends a row of them.
            rejections_in_row=0 if accepted else self.rejections_in_row + (rejected and not inconclusive),
            no_change_in_row=self.no_change_in_row + 1 if unchanged else 0,
            inconclusive_in_row=0 if accepted else self.inconclusive_in_row + (rejected and inconclusive),
            same_in_row=0 if accepted else (self.same_in_row + 1 if same else 1) if rejected else self.same_in_row,
            last_failure=("", "") if accepted else key if rejected else self.last_failure,
            last=result,
            signal=result.interrupted,
            # Whatever passed an accepted attempt and fails from here on was broken by an attempt.
            baseline_red=bool(reds) if accepted and self.baseline_red is not None else self.baseline_red,
            reds=reds,
        )

    def on_day(self, day: str) -> RunState:
        """The state on that day: a new one has a budget of its own, also for a run that began on the day before."""
        if not self.day or day == self.day:
            return replace(self, day=day)
        return replace(self, day=day, cost_today_before=-self.cost)

    def spending(self, tokens: int, cost: Decimal) -> RunState:
        """The state with what a running attempt has used so far."""
        return replace(self, tokens=self.tokens + tokens, cost=self.cost + cost)


StopCondition = Callable[[RunState], Stop | None]


def interrupted(state: RunState) -> Stop | None:
    return Stop("interrupted", f"signal {state.signal}") if state.signal is not None else None


def held(state: RunState) -> Stop | None:
    if state.last is None or state.last.outcome not in (Outcome.HELD, Outcome.ROLLBACK_FAILED):
        return None
    name = "held" if state.last.outcome is Outcome.HELD else "rollback_failed"
    return Stop(name, state.last.verdict.reason if state.last.verdict else "", alert=True)


def unavailable(state: RunState) -> Stop | None:
    """No breaker: calling again at once what has just said "in two hours" would only burn the iterations of a night."""
    if state.last is None or not state.last.unavailable:
        return None
    return Stop("agent_unavailable", state.last.verdict.reason if state.last.verdict else "", alert=True)


def goal(until: str) -> StopCondition:
    """`accepted`, `promise`, `score >= X`; plain `score` means: go on, a score only ranks attempts."""
    until = until.strip()
    match = re.fullmatch(r"score\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)", until)

    def reached(state: RunState) -> Stop | None:
        if until == "accepted" and state.accepted:
            return Stop("goal", "an attempt was accepted", goal=True)
        if until == "promise" and state.last is not None and state.last.promised:
            return Stop("goal", "the completion promise was given and the validators agree", goal=True)
        if match and state.best is not None:
            limit = Decimal(match[2])
            hit = {">=": state.best >= limit, "<=": state.best <= limit, ">": state.best > limit, "<": state.best < limit}[
                match[1]
            ]
            if hit:
                return Stop("goal", f"score {state.best} {match[1]} {limit}", goal=True)
        return None

    return reached


def asked(state: RunState) -> Stop | None:
    if state.stop_asked:
        return Stop("stopped", "`evolver stop` was called")
    return Stop("paused", "`evolver pause` was called") if state.pause else None


def iterations(limit: int) -> StopCondition:
    return lambda s: Stop("max_iterations", f"{limit} iteration{'s' * (limit != 1)}") if s.iterations >= limit else None


def wall_time(limit_ms: int | None) -> StopCondition:
    def over(state: RunState) -> Stop | None:
        spent = state.now_ms - state.started_ms
        return Stop("max_time", f"{spent} of {limit_ms} ms") if limit_ms is not None and spent >= limit_ms else None

    return over


def budget(section: BudgetSection) -> StopCondition:
    cost, per_day = Decimal(section.cost_usd), Decimal(section.cost_usd_per_day)

    def over(state: RunState) -> Stop | None:
        if section.tokens and state.tokens >= section.tokens:
            return Stop("budget_tokens", f"{state.tokens} of {section.tokens} tokens")
        if cost and state.cost >= cost:
            return Stop("budget_cost", f"{state.cost} of {cost} USD")
        if per_day and state.cost_today_before + state.cost >= per_day:
            return Stop("budget_cost_per_day", f"{state.cost_today_before + state.cost} of {per_day} USD today")
        return None

    return over


def cost_left(section: BudgetSection, state: RunState, spent: Decimal) -> Decimal | None:
    """USD that an attempt may still spend, of which it has spent `spent` already; None: no budget."""
    limits = []
    if Decimal(section.cost_usd):
        limits.append(Decimal(section.cost_usd) - state.cost)
    if Decimal(section.cost_usd_per_day):
        limits.append(Decimal(section.cost_usd_per_day) - state.cost_today_before - state.cost)
    return min(limits) - spent if limits else None


def breaker(section: BreakerSection) -> StopCondition:
    """Limits in a row. A normal stop with its name, and an alert that quotes what repeats."""

    def open_(state: RunState) -> Stop | None:
        reason = state.last.verdict.reason if state.last is not None and state.last.verdict is not None else ""
        for name, count, limit in (
            ("breaker_same_failure", state.same_in_row, section.same_failure),
            ("breaker_rejections", state.rejections_in_row, section.rejections),
            ("breaker_inconclusive", state.inconclusive_in_row, section.inconclusive),
            ("breaker_no_change", state.no_change_in_row, section.no_change),
        ):
            if limit and count >= limit:
                return Stop(name, f"{count} in a row" + (f": {reason}" if reason else ""), alert=True)
        return None

    return open_


def conditions(loop: Loop, budgets: BudgetSection, breakers: BreakerSection | None) -> tuple[StopCondition, ...]:
    """The conditions of a run, most pressing first. `breakers` None: `--no-breaker`."""
    return (
        held,
        interrupted,
        goal(loop.until),
        asked,
        unavailable,
        iterations(loop.max_iters),
        wall_time(loop.max_time),
        budget(budgets),
        *((breaker(breakers),) if breakers is not None else ()),
    )


def first(found: Sequence[StopCondition], state: RunState) -> Stop | None:
    """The first condition that holds."""
    return next((stop for condition in found if (stop := condition(state)) is not None), None)
