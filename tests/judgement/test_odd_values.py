"""Numbers, times and texts that nobody expects: told before the run, or passed over; never the end of a night."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgement.bench import Bench

STEP = '[loop]\nmax_iters = 1\n[codegen]\ncommand = "sleep 0.3; echo x >> app.txt"\n'


def test_a_timeout_of_weeks(bench: Bench) -> None:
    """The system call waits for some weeks at most."""
    bench.loop(STEP + 'timeout = "1000h"\n')
    bench.evolver("run", exit=0)


@pytest.mark.parametrize(
    "loop",
    [
        STEP + 'timeout = "99999999999999999999h"\n',
        STEP + 'timeout = "0s"\n',
        STEP + 'env = { "A=B" = "x" }\n',
        STEP + 'env = { A = "x\\u0000" }\n',
        STEP + f'timeout = "{"9" * 5000}s"\n',
        STEP.replace("[codegen]", 'promise = "x"\npromise_file = "a\\u0000"\n[codegen]'),
        STEP.replace("[codegen]", 'scope = "nowhere"\n[codegen]'),
        STEP.replace("[codegen]", 'scope = "app.txt"\n[codegen]'),
        STEP.replace("[codegen]", 'scope = "elsewhere"\n[codegen]'),
    ],
    ids=["timeout", "no-time", "variable", "nul", "digits", "promise-file", "no-scope", "file-scope", "linked-scope"],
)
def test_what_cannot_be_is_exit_2(bench: Bench, tmp_path: Path, loop: str) -> None:
    (tmp_path / "outside").mkdir()
    (bench.root / "elsewhere").symlink_to(tmp_path / "outside")
    bench.loop(loop)
    ended = bench.evolver("run", exit=2)
    assert "Traceback" not in ended.err and "hint" in ended.err
    assert not bench.stream.exists() and not list((tmp_path / "outside").iterdir())


def test_a_goal_with_spaces_around_it(bench: Bench) -> None:
    bench.run("echo x >> app.txt", "--until", " accepted ", iters=3, exit=0)
    assert bench.last("run.finished")["reason"] == "goal"


@pytest.mark.parametrize("score", ["1e9999999", "-1e999999", "1e-9999999", "9" * 400])
def test_a_score_beyond_all_numbers_is_none(bench: Bench, score: str) -> None:
    bench.loop(
        f"""{STEP}
[[validator]]
name = "v"
command = "echo score: {score}"
[score]
validator = "v"
pattern = "score: (.*)"
noise = 2
"""
    )
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["score: the validator printed none"]


@pytest.mark.parametrize("template", ["{% include 'task.md' %}", "{{ 'a' * 10 ** 14 }}", "{% if accepted %}{% include 'x.md' %}{% endif %}go"])
def test_a_template_that_cannot_be_rendered_is_exit_2(bench: Bench, template: str) -> None:
    bench.write("loops/task.md", template)
    bench.write("loops/x.md", "{{ goall }}")
    bench.loop('[loop]\ngoal = "g"\n[codegen]\nagent = "claude"\nprompt = "task.md"\n')
    ended = bench.evolver("prompt", exit=2)
    assert "task.md" in ended.err and "Traceback" not in ended.err


def test_the_environment_goes_before_dot_env_whatever_both_name(bench: Bench) -> None:
    bench.write(".env", "EVOLVER_AGENT=gemini\nEVOLVER_CODEGEN=true\n")
    bench.loop('[loop]\ngoal = "g"\n[codegen]\ncommand = "false"\n')
    ended = bench.evolver("run", "--dry-run", "--json", exit=0, env={"EVOLVER_AGENT": "codex"})
    assert '"agent":"codex"' in ended.out and '"command":null' in ended.out
