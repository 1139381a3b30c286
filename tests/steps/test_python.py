"""Python callables as steps: in a child, found beside the loop file."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.model import AgentReport, Judgement, StepContext, StepResult, Verdict
from evolver.steps.judge import judge
from evolver.steps.python import InProcess
from evolver.steps.registry import build_codegen, build_validators
from evolver.steps.runner import StepRunner

from .conftest import Load

MODULE = """
import sys
from evolver.model import AgentReport, Judgement, StepResult, Verdict

def write(context):
    (context.cwd / "made").write_text(f"{context.iteration} {context.prompt}")

def loud(context): print("said this"); return True
def no(context): return False
def code(context): return 125
def boom(context): raise RuntimeError("went wrong")
def slow(context):
    import time; time.sleep(60)
def verdict(context): return Verdict(Judgement.FAIL, "the tests disagree")
def report(context): return AgentReport(ok=False, reason="out of ideas", input_tokens=12)
def result(context): return StepResult(name="x", exit_code=4, tail="four")
def strange(context): return object()

class Both:
    def generate(self, context): return StepResult(name="x", exit_code=0, report=AgentReport(ok=True, turns=2))
    def validate(self, context): return context.cwd.exists()

both = Both()
"""


@pytest.fixture(autouse=True)
def module(context: StepContext, tmp_path: Path) -> None:
    (tmp_path / "loop" / "mine.py").write_text(MODULE)


def generate(load: Load, runner: StepRunner, context: StepContext, name: str, extra: str = "") -> StepResult:
    return build_codegen(load(f'[codegen]\ncallable = "mine:{name}"\n{extra}'), runner).generate(context)


def test_a_function_works_in_the_worktree(load: Load, runner: StepRunner, context: StepContext) -> None:
    result = generate(load, runner, replace(context, prompt="go"), "write")
    assert result.ok, result.tail
    assert (context.cwd / "made").read_text() == "3 go"
    assert not list((context.cwd.parent / "loop").glob("__pycache__"))


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("loud", 0, "said this"),
        ("no", 1, ""),
        ("code", 125, ""),
        ("boom", 1, "RuntimeError: went wrong"),
        ("verdict", 1, "the tests disagree"),
        ("result", 4, "four"),
        ("strange", 1, "TypeError"),
        ("missing", 1, "AttributeError"),
        ("Both", 0, ""),
        ("both.generate", 0, ""),
    ],
)
def test_what_is_returned_is_the_ending(
    load: Load, runner: StepRunner, context: StepContext, name: str, code: int, words: str
) -> None:
    result = generate(load, runner, context, name)
    assert result.exit_code == code, result.tail
    assert words in result.tail


def test_reports_travel(load: Load, runner: StepRunner, context: StepContext) -> None:
    assert generate(load, runner, context, "report").report == AgentReport(ok=False, reason="out of ideas", input_tokens=12)
    assert generate(load, runner, context, "Both").report == AgentReport(ok=True, turns=2)
    assert generate(load, runner, context, "write").report is None  # none is left over from the step before


def test_the_timeout_holds(load: Load, runner: StepRunner, context: StepContext) -> None:
    result = generate(load, runner, context, "slow", 'timeout = "1s"\ngrace = "100ms"')
    assert result.timed_out


def test_validators(load: Load, runner: StepRunner, context: StepContext) -> None:
    loaded = load("""
[[validator]]
name = "a"
callable = "mine:Both"
[[validator]]
name = "b"
callable = "mine:code"
retries = 1
""")
    first, second = build_validators(loaded, runner)
    assert judge(first.validate(context)).passed
    assert judge(second.validate(context)).judgement is Judgement.INCONCLUSIVE


def test_the_attempt_cannot_stand_in_for_the_judge(load: Load, runner: StepRunner, context: StepContext) -> None:
    """A module of the worktree with the name of one of ours, or of the loop's, is not imported."""
    for name in ("mine.py", "msgspec.py", "json.py", "evolver.py"):
        (context.cwd / name).write_text("open('planted', 'w').close()")
    assert not generate(load, runner, context, "no").ok
    assert not (context.cwd / "planted").exists()


def test_odd_folders(load: Load, runner: StepRunner, context: StepContext, tmp_path: Path) -> None:
    odd = tmp_path / "od\udcff \n'd"
    odd.mkdir()
    result = generate(load, runner, replace(context, cwd=odd), "write")
    assert result.ok, result.tail
    assert (odd / "made").exists()


def test_in_process_callables_of_the_api(context: StepContext) -> None:
    assert InProcess("v", lambda c: c.iteration == 3).validate(context).ok
    assert (
        judge(InProcess("v", lambda c: Verdict(Judgement.INCONCLUSIVE, "hm")).validate(context)).judgement
        is Judgement.INCONCLUSIVE
    )
    assert InProcess("codegen", lambda c: AgentReport(ok=True, turns=1)).generate(context).report == AgentReport(
        ok=True, turns=1
    )
    given = StepResult(name="x", exit_code=7)
    assert InProcess("codegen", lambda c: given).generate(context) == given


def test_what_an_in_process_callable_started_dies_with_it(context: StepContext) -> None:
    """A child, one that was only forked, and a daemon with an empty environment."""

    children: list[subprocess.Popen[bytes]] = []
    forked: list[int] = []

    def leave(c: StepContext) -> None:
        children.append(subprocess.Popen(["sh", "-c", "while :; do echo x >> written; sleep 0.02; done"], cwd=c.cwd))
        if (pid := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        forked.append(pid)
        subprocess.run(["sh", "-c", "env -i setsid sleep 60 >/dev/null 2>&1 &"], cwd=c.cwd, check=True)
        while not (c.cwd / "written").exists():
            time.sleep(0.01)

    with subprocess.Popen(["sleep", "60"]) as before:
        result = InProcess("codegen", leave).generate(context)
        assert before.poll() is None
        before.kill()
    assert children[0].wait(5) == -15
    assert os.waitpid(forked[0], 0)[1] == 15
    assert result.ok and result.killed >= 3 and result.survivors == ()
    size = (context.cwd / "written").stat().st_size
    time.sleep(0.2)
    assert (context.cwd / "written").stat().st_size == size


def test_a_callable_that_raises_leaves_nothing_running(context: StepContext) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def fail(c: StepContext) -> None:
        children.append(subprocess.Popen(["sleep", "60"]))
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        InProcess("codegen", fail).generate(context)
    assert children[0].wait(5) == -15
