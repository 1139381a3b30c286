"""What would be ignored without a word is said: slips in variables, nothing that judges, an agent that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def test_a_variable_that_is_no_setting_is_named_with_the_nearest_one(repo: Repo) -> None:
    done = repo.run("true", "true", env={"EVOLVER_ROLLBCK_MODE": "none"})
    assert "EVOLVER_ROLLBCK_MODE is no setting and is ignored; did you mean EVOLVER_ROLLBACK_MODE?" in done.err


def test_a_run_that_nothing_judges_says_so(repo: Repo) -> None:
    done = repo.evolver("run", "--max-iters", "1", "--codegen", "echo z >>src/a.py")
    assert done.code == 0
    assert "nothing judges" in done.err


def test_an_agent_that_is_not_installed_is_refused_with_its_install_line(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("do it")
    words = ("run", "--agent", "claude", "--prompt", str(tmp_path / "p.md"), "--validate", "true")
    path = "/usr/bin:/bin"
    if any((Path(folder) / "claude").exists() for folder in path.split(":")):
        pytest.skip("claude is installed system-wide here")
    done = repo.evolver(*words, env={"PATH": path})
    assert done.code == 5, done.text
    assert "agent not installed: claude" in done.err
    assert "npm install -g" in done.err
    assert repo.events("step.") == []


def test_quiet_still_says_that_a_person_is_needed(repo: Repo) -> None:
    done = repo.run("echo z >>src/a.py", "false", "--quiet", "--rollback", "none")
    assert done.code == 3
    assert done.out == ""
    assert "evolver resume" in done.err
