"""Prompts: what they may say, and that a wrong template is found before the run."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from evolver.definition import CodegenSection, LoadedLoop, Loop, LoopDefinition, ScoreSection, ValidatorSection
from evolver.errors import UsageError
from evolver.feedback import Feedback
from evolver.model import Judgement, StepContext, Verdict
from evolver.prompt import OUTPUT_CHARS, Prompt, first_values, prompt_for, trimmed
from evolver.stop import RunState


def loop(tmp_path: Path, template: str | None = None, goal: str = "Make it faster", agent: str | None = "claude") -> LoadedLoop:
    if template is not None:
        (tmp_path / "task.md").write_text(template)
    definition = LoopDefinition(
        loop=Loop(goal=goal, max_iters=7),
        codegen=CodegenSection(agent=agent, prompt="task.md" if template is not None else None),
        validator=(ValidatorSection(name="tests", command="true"), ValidatorSection(name="score", command="true")),
        score=ScoreSection(validator="score"),
    )
    return LoadedLoop(name="mine", definition=definition, source=None, directory=tmp_path, digest="0" * 64)


def test_the_built_in_prompt_of_a_first_iteration(tmp_path: Path) -> None:
    text = Prompt(loop(tmp_path)).render(first_values(loop(tmp_path)))
    assert text.startswith("Make it faster\n")
    assert "iteration 1 of at most 7" in text
    assert "- tests\n- score\n" in text
    for word in ("Reason", "Tried", "None", "best score", "\n\n\n"):
        assert word not in text, text


def test_the_built_in_prompt_after_failures(context: StepContext, tmp_path: Path) -> None:
    told = Feedback().rejected(1, Verdict(Judgement.FAIL, "tests: exit 1", "tests"), "E   assert 1 == 2\n", "2 paths, +3 -1")
    state = RunState(iterations=1, best=Decimal("1.50"))
    text = Prompt(loop(tmp_path)).for_iteration(replace(context, iteration=2), told, state)
    for words in (
        "iteration 2 of at most 7",
        "Reason: tests: exit 1",
        "E   assert 1 == 2",
        "It had changed: 2 paths, +3 -1",
        "- #1: tests: exit 1 (2 paths, +3 -1)",
        "best score so far is 1.50 (higher is better)",
        "was undone",
    ):
        assert words in text, text
    assert "\n\n\n" not in text
    repair = Prompt(loop(tmp_path)).for_iteration(replace(context, iteration=2, repair_round=1), told, state)
    assert "still in place: repair it" in repair and "last attempt was undone" not in repair


def test_a_template_of_ones_own_sees_everything(tmp_path: Path) -> None:
    names = (
        "goal loop iteration max_iterations repair_round reason output tried score best direction diff_stat "
        "validators pre_ref accepted baseline_red"
    )
    template = "".join(f"{name}={{{{ {name} }}}}\n" for name in names.split())
    made = Prompt(loop(tmp_path, template))
    assert "loop=mine\n" in made.render(first_values(loop(tmp_path)))


def test_templates_may_include_their_neighbours(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("Rule for {{ goal }}.\n")
    assert "Rule for Make it faster." in Prompt(loop(tmp_path, "{% include 'rules.md' %}")).render(first_values(loop(tmp_path)))
    with pytest.raises(UsageError):
        Prompt(loop(tmp_path, "{% include '../../etc/hostname' %}"))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("one\ntwo {{ goall }}", "goall"),
        ("{% if false %}{{ nowhere }}{% endif %}", "nowhere"),  # in a branch that no trial takes
        ("one\n{% if %}", ":2:"),
        ("{{ goal", ":1:"),
        ("{{ goal.missing.deeper }}", "task.md:1"),
        ("x\n{{ 1 / 0 }}", "task.md:2"),
        ("{{ tried[5] }}", "task.md"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% for x in range(100000000) %}x{% endfor %}", "task.md"),
        ("{{ goal | nofilter }}", "nofilter"),
        ("{% include 'gone.md' %}", "gone.md"),
        ("  \n", "empty"),
        ("{% if reason %}{{ reason.nope }}{% endif %}ok", "task.md:1"),  # wrong only after a failure
    ],
)
def test_a_wrong_template_is_found_before_the_run(tmp_path: Path, template: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Prompt(loop(tmp_path, template))
    assert words in caught.value.message, caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = loop(tmp_path, "x")
    (tmp_path / "task.md").unlink()
    with pytest.raises(UsageError, match=r"task\.md: No such file"):
        Prompt(missing)
    (tmp_path / "task.md").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        Prompt(missing)


def test_an_agent_without_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task"):
        Prompt(loop(tmp_path, goal=" "))
    assert prompt_for(loop(tmp_path, goal="", agent=None)) is None


def test_what_a_validator_printed_is_no_template(context: StepContext, tmp_path: Path) -> None:
    told = Feedback("{{ reason }}", "{{ 1 / 0 }} {% bad %}", ("{{ x }}",), "")
    text = Prompt(loop(tmp_path)).for_iteration(context, told, RunState())
    assert "{{ 1 / 0 }} {% bad %}" in text


def test_the_file_is_read_once(tmp_path: Path) -> None:
    made = Prompt(loop(tmp_path, "first {{ goal }}"))
    (tmp_path / "task.md").write_text("rm -rf everything")
    assert made.render(first_values(loop(tmp_path))) == "first Make it faster"


def test_output_is_trimmed() -> None:
    assert trimmed("\x1b[31mred\x1b[0m\r\n\x00x\n") == "red\nx"
    long = trimmed("first line\n" + "x" * 50 + "\n" + "y\n" * 5_000)
    assert len(long) <= OUTPUT_CHARS + 10 and long.startswith("[…]\ny\n") and long.endswith("y")
    assert len(trimmed("z" * 1_000_000)) <= OUTPUT_CHARS + 10
