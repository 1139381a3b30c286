"""Command steps: exit codes, retries, environment, logs."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.errors import UsageError
from evolver.interrupts import Interrupts
from evolver.model import Judgement, StepContext, StepResult
from evolver.redact import Redactor
from evolver.steps.command import CommandCodegen, CommandValidator
from evolver.steps.judge import judge
from evolver.steps.registry import build_codegen, build_validators
from evolver.steps.runner import StepRunner, free_log

from .conftest import Load


@pytest.mark.parametrize(
    ("command", "judgement", "words"),
    [
        ("exit 0", Judgement.PASS, "check: passed"),
        ("exit 1", Judgement.FAIL, "check: exit 1"),
        ("exit 124", Judgement.FAIL, "check: exit 124"),
        ("exit 125", Judgement.INCONCLUSIVE, "check: exit 125 (cannot tell)"),
        ("exit 126", Judgement.INCONCLUSIVE, "check: could not be executed (exit 126)"),
        ("no-such-program-anywhere", Judgement.INCONCLUSIVE, "check: command not found (exit 127)"),
        ("exit 128", Judgement.FAIL, "check: exit 128"),
        ("sh -c 'kill -9 $$'; exit $?", Judgement.INCONCLUSIVE, "check: ended by signal 9 (exit 137)"),
        ("kill -11 $$", Judgement.INCONCLUSIVE, "check: killed by signal 11"),
        ("exit 255", Judgement.FAIL, "check: exit 255"),
        ("exec sleep 60", Judgement.INCONCLUSIVE, "check: timed out after"),
        (("/no/such/program", "x"), Judgement.INCONCLUSIVE, "check: could not start: /no/such/program: No such file"),
        (("false",), Judgement.FAIL, "check: exit 1"),
    ],
)
def test_exit_codes(
    context: StepContext, runner: StepRunner, command: str | tuple[str, ...], judgement: Judgement, words: str
) -> None:
    """Issue 5: exit 0 pass, 125 inconclusive, by signal, timed out or not startable inconclusive with reason, else fail."""
    result = CommandValidator(runner, "check", command, 700).validate(context)
    verdict = judge(result)
    assert verdict.judgement is judgement and verdict.step == "check"
    assert verdict.reason.startswith(words)


def test_an_interrupted_validator_cannot_tell(context: StepContext) -> None:
    interrupts = Interrupts()
    threading.Timer(0.2, interrupts.trigger, (2,)).start()
    result = CommandValidator(StepRunner(interrupts), "check", "exec sleep 60", None).validate(context)
    assert judge(result).judgement is Judgement.INCONCLUSIVE and "interrupted" in judge(result).reason


def test_a_pass_on_a_retry_is_marked_flaky(context: StepContext, runner: StepRunner) -> None:
    script = "echo x >>../count; test $(wc -l <../count) -ge 3"
    result = CommandValidator(runner, "check", script, 5000, retries=5).validate(context)
    assert result.ok and result.flaky
    assert judge(result).reason == "check: passed on a retry"
    assert (context.cwd.parent / "count").read_text() == "x\n" * 3
    assert len(list(context.log_dir.iterdir())) == 3  # no log is overwritten


def test_retries_end(context: StepContext, runner: StepRunner) -> None:
    result = CommandValidator(runner, "check", "echo x >>../count; exit 1", 5000, retries=2).validate(context)
    assert not result.ok and not result.flaky
    assert (context.cwd.parent / "count").read_text() == "x\n" * 3


def test_a_pass_is_not_retried_and_not_flaky(context: StepContext, runner: StepRunner) -> None:
    result = CommandValidator(runner, "check", "echo x >>../count", 5000, retries=2).validate(context)
    assert result.ok and not result.flaky and (context.cwd.parent / "count").read_text() == "x\n"


def test_the_environment_of_a_step(context: StepContext) -> None:
    base = {
        "PATH": os.environ["PATH"],
        "KEPT": "yes",
        "GIT_DIR": "/elsewhere",
        "GIT_INDEX_FILE": "/elsewhere/index",
        "GIT_AUTHOR_NAME": "A U Thor",
        "EVOLVER_ITERATION": "99",
        "SINK_SECRET": "hidden",
    }
    runner = StepRunner(Interrupts(), base=base, extra={"LAID": "over"}, withheld=frozenset({"SINK_SECRET"}))
    result = CommandCodegen(runner, "env | sort", None, 100, {"MINE": "section", "LAID": "under"}).generate(context)
    seen = dict(line.split("=", 1) for line in result.tail.splitlines())
    assert {name: seen.get(name) for name in base} == {
        **base,
        "GIT_DIR": None,
        "GIT_INDEX_FILE": None,
        "EVOLVER_ITERATION": "3",
        "SINK_SECRET": None,
    }
    assert seen["MINE"] == "section" and seen["LAID"] == "over"
    assert seen["EVOLVER_RUN_ID"] == context.run_id
    assert seen["EVOLVER_ITERATION_ID"] == f"{context.run_id}/3"
    assert seen["EVOLVER_LAST_FAILURE"] == str(context.last_failure)
    assert seen["EVOLVER_STEP_DIR"] == str(context.step_dir)
    assert seen["EVOLVER_PRE_REF"] == context.pre_ref


def test_a_string_is_a_shell_line_and_a_list_is_not(context: StepContext, runner: StepRunner) -> None:
    assert CommandCodegen(runner, "echo a | tr a b", None, 100).generate(context).tail == "b\n"
    assert CommandCodegen(runner, ("echo", "a | tr a b"), None, 100).generate(context).tail == "a | tr a b\n"


def test_a_rendered_prompt_arrives_on_standard_input(context: StepContext, runner: StepRunner) -> None:
    assert (
        CommandCodegen(runner, "cat", None, 100).generate(replace(context, prompt="do it, für mich")).tail == "do it, für mich"
    )


def test_a_secret_of_the_environment_reaches_neither_log_nor_tail(context: StepContext) -> None:
    runner = StepRunner(
        Interrupts(), Redactor.from_environment({"API_TOKEN": "abcdef123456"}), {**os.environ, "API_TOKEN": "abcdef123456"}
    )
    result = CommandCodegen(runner, 'echo "got $API_TOKEN"', None, 100).generate(context)
    assert result.tail == "got [redacted]\n" == Path(result.log).read_text()


def test_output_that_is_no_utf8_is_decoded_somehow(context: StepContext, runner: StepRunner) -> None:
    result = CommandCodegen(runner, "printf '\\377\\376x'", None, 100).generate(context)
    assert result.tail.endswith("x") and Path(result.log).read_bytes() == b"\xff\xfex"


@pytest.mark.parametrize("name", ["a/b", "../../etc/passwd", "", "x" * 300, "a\nb", "ünï", "."])
def test_odd_names_make_plain_log_files(tmp_path: Path, name: str) -> None:
    path = free_log(tmp_path, name, 0)
    assert path.parent == tmp_path and path.name.isascii() and len(path.name) < 100
    path.touch()
    assert free_log(tmp_path, name, 0) != path


def test_the_process_is_told_of_when_it_starts(context: StepContext, runner: StepRunner) -> None:
    told: list[tuple[int, str]] = []
    heard: list[bytes] = []
    watched = replace(context, on_start=lambda pid, since: told.append((pid, since)), on_output=heard.append)
    CommandCodegen(runner, "echo hello", None, 100).generate(watched)
    assert told and b"".join(heard) == b"hello\n"


def test_steps_from_a_loop_file(context: StepContext, runner: StepRunner, load: Load) -> None:
    loaded = load("""
