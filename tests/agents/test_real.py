"""The presets of Claude Code and Codex, with the real CLIs, against a stub model in a loopback-only namespace."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.layout import locate
from evolver.model import StepContext
from evolver.sandbox import Need, Sandbox
from evolver.steps.agents import AgentCodegen, discover
from evolver.steps.command import Wrap
from evolver.steps.presets import PRESETS
from evolver.steps.retry import RetryingCodegen
from evolver.steps.runner import StepRunner

from .conftest import StartStub, Stub, agent_environment

pytestmark = pytest.mark.agents

LIMITED: list[dict[str, object]] = [{"status": 429, "retry_after": "1"}] * 2  # each CLI tries once more by itself
ARGS = {"claude": ("--allowedTools", "Bash"), "codex": ()}


def agent(name: str, stub: Stub, runner: StepRunner, timeout_ms: int = 60_000) -> AgentCodegen:
    wrap: Wrap = lambda argv, context: stub.inside(argv)  # noqa: E731
    return AgentCodegen(runner, PRESETS[name], timeout_ms, 2_000, ARGS[name], wrap=wrap)


@pytest.fixture
def real_runner(hermetic: Path, real_agents: dict[str, Path]) -> StepRunner:
    env = agent_environment(hermetic, real_agents, "http://127.0.0.1:8111")
    return StepRunner(Interrupts(), base=env)


@pytest.fixture
def tree(context: StepContext) -> Path:
    import subprocess

    for command in ("git init -q", "git commit -q --allow-empty -m one"):
        subprocess.run(command.split(), cwd=context.cwd, check=True)
    (context.cwd / "a.txt").write_text("before\n")
    return context.cwd


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_edit_is_made_and_reported(
    name: str, context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner
) -> None:
    writer = "echo after > a.txt; (setsid sh -c 'while :; do date >> a.txt; sleep 0.05; done' >/dev/null 2>&1 &)"
    stub = start_stub({"1": [{"sh": writer}, {"text": "It is DONE."}]})
    result = agent(name, stub, real_runner).generate(context)
    assert result.ok, result.tail
    report = result.report
    assert report is not None and report.ok, report
    assert (report.input_tokens, report.output_tokens) == (200, 40)
    assert report.last_message == "It is DONE." and report.session_id and report.agent == name
    assert (report.cost_usd is not None) == (name == "claude")
    assert (tree / "a.txt").read_text().startswith("after\n")
    # The writer: Claude leaves it behind, Codex's own sandbox may take it along.
    assert result.survivors == () and (result.killed >= 1 or name == "codex")
    size = (tree / "a.txt").stat().st_size
    time.sleep(0.3)
    assert (tree / "a.txt").stat().st_size == size
    assert {str(r["path"]) for r in stub.requests()} == {"/v1/messages" if name == "claude" else "/v1/responses"}


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_rate_limit_is_waited_out(
    name: str, context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner
) -> None:
    stub = start_stub({"1": [*LIMITED, {"text": "fine"}]})
    waiting = RetryingCodegen((agent(name, stub, real_runner),), 60_000, real_runner.interrupts, first_wait_s=0.1)
    result = waiting.generate(context)
    assert result.report is not None and result.report.ok, result
    assert result.report.calls == 2 and result.report.waited_ms >= 100


@pytest.mark.parametrize("name", ["claude", "codex"])
@pytest.mark.parametrize("status", [429, 500])
def test_an_api_error_is_transient(
    name: str, status: int, context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner
) -> None:
    stub = start_stub({"1": [{"status": status}] * 9})
    result = agent(name, stub, real_runner).generate(context)
    assert not result.ok
    assert result.report is not None and not result.report.ok and result.report.transient, result.report


def test_a_wrong_key_is_not_transient(context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner) -> None:
    stub = start_stub({"1": [{"status": 401, "message": "invalid x-api-key"}] * 9})
    result = agent("claude", stub, real_runner).generate(context)
    assert result.report is not None and not result.report.ok and not result.report.transient, result.report


def test_a_cli_that_waits_for_an_hour_is_stopped_by_the_clock(
    context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner
) -> None:
    """Codex obeys `retry-after: 3600`; the clock is what ends it, and it still counts as a rate limit."""
    stub = start_stub({"1": [{"status": 429, "retry_after": "3600"}] * 9})
    result = agent("codex", stub, real_runner, timeout_ms=6_000).generate(context)
    assert result.timed_out
    assert result.report is not None and result.report.transient, result.report


def test_the_next_agent_takes_over(context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner) -> None:
    stub = start_stub({"1": [*LIMITED, {"sh": "echo codex > a.txt"}, {"text": "mine"}]})
    both = (agent("claude", stub, real_runner), agent("codex", stub, real_runner))
    result = RetryingCodegen(both, 0, real_runner.interrupts).generate(context)
    assert result.report is not None and result.report.ok and result.report.agent == "codex", result.report
    assert result.report.calls == 2 and result.report.waited_ms == 0
    assert (tree / "a.txt").read_text() == "codex\n"


def test_a_refused_edit_is_named(context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner) -> None:
    """Claude exits 0 after a refusal."""
    outside = context.cwd.parent / "outside.txt"
    stub = start_stub({"1": [{"write": [str(outside), "x"]}, {"text": "I tried."}]})
    result = agent("claude", stub, real_runner).generate(context)
    assert result.exit_code == 0 and not outside.exists()
    assert result.report is not None and "1 permission(s) denied" in result.report.reason


def test_an_interrupt_ends_a_real_agent_and_what_it_started(
    context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner
) -> None:
    stub = start_stub({"1": [{"sh": "while :; do date >> a.txt; sleep 0.05; done"}]})

    def stop(chunk: bytes) -> None:
        if (tree / "a.txt").read_text() != "before\n":
            return
        import threading

        threading.Timer(2.5, real_runner.interrupts.trigger, (15,)).start()

    result = agent("claude", stub, real_runner).generate(replace(context, on_output=stop))
    assert result.interrupted and result.survivors == ()
    size = (tree / "a.txt").stat().st_size
    assert size > 10
    time.sleep(0.3)
    assert (tree / "a.txt").stat().st_size == size


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_it_works_in_the_sandbox(
    name: str, context: StepContext, tree: Path, start_stub: StartStub, real_runner: StepRunner, hermetic: Path
) -> None:
    """With its own folder in HOME writable, and the rest of HOME not."""
    stub = start_stub({"1": [{"sh": "echo after > a.txt; echo x > $HOME/planted; true"}, {"text": "DONE"}]})
    layout = locate(tree)
    layout.state.mkdir()
    (hermetic / ".claude").mkdir()
    sandbox = Sandbox(shutil.which("bwrap") or "", layout, hermetic, real_runner.base["PATH"])
    need = Need(whole=True, home=PRESETS[name].home)
    wrap: Wrap = lambda argv, context: stub.inside(sandbox.around(need, argv, context))  # noqa: E731
    args = (*PRESETS[name].sandbox_args, *ARGS[name])
    result = AgentCodegen(real_runner, PRESETS[name], 30_000, 2_000, args, wrap=wrap).generate(context)
    assert result.report is not None and result.report.ok, result.tail
    assert (tree / "a.txt").read_text() == "after\n" and not (hermetic / "planted").exists()


def test_doctor_finds_them(real_agents: dict[str, Path]) -> None:
    path = f"{real_agents['claude'].parent}:{real_agents['codex'].parent}"
    found = {item.name: item for item in discover(tuple(PRESETS.values()), path)}
    assert (found["claude"].version, found["claude"].known) == ("2.1.197", True)
    assert (found["codex"].version, found["codex"].known) == ("0.171.0", True)
    assert found["aider"].path is None and "pip install" in found["aider"].install
