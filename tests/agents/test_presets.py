"""How an agent is called, and what is cleared away after it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.definition import AgentSection
from evolver.errors import UsageError
from evolver.interrupts import Interrupts
from evolver.model import StepContext
from evolver.steps.agents import AgentCodegen, discover, fill, version_in
from evolver.steps.presets import PRESETS, Preset, find_preset
from evolver.steps.runner import StepRunner

from .conftest import Scripted


def argv(context: StepContext, preset: Preset, *args: str, prompt: str = "Do it.") -> tuple[str, ...]:
    return fill(preset, args, replace(context, prompt=prompt), context.step_dir / "prompt.txt")


def test_arguments_stand_where_the_preset_wants_them(context: StepContext) -> None:
    assert argv(context, PRESETS["codex"], "-m", "x")[-4:] == ("workspace-write", "-m", "x", "-")
    assert argv(context, PRESETS["claude"], "--max-turns", "3")[-2:] == ("--max-turns", "3")
    assert argv(context, PRESETS["opencode"], "-m", "x")[-3:] == ("-m", "x", "Do it.")
    assert argv(context, PRESETS["mini-swe-agent"])[-2:] == ("-t", "Do it.")
    assert str(context.step_dir / "trajectory.json") in argv(context, PRESETS["mini-swe-agent"])
    assert str(context.step_dir / "prompt.txt") in argv(context, PRESETS["aider"])
    assert argv(context, Preset(name="own", argv=("own", "run")), "--fast") == ("own", "run", "--fast")


def test_a_prompt_is_no_option_and_no_placeholder(context: StepContext) -> None:
    assert argv(context, PRESETS["opencode"], prompt="--help")[-1] == "\n--help"
    assert argv(context, PRESETS["opencode"], prompt="{args} {step_dir}")[-1] == "{args} {step_dir}"
    own = Preset(name="own", argv=("own", "--task={prompt}"), prompt="argument")
    assert argv(context, own, prompt="{step_dir}") == ("own", "--task={step_dir}")


@pytest.mark.parametrize("prompt", ["x" * 200_000, "nul \0 byte"])
def test_a_prompt_that_fits_no_argument_goes_by_file(context: StepContext, prompt: str) -> None:
    assert str(context.step_dir / "prompt.txt") in argv(context, PRESETS["opencode"], prompt=prompt)[-1]


@pytest.mark.parametrize("how", ["stdin", "argument", "file"])
@pytest.mark.parametrize("prompt", ["short", "ünï\ncode 'quoted' \"twice\" $HOME `x`", "long " * 60_000])
def test_the_prompt_arrives(context: StepContext, runner: StepRunner, how: str, prompt: str) -> None:
    argv = {
        "stdin": ("sh", "-c", "cat"),
        "argument": ("sh", "-c", 'printf %s "$1"', "sh", "{prompt}"),
        "file": ("cat", "{prompt_file}"),
    }[how]
    result = AgentCodegen(runner, Preset(name="own", argv=argv, prompt=how), 10_000, 500).generate(  # type: ignore[arg-type]
        replace(context, prompt=prompt)
    )
    assert result.ok, result.tail
    if how == "argument" and len(prompt) > 100_000:
        assert (context.step_dir / "prompt.txt").read_text() == prompt
    else:
        assert Path(result.log).read_text() == prompt


def test_the_users_own_setting_of_a_variable_wins(context: StepContext, scripted: Scripted) -> None:
    preset = scripted('echo "$A $B $C"', env={"A": "preset", "B": "preset", "C": "preset"})
    runner = StepRunner(Interrupts(), base={**os.environ, "B": "user"})
    result = AgentCodegen(runner, preset, 10_000, 500, env={"C": "section"}).generate(context)
    assert result.tail == "preset user section\n"


def test_aiders_droppings_are_cleared_and_the_users_files_are_not(
    context: StepContext, runner: StepRunner, scripted: Scripted
) -> None:
    """By recorded behaviour: a cache folder and histories at the top of the worktree."""
    script = (
        "mkdir -p .aider.tags.cache.v4; echo x > .aider.tags.cache.v4/cache.db; echo x >> .aider.input.history; echo y > new"
    )
    preset = scripted(script, droppings=PRESETS["aider"].droppings)
    (context.cwd / ".aider.input.history").write_text("the user's\n")
    AgentCodegen(runner, preset, 10_000, 500).generate(context)
    assert sorted(path.name for path in context.cwd.iterdir()) == [".aider.input.history", "new"]
    assert (context.cwd / ".aider.input.history").read_text() == "the user's\nx\n"


def test_aider_that_exits_0_on_failure_is_not_believed(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    """By recorded behaviour: exit 0, the error in plain text."""
    preset = scripted("echo 'litellm.AuthenticationError: bad key'; exit 0", parser="aider")
    result = AgentCodegen(runner, preset, 10_000, 500).generate(context)
    assert result.exit_code == 0 and result.report is not None and not result.report.ok


def test_the_trajectory_of_an_earlier_call_does_not_speak(context: StepContext, runner: StepRunner, scripted: Scripted) -> None:
    (context.step_dir / "trajectory.json").write_text('{"info": {"exit_status": "Submitted"}}')
    result = AgentCodegen(runner, scripted("exit 0", parser="mini-swe-agent"), 10_000, 500).generate(context)
    assert result.report is not None and not result.report.ok


def test_an_unknown_agent_is_a_usage_error_that_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"agent 'cloude' is unknown; known are .*claude.*mine"):
        find_preset("cloude", {"mine": AgentSection(argv=("x",))})


@pytest.mark.parametrize(
    "section",
    [
        AgentSection(argv=()),
        AgentSection(argv=("x",), parser="xml"),
        AgentSection(argv=("x",), prompt="argument"),
        AgentSection(argv=("x",), prompt="file"),
        AgentSection(argv=("x",), rate_limit="("),
    ],
)
def test_a_wrong_agent_table_is_a_usage_error(section: AgentSection) -> None:
    with pytest.raises(UsageError, match=r"\[agents\.mine\]"):
        find_preset("mine", {"mine": section})


def test_ones_own_table_comes_before_the_preset() -> None:
    assert find_preset("claude", {"claude": AgentSection(argv=("my-claude",))}).argv == ("my-claude",)


def test_discovery(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (("claude", "2.1.300 (Claude Code)"), ("codex", "codex-cli 9.0.1"), ("gemini", "no idea")):
        (folder / name).write_text(f"#!/bin/sh\necho '{words}'\n")
        (folder / name).chmod(0o755)
    found = {item.name: item for item in discover(tuple(PRESETS.values()), f"{folder}:/usr/bin:/bin")}
    assert (found["claude"].version, found["claude"].known) == ("2.1.300", True)
    assert (found["codex"].version, found["codex"].known) == ("9.0.1", False)
    assert found["gemini"].path and found["gemini"].problem and not found["gemini"].known
    assert found["opencode"].path is None and found["opencode"].install


@pytest.mark.parametrize(
    ("text", "version"), [("aider 0.86.2", "0.86.2"), ("v1.18.33-beta.1\n", "1.18.33-beta.1"), ("none", "")]
)
def test_versions(text: str, version: str) -> None:
    assert version_in(text) == version
