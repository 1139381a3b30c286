"""An attempt writes a resume lock itself: it would have every later command stop for a person, or act on what it says.

Shows: damaged, forged, as a folder or a pipe, beside `.git` or in the lifeboat, by the agent or a validator, and by an attempt whose run was
killed: it goes, and is told. A lock that a dying run wrote itself stays.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

FORGED = {
    **dict.fromkeys(("run_id", "iteration_id", "pre_ref", "baseline", "time", "reason"), "x"),
    "iteration": 1, "post_ref": None, "rollback_mode": "none", "exit_code": 3,
}  # fmt: skip
LOCK = ".git/evolver/resume.lock"
BOAT = '"$(ls -d $XDG_STATE_HOME/evolver/*/)resume.lock"'


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    (tmp_path / "forged").write_text(json.dumps(FORGED))
    return repo


PLANTS = [f"echo '{{}}' >{LOCK}", f"cp ../forged {LOCK}", f"cp ../forged {BOAT}", f"mkdir -p {LOCK}/x", f"mkfifo {LOCK}", f"ln -s ../../src {LOCK}"]


@pytest.mark.parametrize("plant", PLANTS)
def test_it_goes_with_the_attempt(repo: Repo, plant: str) -> None:
    before = Snapshot.of(repo.root)
    assert repo.run(f"{plant}; echo z >>src/a.py", "true").code == 1
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.events("alert.control_changed")[-1]["data"]["paths"] == ["evolver/resume.lock"]
    assert repo.evolver("status").code == 0 and repo.run("echo fine >>src/a.py", "true").code == 0


def test_a_validator_plants_it(repo: Repo) -> None:
    assert repo.run("echo z >>src/a.py", f"cp ../forged {LOCK}", "--max-iters", "2").code in (0, 1)
    assert repo.evolver("resume").out.startswith("nothing to resume") and repo.run("echo fine >>src/a.py", "true").code == 0


@pytest.mark.parametrize("plant", PLANTS)
def test_and_the_run_is_killed(repo: Repo, plant: str) -> None:
    before = Snapshot.of(repo.root)
    assert repo.run(f"{plant}; echo z >>src/a.py", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    assert repo.run("true").code == 1 and differences(before, Snapshot.of(repo.root)) == []


@pytest.mark.parametrize("point", ["iteration.locked", "iteration.before_lock"])
def test_what_a_dying_run_wrote_itself_stays(repo: Repo, point: str) -> None:
    done = repo.run(f"cp ../forged {LOCK}; echo z >>src/a.py", "false", "--rollback", "none", env={"EVOLVER_CRASH_AT": point})
    assert done.code == -signal.SIGKILL
    assert repo.run("true").code == 3 and (repo.root / "src/a.py").read_text().endswith("z\n")
    assert repo.evolver("resume", "--rollback", "hard").code == 0 and repo.status() == ""


def test_a_lock_beside_a_stream_that_another_repository_writes_to(tmp_path: Path) -> None:
    shared = {"EVOLVER_EVENTS": str(tmp_path / "events.jsonl")}
    repo, other = Repo.make(tmp_path / "r"), Repo.make(tmp_path / "other")
    assert repo.run("echo z >>src/a.py", "false", "--rollback", "none", env=shared).code == 3
    (repo.root / ".git/evolver/stream.path").unlink()
    assert other.run("true", env={**shared, "EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    assert repo.run("true", env=shared).code == 3 and (repo.root / LOCK).is_file()
