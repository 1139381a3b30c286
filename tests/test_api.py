"""The Python API: callables and commands mixed, exceptions as verdicts, events, resume, threads."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from pathlib import Path
from typing import Literal

import pytest

from evolver import Loop, Result, read_events, resume, run
from evolver.errors import HeldError, UsageError
from evolver.model import Outcome, StepContext


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "value").write_text("0\n")
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run(["git", *args], cwd=root, check=True)
    return root


def count(context: StepContext) -> None:
    (context.cwd / "value").write_text(f"{context.iteration}\n")


def clean(root: Path) -> bool:
    return subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True).stdout == b""


def test_callables_and_commands_judge_together(repository: Path) -> None:
    def not_two(context: StepContext) -> bool:
        return (context.cwd / "value").read_text() != "2\n"

    loop = Loop(codegen=count, validators={"number": "grep -q '^[0-9]' value", "not two": not_two}, max_iters=3, goal="Count")
    seen: list[str] = []
    result = run(loop, repository, on_event=lambda event: seen.append(event.name))
    assert isinstance(result, Result)
    assert [i.outcome for i in result.iterations] == [Outcome.ACCEPTED, Outcome.ROLLED_BACK, Outcome.ACCEPTED]
    assert (result.accepted, result.rolled_back, result.exit_code, result.reason) == (2, 1, 0, "max_iterations")
    assert (repository / "value").read_text() == "3\n"
    assert (
        result.head
        == subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True).stdout.strip()
    )
    assert seen[-1] == "run.finished"
    assert [event.name for event in read_events(repository, run=result.run_id, types=["iteration.accepted"])] == [
        "iteration.accepted"
    ] * 2
    assert clean(repository)


def test_what_a_callable_raises_is_a_verdict_with_its_traceback(repository: Path) -> None:
    def explode(context: StepContext) -> None:
        count(context)
        raise RuntimeError("no idea left")

    def judge(context: StepContext) -> int:
        assert (context.cwd / "value").read_text() == "never\n", "the value is wrong"
        return 0

    result = run(Loop(codegen=explode, validators=["true"], max_iters=1), repository)
    assert (result.exit_code, result.iterations[0].outcome) == (1, Outcome.ROLLED_BACK)
    result = run(Loop(codegen=count, validators=[judge], max_iters=1), repository)
    assert "judge" in result.iterations[0].reason
    logs = "".join(p.read_text() for p in (repository / ".git/evolver/steps").rglob("*.log"))
    assert "no idea left" in logs
    assert "the value is wrong" in logs
    assert clean(repository)


def test_held_and_resumed(repository: Path) -> None:
    loop = Loop(codegen="echo broken > value; echo more > new", validators=["false"], rollback="none")
    assert run(loop, repository).exit_code == 3
    with pytest.raises(HeldError):
        run(loop, repository)
    assert resume(repository).action == "undecided"
    kept = resume(repository, rollback="stash", note="later")
    assert (kept.action, kept.exit_code) == ("rolled_back", 0)
    assert kept.stash is not None
    assert clean(repository)
    assert resume(repository).action == "nothing"
    with pytest.raises(UsageError):
        resume(repository, keep=True, rollback="hard")


def test_it_runs_in_a_thread_and_takes_further_keys(repository: Path) -> None:
    """Signals are the main thread's: here they are left to whoever owns them."""
    results: list[Result] = []
    loop = Loop(
        codegen=count, validators=[["grep", "-q", "1", "value"]], options={"guard.protected": ["value"], "loop.max_iters": 1}
    )
    thread = threading.Thread(target=lambda: results.append(run(loop, repository)))
    thread.start()
    thread.join(60)
    assert results[0].iterations[0].reason.startswith("guard: protected path")
    assert clean(repository)


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (Loop(codegen="true", validators="pytest -q"), "expected a list"),
        (Loop(codegen="true", options={"loop.max_iter": 3}), "max_iter"),
        (Loop(codegen="true", max_time="soon"), "duration"),
        (Loop(codegen=()), "empty"),
    ],
)
def test_a_wrong_loop_is_a_usage_error_and_starts_nothing(loop: Loop, words: str, repository: Path) -> None:
    with pytest.raises(UsageError, match=words):
        run(loop, repository)
    assert not (repository / ".git/evolver/events.jsonl").exists()


def test_a_loop_by_name(repository: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        run("nosuch", repository)
    (repository / "loops").mkdir()
    (repository / "loops/default.toml").write_text(
        '[loop]\nmax_iters = 1\n[codegen]\ncommand = "echo 1 > value"\n[[validator]]\nname = "v"\ncommand = "true"\n'
    )
    assert run(directory=repository).accepted == 1


def test_a_callable_that_exits_is_a_failed_attempt(repository: Path) -> None:
    def leave(context: StepContext) -> None:
        count(context)
        raise SystemExit(0)

    result = run(Loop(codegen=leave, validators=["true"], max_iters=1), repository)
    assert [i.outcome for i in result.iterations] == [Outcome.ROLLED_BACK]
    assert clean(repository)


def test_an_isolated_run_says_whether_its_commits_landed(repository: Path) -> None:
    loop = Loop(codegen="echo z >z", validators=["true"], max_iters=1, options={"loop.isolation": "clone"})
    result = run(loop, repository)
    assert (result.accepted, result.landed, result.not_landed) == (1, True, "")
    assert (repository / "z").exists()
    (repository / "value").write_text("mine\n")  # in the way of what comes next
    loop = Loop(codegen="echo z >value", validators=["true"], max_iters=1, options={"loop.isolation": "clone"})
    result = run(loop, repository)
    assert (result.accepted, result.landed) == (1, False)
    assert result.not_landed
    assert (repository / "value").read_text() == "mine\n"
    assert run(Loop(codegen="true", validators=["true"], max_iters=1, options={"loop.dirty": "keep"}), repository).landed is None


def test_a_cancelled_task_in_a_callable_is_a_failed_attempt(repository: Path) -> None:
    def cancelled(context: StepContext) -> None:
        count(context)
        raise asyncio.CancelledError

    result = run(Loop(codegen=cancelled, validators=["true"], max_iters=1), repository)
    assert [i.outcome for i in result.iterations] == [Outcome.ROLLED_BACK]
    assert clean(repository)


@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_what_no_step_may_raise_comes_out_once_the_attempt_is_undone(repository: Path, mode: Literal["hard", "stash", "none"]) -> None:
    def interrupted(context: StepContext) -> None:
        count(context)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Loop(codegen=interrupted, validators=["true"], max_iters=3, rollback=mode), repository)
    finished = [json.loads(bytes(event.data)) for event in read_events(repository, types=["run.finished"])]
    assert [(f["reason"], f["exit_code"]) for f in finished] == [("error", 130)]
    if mode == "none":
        assert resume(repository, rollback="hard").exit_code == 0
    assert clean(repository)


def test_a_bug_of_evolvers_own_leaves_no_attempt_behind(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("not foreseen")

    monkeypatch.setattr("evolver.guard.check", broken)
    with pytest.raises(ZeroDivisionError):
        run(Loop(codegen=count, validators=["true"], max_iters=3), repository)
    finished = [json.loads(bytes(event.data)) for event in read_events(repository, types=["run.finished"])]
    assert [(f["reason"], f["detail"], f["exit_code"]) for f in finished] == [("error", "ZeroDivisionError: not foreseen", 70)]
    assert clean(repository)
