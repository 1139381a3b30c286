"""An isolated run killed anywhere: the person's checkout never shows it, and the next command goes on in the clone."""

from __future__ import annotations

import signal

import pytest

from evolver.crash import CRASH_POINTS
from isolation.person import Person

AGENT = """case $EVOLVER_ITERATION in
1) echo 1 >> app.txt ;;
2) echo 2 >> app.txt; git add -A; git commit -qm mine; git branch side; echo junk > junk; git config user.name Evil ;;
3) echo 3 >> app.txt; echo ignored > x.log ;;
esac"""
JUDGE = "! grep -q 2 app.txt"
SOME = ("accept.ref", "restore.written")


def killed_at(person: Person, point: str) -> None:
    before = person.state()
    args = ("run", "--isolation", "clone", "--max-iters", "3", "--codegen", AGENT, "--validate", JUDGE, "--rollback", "stash")
    first = person.evolver(*args, env={"EVOLVER_CRASH_AT": point})
    if first.code == -signal.SIGKILL:
        assert person.state()[:5] == before[:5], "nothing of the person's moved"
    for _ in range(2):
        person.evolver(*args, exit=0)
    assert person.git("status", "--porcelain") == ""
    assert person.inside("status", "--porcelain") == ""
    assert person.inside("branch", "--list", "side") == ""
    assert person.git("stash", "list") == ""
    assert "missing" not in person.git("fsck", "--no-progress")
    text = person.git("show", "HEAD:app.txt")
    assert "2" not in text
    assert text.count("3") >= 2
    person.evolver("audit", "verify", exit=0)


@pytest.mark.parametrize("point", SOME)
def test_killed_at_some_points(person: Person, point: str) -> None:
    killed_at(person, point)


@pytest.mark.nightly
@pytest.mark.parametrize("point", [p for p in CRASH_POINTS if not p.startswith("effect")])
def test_killed_at_every_point(person: Person, point: str) -> None:
    killed_at(person, point)


def test_terminated_in_the_middle_rolls_back_and_lands_what_was_accepted(person: Person) -> None:
    process = person.start("run", "--isolation", "clone", "--codegen", "[ -e one ] && sleep 60; touch one; echo 1 >> app.txt")
    person.wait_for("iteration.accepted")
    person.wait_for("step.running", count=2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, out + err
    assert person.inside("status", "--porcelain") == ""
    assert person.git("show", "HEAD:app.txt") == "0\n1"
