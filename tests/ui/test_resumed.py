"""What a person decided about a held iteration is told as its end, wherever it is shown. Real runs, real git."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from support import Repo

PAUSE = 2.0  # seconds between the hold and the decision: far more than the iteration took


@pytest.fixture
def held(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "repo")
    assert repo.run("echo broken >src/a.py", "grep -q a src/a.py", "--rollback", "none").code == 3
    time.sleep(PAUSE)
    return repo


def seconds(log: str) -> float:
    """What `log` says the iteration took."""
    found = re.search(r"^1 .*?(\d+(?:\.\d+)?) (ms|s)  ", log, re.M)
    assert found, log
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def test_an_iteration_that_resume_rolled_back(held: Repo) -> None:
    held.evolver("resume", "--rollback", "hard", "--note", "no good")
    log = held.evolver("log").out
    assert "rolled back" in log.splitlines()[2]
    assert "rolled back with resume" in log
    assert "no good" in log
    assert "held" not in log.splitlines()[2]
    assert seconds(log) < PAUSE
    shown = held.evolver("show").out
    assert shown.splitlines()[0].endswith(": rolled back")
    assert "mode hard" not in shown  # the run's mode was none
    assert "no good" in held.evolver("explain").out
    report = held.evolver("report", "--md").out
    assert "Nothing was kept: 1 attempt undone" in report
    assert "Why nothing was accepted" in report
    assert "the others" not in report
    assert "rolled back with resume" in held.evolver("status").out


def test_an_iteration_that_a_person_kept(held: Repo) -> None:
    held.evolver("resume", "--keep", "--note", "fine by me")
    commit = held.head()[:10]
    log = held.evolver("log").out
    assert "kept by a person" in log.splitlines()[2]
    assert commit in log
    assert seconds(log) < PAUSE
    shown = held.evolver("show").out
    assert shown.splitlines()[0].endswith(": kept by a person")
    assert "src/a.py |" in shown
    assert f"git show {commit}" in shown
    assert "+broken" in held.evolver("diff").out
    assert "kept by a person" in held.evolver("compare", "1", "last").out
    assert f"kept as commit {commit}" in held.evolver("explain").out
    report = held.evolver("report", "--md").out
    assert f"| 1 | {commit} | evolver: keep held iteration 1 |" in report
    assert "1 by a person" in report
    assert 'class="o kept"' in held.evolver("report", "-o", "-").out
    status = json.loads(held.evolver("status", "--json").out)
    assert status["last_run"]["resumed"] == "kept"
    assert held.evolver("revert", "1").code == 0
    assert "broken" not in (held.root / "src/a.py").read_text()
    assert "reverted by" in held.evolver("log").out


def test_an_iteration_that_was_put_back_by_hand(held: Repo) -> None:
    held.sh("git checkout -q src/a.py")
    assert held.evolver("resume").code == 0
    log = held.evolver("log").out
    assert "put back by hand" in log.splitlines()[2]
    assert seconds(log) < PAUSE
    assert held.evolver("show").out.splitlines()[0].endswith(": put back by hand")
    assert "undone" in held.evolver("diff").err
    assert "Nothing was kept: 1 attempt undone" in held.evolver("report", "--md").out


def test_a_held_iteration_is_held_until_then(held: Repo) -> None:
    assert "held" in held.evolver("log").out.splitlines()[2]
    assert "evolver resume" in held.evolver("show").out


def test_a_killed_iteration_ends_with_its_last_sign_of_life(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    run = repo.start("run", "--max-iters", "1", "--codegen", "sleep 60", "--validate", "true")
    repo.wait_for(lambda: any(event["iteration"] for event in repo.events("step.running")))
    run.kill()
    run.communicate()
    time.sleep(PAUSE)
    assert "recovered run" in repo.evolver("resume").out
    assert seconds(repo.evolver("log").out) < PAUSE


def test_the_last_line_of_a_run_says_each_thing_once(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    last = repo.run("echo x >>src/a.py", "false", "--max-iters", "2", "--no-breaker").out.splitlines()[-1]
    assert last == "2 iterations: 0 accepted, 2 rolled back. Stopped: max iterations."


def test_a_reason_is_told_once_a_run(tmp_path: Path) -> None:
    """Of a held run, its iteration's line has it; the closing lines do not repeat it."""
    repo = Repo.make(tmp_path / "repo")
    out = repo.run("echo x >>src/a.py", "exit 7", "--rollback", "none").out
    assert "1 iteration: 0 accepted, 1 held. Stopped: held." in out.splitlines()
    assert repo.evolver("log").out.count("exit 7") == 1


def test_an_attempt_that_stop_ended_is_interrupted_everywhere(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    run = repo.start("run", "--max-iters", "2", "--codegen", "sleep 60", "--validate", "true")
    repo.wait_for(lambda: any(event["iteration"] for event in repo.events("step.running")))
    log = repo.evolver("log").out
    assert "last sign" in log  # it has not ended: how long it took is not known
    assert repo.evolver("stop", "--wait").code == 0
    out = run.communicate(timeout=60)[0].decode()
    assert "1 iteration: 0 accepted, 1 interrupted. Stopped: stopped" in out
    log = repo.evolver("log").out
    assert "~ interrupted" in log
    assert "last sign" not in log
    assert "1 attempt undone" in repo.evolver("report", "--md").out


def test_before_the_first_run_every_view_says_so(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    assert "none yet" in repo.evolver("status").out
    assert "evolver init" in repo.evolver("events").err
    verified = repo.evolver("audit", "verify")
    assert verified.code == 9
    assert len(verified.out.splitlines()) == 1, verified.out
    assert "no such file" in verified.out


def test_a_reverted_commit_is_marked_in_the_report(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    repo.run("echo x >>src/a.py", "true")
    assert repo.evolver("revert", "1").code == 0
    assert f"reverted by {repo.head()[:10]}" in repo.evolver("report", "--md").out


@pytest.mark.parametrize("isolation", ["inplace", "clone"])
def test_the_report_repeats_the_command_that_ran(isolation: str, tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    assert repo.run("echo x >>src/a.py", "true", "--isolation", isolation).code == 0
    assert "evolver run --codegen 'echo x >>src/a.py' --validate true --max-iters 1" in repo.evolver("report", "--md").out