[codegen]
command = "echo generated"
timeout = "5s"
env = {A = "b"}
[[validator]]
name = "first"
command = ["true"]
[[validator]]
name = "second"
command = "exit 1"
retries = 1
""")
    assert build_codegen(loaded, runner).generate(context).tail == "generated\n"
    first, second = build_validators(loaded, runner)
    assert (first.name, second.name) == ("first", "second")
    assert first.validate(context).ok and not second.validate(context).ok


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[codegen]\ncommand = "x"\ncallable = "a:b"',
        '[codegen]\ncallable = "no colon"',
        '[codegen]\ncallable = "a/b:c"',
        '[codegen]\ncommand = "x"\n[[validator]]\nname = "a"',
        '[codegen]\ncommand = "x"\n[[validator]]\nname = "a"\ncommand = "x"\n[[validator]]\nname = "a"\ncommand = "y"',
        '[codegen]\ncommand = "x"\n[[validator]]\nname = " "\ncommand = "x"',
    ],
)
def test_wrong_sections_are_usage_errors(runner: StepRunner, load: Load, text: str) -> None:
    with pytest.raises(UsageError):
        build_codegen(load(text), runner)
        build_validators(load(text), runner)


def test_a_step_result_describes_itself() -> None:
    assert StepResult(name="x", exit_code=3).describe() == "exit 3"
