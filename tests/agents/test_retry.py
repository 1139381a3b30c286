"""Transient failures: waited out, taken over, given up, interrupted; never counted as attempts."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import pytest

from evolver.interrupts import Interrupts
from evolver.model import StepContext
from evolver.steps.agents import AgentCodegen
from evolver.steps.presets import Preset
from evolver.steps.retry import RetryingCodegen
from evolver.steps.runner import StepRunner
from evolver.steps.watch import touched_since

from .conftest import Scripted

LIMIT = '{"type":"turn.failed","error":{"message":"429 Too Many Requests%s"}}'
GOOD = '{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":1}}'


def limited_until(count: int, after: str = "") -> str:
    """A script that is rate limited `count` times, then works. Every call leaves a line in `calls`."""
    return f"echo x >>../calls; if [ $(wc -l <../calls) -le {count} ]; then echo '{LIMIT % after}'; exit 1; fi; echo '{GOOD}'"


def make(
    runner: StepRunner, *presets: Preset, max_wait_ms: int = 60_000, first: float = 0.05, watched: bool = False
) -> RetryingCodegen:
    agents = tuple(AgentCodegen(runner, preset, 10_000, 500) for preset in presets)
    watch = (lambda c: touched_since(c.cwd, c.cwd / ".git")) if watched else None
    return RetryingCodegen(agents, max_wait_ms, runner.interrupts, watch, first_wait_s=first)


def calls(context: StepContext) -> int:
    return len((context.cwd.parent / "calls").read_text().splitlines())


def test_limits_are_waited_out_and_the_sums_reported(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    heard: list[bytes] = []
    agent = make(runner, scripted(limited_until(3), parser="codex"))
    result = agent.generate(replace(context, on_output=heard.append))
    assert result.ok and result.report is not None and result.report.ok
    assert result.report.calls == calls(context) == 4
    assert result.report.waited_ms > 100 and result.duration_ms >= result.report.waited_ms
    assert b"".join(heard).count(b"trying again in") == 3  # a sign of life


def test_what_the_other_side_asked_for_is_obeyed(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    begun = time.monotonic()
    result = make(runner, scripted(limited_until(1, ", retry-after: 1"), parser="codex")).generate(context)
    assert result.ok and 1.0 <= time.monotonic() - begun < 4


def test_an_hour_is_not_waited_when_max_wait_is_shorter(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    """Issue 5: retry-after of an hour against `max_wait`."""
    begun = time.monotonic()
    result = make(runner, scripted(limited_until(9, ", retry-after: 3600"), parser="codex"), max_wait_ms=60_000).generate(
        context
    )
    assert time.monotonic() - begun < 3 and calls(context) == 1
    assert not result.ok and result.report is not None and result.report.transient
    assert "max_wait" in result.report.reason and "429" in result.report.reason


def test_all_waits_together_stay_below_max_wait(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    begun = time.monotonic()
    result = make(runner, scripted(limited_until(999), parser="codex"), max_wait_ms=700).generate(context)
    assert time.monotonic() - begun < 4
    assert result.report is not None and result.report.transient and 0 < result.report.waited_ms <= 750


def test_no_waiting_at_all(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    make(runner, scripted(limited_until(9), parser="codex"), max_wait_ms=0).generate(context)
    assert calls(context) == 1


def test_the_fallback_takes_over_at_once(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    first = scripted(limited_until(9, ", retry-after: 3600"), parser="codex", name="first")
    second = scripted(f"echo '{GOOD}'", parser="codex", name="second")
    begun = time.monotonic()
    result = make(runner, first, second).generate(context)
    assert time.monotonic() - begun < 3
    assert result.ok and result.report is not None and result.report.agent == "second" and result.report.calls == 2


def test_a_failure_of_its_own_does_not_go_to_the_fallback(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    first = scripted('echo \'{"type":"turn.failed","error":{"message":"cannot do it"}}\'; exit 1', parser="codex", name="first")
    second = scripted(f"touch ../second; echo '{GOOD}'", parser="codex", name="second")
    result = make(runner, first, second).generate(context)
    assert not result.ok and not (context.cwd.parent / "second").exists()


def test_when_all_are_limited_the_shortest_wait_counts(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    first = scripted(f"echo '{LIMIT % ', retry-after: 3600'}'; exit 1", parser="codex", name="first")
    second = scripted(limited_until(1, ", retry-after: 1"), parser="codex", name="second")
    result = make(runner, first, second).generate(context)
    assert result.ok and result.report is not None and result.report.calls == 4


def test_an_interrupt_ends_the_wait(context: StepContext, scripted: Scripted) -> None:
    interrupts = Interrupts()
    threading.Timer(0.5, interrupts.trigger, (signal.SIGTERM,)).start()
    begun = time.monotonic()
    preset = scripted(limited_until(9, ", retry-after: 50"), parser="codex")
    result = make(StepRunner(interrupts), preset).generate(context)
    assert result.interrupted and time.monotonic() - begun < 3 and calls(context) == 1


def test_a_crash_before_any_edit_is_tried_again(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    script = f"echo x >>../calls; if [ $(wc -l <../calls) -le 1 ]; then kill -SEGV $$; fi; echo '{GOOD}'"
    result = make(runner, scripted(script, parser="codex"), watched=True).generate(context)
    assert result.ok and calls(context) == 2


def test_a_crash_after_an_edit_is_an_attempt(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    script = "echo x >>../calls; echo half > file; kill -SEGV $$"
    result = make(runner, scripted(script, parser="codex"), watched=True).generate(context)
    assert result.signal == 11 and calls(context) == 1


def test_an_agent_that_always_crashes_is_broken(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    result = make(runner, scripted("echo x >>../calls; exit 1", parser="codex"), watched=True).generate(context)
    assert not result.ok and calls(context) == 3


@pytest.mark.parametrize("words", ["Invalid API key", "unexpected argument --x", "You are not logged in"])
def test_what_waiting_cannot_help_is_not_tried_again(
    context: StepContext, runner: StepRunner, scripted: Scripted, words: str
) -> None:
    result = make(runner, scripted(f"echo x >>../calls; echo '{words}'; exit 1", parser="codex"), watched=True).generate(
        context
    )
    assert not result.ok and calls(context) == 1


def test_a_missing_program_is_not_tried_again(context: StepContext, runner: StepRunner) -> None:
    begun = time.monotonic()
    result = make(runner, Preset(name="gone", argv=("/no/such/agent",)), watched=True, first=5).generate(context)
    assert result.error and result.report is not None and "could not start" in result.report.reason
    assert time.monotonic() - begun < 2


def test_a_timeout_is_an_attempt(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    agent = AgentCodegen(runner, scripted("echo x >>../calls; exec sleep 60", parser="codex"), 300, 200)
    result = RetryingCodegen((agent,), 60_000, runner.interrupts).generate(context)
    assert result.timed_out and result.report is not None and "timed out" in result.report.reason and calls(context) == 1


def test_no_wait_reaches_beyond_the_run_s_own_end(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    agent = replace(
        make(runner, scripted(limited_until(9, ", retry-after: 60"), parser="codex"), max_wait_ms=3_600_000),
        deadline=time.monotonic() + 30,
    )
    begun = time.monotonic()
    result = agent.generate(context)
    assert time.monotonic() - begun < 5 and calls(context) == 1
    assert result.report is not None and "max_time" in result.report.reason


def test_a_crash_goes_to_the_fallback_at_once(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    first = scripted("echo x >>../calls; kill -SEGV $$", parser="codex", name="first")
    second = scripted(f"echo '{GOOD}'", parser="codex", name="second")
    begun = time.monotonic()
    result = make(runner, first, second, watched=True, first=5).generate(context)
    assert result.ok and result.report is not None and result.report.agent == "second"
    assert calls(context) == 1 and time.monotonic() - begun < 3


def test_a_missing_agent_goes_to_the_fallback(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    second = scripted(f"echo '{GOOD}'", parser="codex", name="second")
    result = make(runner, Preset(name="gone", argv=("/no/such/agent",)), second).generate(context)
    assert result.ok and result.report is not None and result.report.agent == "second"


def test_a_missing_fallback_makes_no_failure_of_a_limit(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    first = scripted(limited_until(2), parser="codex", name="first")
    result = make(runner, first, Preset(name="gone", argv=("/no/such/agent",))).generate(context)
    assert result.ok and calls(context) == 3


def test_calls_that_wait_by_themselves_count_as_waits(context: StepContext, scripted: Scripted) -> None:
    """Some CLIs obey a retry-after of an hour: with nothing but the clock to end each call, `max_wait` would bound nothing."""
    runner = StepRunner(Interrupts())
    agent = AgentCodegen(runner, scripted("echo x >>../calls; echo '429'; exec sleep 60", parser="codex"), 500, 200)
    begun = time.monotonic()
    result = RetryingCodegen((agent,), 1_400, runner.interrupts, first_wait_s=0.01).generate(context)
    assert result.report is not None and result.report.transient and "max_wait" in result.report.reason
    assert calls(context) == 3 and time.monotonic() - begun < 6
