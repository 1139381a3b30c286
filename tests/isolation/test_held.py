"""Locks, resume and status find the clone from the person's checkout, and the other way round."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from isolation.person import Person

NTH = "echo $EVOLVER_ITERATION >> app.txt"


def held(person: Person) -> None:
    person.isolated(f"{NTH}; touch new.txt", "--rollback", "none", validate="false", exit=3)


def test_mode_none_holds_the_clone_and_blocks_every_run(person: Person) -> None:
    before = person.tree()
    held(person)
    assert person.tree() == before
    assert (person.clone / "new.txt").exists()
    status = json.loads(person.evolver("status", "--json", exit=0).out)
    assert (status["state"], status["clone"]) == ("held", str(person.clone))
    assert "evolver resume" in person.isolated(NTH, exit=3).err
    person.run(NTH, exit=3)  # in place as well: there is one loop for a worktree
    person.evolver("land", exit=3)


def test_resume_rolls_the_clone_back(person: Person) -> None:
    held(person)
    assert "new.txt" in person.evolver("resume", exit=3).out
    person.evolver("resume", "--rollback", "hard", exit=0)
    assert not (person.clone / "new.txt").exists()
    assert person.inside("status", "--porcelain") == ""
    assert person.last("run.resumed")["action"] == "rolled_back"
    person.isolated(NTH, exit=0)


def test_resume_keep_is_landed_by_land(person: Person) -> None:
    held(person)
    person.evolver("resume", "--keep", exit=0)
    assert person.git("rev-list", "--count", "HEAD") == "1"
    person.evolver("land", exit=0)
    assert (person.root / "new.txt").exists()
    assert person.git("status", "--porcelain") == ""


def test_commands_called_in_the_clone_mean_the_persons_worktree(person: Person) -> None:
    held(person)
    status = json.loads(person.evolver("status", "--json", "-C", str(person.clone), exit=0).out)
    assert status["worktree"] == str(person.root)
    assert "is the clone that evolver works in" in person.evolver("run", "--codegen", "true", "-C", str(person.clone), exit=5).err
    person.evolver("resume", "--rollback", "hard", "-C", str(person.clone), exit=0)
    assert json.loads(person.evolver("status", "--json", exit=0).out)["state"] == "idle"


def test_only_one_run_at_a_time(person: Person) -> None:
    process = person.start("run", "--isolation", "clone", "--codegen", "sleep 20", "--max-iters", "1")
    person.wait_for("step.running")
    assert json.loads(person.evolver("status", "--json").out)["state"] == "running"
    person.run("true", exit=6)
    person.isolated("true", exit=6)
    person.evolver("land", exit=6)
    person.evolver("stop", exit=0)
    process.communicate(timeout=30)
    assert person.last("run.finished")["reason"] == "stopped"


def test_an_agent_cannot_land(person: Person) -> None:
    ended = person.isolated(f"{NTH}; {sys.executable} -m evolver land -C {person.root}; echo $? > said", exit=0)
    assert ended.code == 0
    assert person.git("show", "HEAD:said") == "3"


def test_an_agent_that_deletes_the_clones_git_folder_is_undone(person: Person) -> None:
    before = person.state()
    person.isolated(f"{NTH}; rm -rf .git", validate="true", exit=1)
    assert person.state()[:4] == before[:4]
    assert person.inside("status", "--porcelain") == ""
    person.isolated(NTH, exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1"


def test_a_clone_that_was_removed_is_made_anew(person: Person) -> None:
    held(person)
    subprocess.run(["rm", "-rf", str(person.clone)], check=True)
    person.isolated(NTH, exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1"


@pytest.mark.nightly
def test_a_clone_that_was_removed_under_a_dead_run(person: Person) -> None:
    crashed = person.evolver(
        *("run", "--isolation", "clone", "--codegen", NTH, "--max-iters", "1"), env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}
    )
    assert crashed.code == -9
    subprocess.run(["rm", "-rf", str(person.clone)], check=True)
    person.isolated(NTH, exit=0)
    assert person.last("run.recovered")["found"] == "the clone it worked in is gone"


def test_wait_waits_for_the_clones_resume_lock(person: Person) -> None:
    held(person)
    process = person.start("run", "--isolation", "clone", "--wait", "--codegen", NTH, "--max-iters", "1")
    person.evolver("resume", "--rollback", "hard", exit=0)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def test_resume_run_goes_on_in_the_clone(person: Person) -> None:
    person.loop(
        f"""[loop]
max_iters = 1
[rollback]
mode = "none"
[codegen]
command = "{NTH}"
[[validator]]
name = "check"
command = "test -e {person.root.parent}/fine"
"""
    )
    person.evolver("run", "--isolation", "clone", exit=3)
    (person.root.parent / "fine").touch()
    person.evolver("resume", "--rollback", "hard", "--run", exit=0)
    assert [e["data"]["isolation"] for e in person.events("run.started")] == ["clone", "clone"]
    assert person.git("show", "HEAD:app.txt") == "0\n1"


def test_stash_mode_keeps_the_attempt_in_the_clones_stash_not_the_persons(person: Person) -> None:
    person.isolated(f"{NTH}; touch new", "--rollback", "stash", validate="false", exit=1)
    assert person.git("stash", "list") == ""
    assert len(person.inside("stash", "list").splitlines()) == 1


def test_kept_attempts_are_found_from_the_persons_checkout(person: Person) -> None:
    person.isolated(f"{NTH}; touch new", "--rollback", "stash", validate="false", exit=1)
    assert "validate: exit 1" in person.evolver("attempts", "list", exit=0).out
    assert "new" in person.evolver("attempts", "show", "last", exit=0).out
    person.evolver("attempts", "apply", "last", exit=0)
    assert (person.root / "app.txt").read_text() == "0\n1\n"
    assert (person.root / "new").exists()


@pytest.mark.nightly
def test_what_recovery_removed_in_the_clone_is_found_as_well(person: Person) -> None:
    args = ("run", "--isolation", "clone", "--codegen", f"{NTH}; echo lost > found", "--max-iters", "1")
    assert person.evolver(*args, env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -9
    person.evolver("resume", exit=0)
    assert "+lost" in person.evolver("attempts", "show", "last", exit=0).out


def test_an_attempt_stashed_by_resume_is_found_as_well(person: Person) -> None:
    held(person)
    person.evolver("resume", "--rollback", "stash", exit=0)
    assert "new.txt" in person.evolver("attempts", "show", "last", exit=0).out


@pytest.mark.nightly
def test_a_clone_is_found_again_after_the_state_folder_was_removed(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    inode = person.clone.stat().st_ino
    subprocess.run(["rm", "-rf", str(person.root / ".git/evolver")], check=True)
    person.git("checkout", "-q", "app.txt")
    person.isolated("touch more", exit=0)
    assert person.clone.stat().st_ino == inode
    assert person.git("show", "HEAD:app.txt") == "0\n1"


@pytest.mark.nightly
def test_another_repository_at_the_same_place_gets_a_clone_of_its_own(person: Person) -> None:
    person.isolated(NTH, exit=0)
    inode, parent = person.clone.stat().st_ino, person.clone.parent.parent
    subprocess.run(["rm", "-rf", str(person.root)], check=True)
    again = Person.make(person.root, {"app.txt": "another\n"})
    again.isolated(NTH, exit=0)
    assert again.clone.stat().st_ino != inode
    assert len(list(parent.iterdir())) == 2, "what was there is kept aside"
