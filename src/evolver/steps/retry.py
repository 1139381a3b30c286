"""Trying again what fails by itself: rate limits, overload, a lost network, a CLI that died before it did anything.

None of these is an attempt: neither the iteration count nor a breaker sees them, only the last one is reported when
patience (`max_wait`) is over. Waits grow with jitter and obey what the other side asked for. Each call has its own wall
clock, since some CLIs wait for hours by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from evolver.interrupts import Interrupts
from evolver.model import AgentReport, Codegen, StepContext, StepResult
from evolver.steps.said import is_final

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0  # between two tries when nobody said how long
CRASH_TRIES = 3  # a CLI that dies at once every time is broken, not unlucky

Touched = Callable[[], bool]  # whether the worktree has changed since it was made


@dataclass(frozen=True)
class RetryingCodegen:
    """Agents tried in turn: while the first is limited the next takes over. `max_wait_ms` bounds all waits together."""

    agents: tuple[Codegen, ...]
    max_wait_ms: int
    interrupts: Interrupts
    watch: Callable[[StepContext], Touched] | None = None  # None: a crash is never taken for one before any edit
    first_wait_s: float = FIRST_WAIT_S
    deadline: float | None = None  # of the whole run, by the monotonic clock: no wait reaches beyond it

    def generate(self, context: StepContext) -> StepResult:
        import tenacity

        tally = _Tally(self.watch(context) if self.watch is not None else None)
        longest = max(self.first_wait_s, LONGEST_WAIT_S)
        # Jitter, so that many who were turned away at once do not come back at once.
        jittered = tenacity.wait_exponential(multiplier=self.first_wait_s, max=longest) + tenacity.wait_random(
            0, self.first_wait_s
        )

        def wait(state: tenacity.RetryCallState) -> float:
            asked = tally.retry_after_ms
            # A little later than asked for: everybody else was told the same moment.
            return jittered(state) if asked is None else asked / 1000 + min(jittered(state), 1 + asked / 10_000)

        def over(state: tenacity.RetryCallState) -> bool:
            if tally.crashes >= CRASH_TRIES or self.interrupts:
                return True
            if self.deadline is not None and time.monotonic() + state.upcoming_sleep > self.deadline:
                tally.gave_up = f"; waiting {round(state.upcoming_sleep)} s would exceed the run's max_time"
                return True
            if (state.idle_for + state.upcoming_sleep) * 1000 + tally.hung_ms <= self.max_wait_ms:
                return False
            tally.gave_up = f"; waiting {round(state.upcoming_sleep)} s would exceed max_wait"
            return True

        def announce(state: tenacity.RetryCallState) -> None:
            if context.on_output is not None and tally.last is not None and tally.last.report is not None:
                words = f"evolver: {tally.last.report.reason}; trying again in {round(state.upcoming_sleep)} s\n"
                context.on_output(words.encode())

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(tally.again),
            wait=wait,
            stop=over,
            sleep=lambda seconds: self._sleep(seconds, tally),
            before_sleep=announce,
            retry_error_callback=lambda state: tally.last,
        )
        retrying(self._round, context, tally)
        return tally.result(interrupted=bool(self.interrupts))

    def _sleep(self, seconds: float, tally: _Tally) -> None:
        begun = time.monotonic()
        self.interrupts.wait(seconds)
        tally.waited_ms += round((time.monotonic() - begun) * 1000)

    def _round(self, context: StepContext, tally: _Tally) -> StepResult:
        """Every agent once, until one has an answer of its own: it is not limited, not missing, and did not just crash."""
        tally.retry_after_ms = None
        best, rank = tally.last, -1
        for agent in self.agents:
            if best is not None and self.interrupts:
                break
            result = agent.generate(context)
            tally.add(result)
            # Of those that had none, the one counts for which waiting helps most.
            worth = tally.worth(result)
            if worth > rank:
                best, rank = result, worth
            if worth == _ANSWERED:
                break
        assert best is not None
        tally.last = best
        return best


_ANSWERED = 3


def _limited(result: StepResult) -> bool:
    return result.report is not None and result.report.transient


@dataclass
class _Tally:
    """What the calls of one attempt came to, together."""

    touched: Touched | None = None
    last: StepResult | None = None
    calls: int = 0
    crashes: int = 0
    waited_ms: int = 0
    hung_ms: int = 0  # in calls that waited by themselves until their own clock ended them
    duration_ms: int = 0
    killed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    retry_after_ms: int | None = None  # the shortest that any agent of this round asked for
    gave_up: str = ""

    def add(self, result: StepResult) -> None:
        self.last = result
        self.calls += 1
        self.duration_ms += result.duration_ms
        self.killed += result.killed
        if result.timed_out and _limited(result):
            self.hung_ms += result.duration_ms
        report = result.report
        if report is None:
            return
        self.input_tokens += report.input_tokens or 0
        self.output_tokens += report.output_tokens or 0
        self.cost += Decimal(report.cost_usd or 0)
        if report.transient and report.retry_after_ms is not None:
            known = self.retry_after_ms
            self.retry_after_ms = report.retry_after_ms if known is None else min(known, report.retry_after_ms)

    def again(self, result: StepResult) -> bool:
        if result.interrupted or result.survivors or result.error:
            return False
        if _limited(result):
            return True
        if not self.crashed(result):
            return False
        self.crashes += 1
        return True

    def worth(self, result: StepResult) -> int:
        """How much is to be had of an agent that ended like this by calling it again."""
        if result.survivors or result.interrupted:
            return _ANSWERED
        if result.error:
            return 0
        return 2 if _limited(result) else 1 if self.crashed(result) else _ANSWERED

    def crashed(self, result: StepResult) -> bool:
        """Before it changed anything."""
        return _crashed(result) and self.touched is not None and not self.touched()

    def result(self, *, interrupted: bool) -> StepResult:
        """The last call's result with the sums of all."""
        assert self.last is not None
        result = msgspec.structs.replace(
            self.last,
            duration_ms=self.duration_ms + self.waited_ms,
            killed=self.killed,
            interrupted=self.last.interrupted or (interrupted and not self.last.ok),
        )
        if self.last.report is None:
            return result
        report = msgspec.structs.replace(
            self.last.report,
            reason=self.last.report.reason + self.gave_up,
            input_tokens=self.input_tokens if _known(self.last.report.input_tokens, self.input_tokens) else None,
            output_tokens=self.output_tokens if _known(self.last.report.output_tokens, self.output_tokens) else None,
            cost_usd=format(self.cost, "f") if self.last.report.cost_usd is not None or self.cost else None,
            calls=self.calls,
            waited_ms=self.waited_ms,
        )
        return msgspec.structs.replace(result, report=report)


def _known(last: int | None, total: int) -> bool:
    return last is not None or total > 0


def _crashed(result: StepResult) -> bool:
    """Died without a word of its own: by a signal that was not ours, or with an error before the first turn."""
    if result.timed_out or result.ok:
        return False
    report: AgentReport | None = result.report
    if report is None or report.ok or report.output_tokens or report.turns:
        return result.signal is not None
    return result.signal is not None or not is_final(report.reason)
