"""A person worked on after a crash: what recovery removes is kept whole, and an acceptance that was made stands."""

from __future__ import annotations

import ast
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Done, Repo, ended


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def crash(repo: Repo, point: str = "iteration.codegen_done", codegen: str = "echo x >y") -> None:
    assert repo.run(codegen, "true", env={"EVOLVER_CRASH_AT": point}).code == -signal.SIGKILL


def resumed(repo: Repo, **env: str) -> Done:
    return repo.evolver("resume", "--rollback", "hard", env=env)


def recovered(repo: Repo) -> dict[str, object]:
    data = repo.events("run.recovered")[-1]["data"]
    assert isinstance(data, dict)
    return data


def nested(repo: Repo) -> None:
    repo.sh("git init -q -b main nested && cd nested && echo 1 >f && git add f && git commit -qm n1")


def overlaid(repo: Repo, copies: object, target: Path) -> Path:
    """The restored tree with the copies put over it, without what had gone: as it was before recovery."""
    shutil.copytree(repo.root, target, symlinks=True)
    for line in (Path(str(copies)) / "contents").read_text().splitlines():
        if line.startswith("removed "):
            gone = target / ast.literal_eval(line.removeprefix("removed "))
            if not gone.is_dir():
                gone.unlink()
    repo.sh(f"cp -a {copies}/worktree/. {target}")
    return target


def test_commits_in_a_nested_repository(repo: Repo, tmp_path: Path) -> None:
    nested(repo)
    before = Snapshot.of(repo.root)
    crash(repo)
    repo.sh("cd nested && echo 2 >f && git commit -qam n2 && echo 3 >g && git gc -q")
    made = repo.sh("git -C nested rev-parse HEAD").strip()
    assert resumed(repo).code == 0
    assert differences(before, Snapshot.of(repo.root)) == []
    found = recovered(repo)
    there = overlaid(repo, found["copies"], tmp_path / "over")
    assert repo.sh(f"git -C {there}/nested rev-parse HEAD").strip() == made
    assert repo.sh(f"git -C {there}/nested fsck --no-dangling --no-progress 2>&1") == ""
    assert (there / "nested/f").read_text() == "2\n"


def test_ignored_files_of_any_size(repo: Repo) -> None:
    (repo.root / "big.log").write_bytes(b"\0" * 2_000_000)
    (repo.root / "gone.log").write_bytes(b"mine\n")
    before = Snapshot.of(repo.root)
    crash(repo)
    edited = b"\1" * 3_000_000
    (repo.root / "big.log").write_bytes(edited)
    (repo.root / "new.log").write_bytes(edited)
    assert resumed(repo).code == 0
    assert differences(before, Snapshot.of(repo.root)) == []
    copies = Path(str(recovered(repo)["copies"]))
    assert (copies / "worktree/big.log").read_bytes() == edited
    assert (copies / "worktree/new.log").read_bytes() == edited
    assert "new.log" in repo.evolver("attempts", "show", "last").out
    assert repo.evolver("attempts", "drop", "last").code == 0
    assert not copies.exists()


def test_what_cannot_be_kept_is_not_removed(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    crash(repo)
    (repo.root / "new.log").write_bytes(b"\1" * 3_000_000)
    assert resumed(repo, EVOLVER_MAX_VAULT="1MiB").code == 4
    assert (repo.root / "new.log").stat().st_size == 3_000_000
    assert (repo.root / ".git/evolver/resume.lock").exists()
    repo.sh("rm new.log")
    assert resumed(repo).code == 0
    assert differences(before, Snapshot.of(repo.root)) == []


def test_commits_branches_and_stash_entries(repo: Repo) -> None:
    crash(repo)
    repo.sh("rm y; echo 1 >p && git add p && git commit -qm one && git switch -qc topic && echo 2 >q && git add q && git commit -qm two")
    repo.sh("git switch -q main && echo wip >w && git stash -qu && git remote add theirs /nowhere")
    wanted = repo.sh("git rev-parse main topic stash").split()
    assert resumed(repo).code == 0
    assert repo.sh("git branch --list topic") + repo.sh("git stash list") + repo.sh("git remote") == ""
    for commit in wanted:
        assert "refs/evolver/attempts/" in repo.sh(f"git for-each-ref --contains {commit}")
    config = Path(str(recovered(repo)["copies"])) / "control"
    assert any("/nowhere" in file.read_text() for file in config.iterdir())
    assert repo.evolver("attempts", "drop", "last").code == 0
    assert repo.sh("git for-each-ref refs/evolver/attempts") == ""


@pytest.mark.parametrize("point", ["keep.copies", "keep.after", "restore.refs"])
def test_recovery_killed_keeps_it_all_the_same(repo: Repo, tmp_path: Path, point: str) -> None:
    nested(repo)
    crash(repo)
    repo.sh("head -c 2000000 /dev/zero >new.log; echo 1 >p && git add p && git commit -qm one && git branch topic")
    repo.sh("cd nested && echo 2 >f && git commit -qam n2")
    made, inside = repo.head(), repo.sh("git -C nested rev-parse HEAD").strip()
    done = resumed(repo, EVOLVER_CRASH_AT=point)
    assert done.code == -signal.SIGKILL, done.text
    (repo.root / "later").write_text("after the second crash\n")
    assert resumed(repo).code == 0
    assert repo.sh(f"git for-each-ref --contains {made} refs/evolver/attempts") != ""
    kept = sorted((repo.root / ".git/evolver/kept").glob("*/*"))
    assert all(not k.name.endswith(".partial") for k in kept)
    there = tmp_path / "over"
    shutil.copytree(repo.root, there, symlinks=True)
    for copies in reversed(kept):
        repo.sh(f"cp -a {copies}/worktree/. {there}")
    assert repo.sh(f"git -C {there}/nested rev-parse HEAD").strip() == inside
    assert (there / "new.log").stat().st_size == 2_000_000
    names = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/attempts").split()
    assert any("later" in repo.sh(f"git ls-tree -r --name-only {n}^3 2>/dev/null", check=False) for n in names)


def test_mode_stash_keeps_what_an_entry_cannot_hold(repo: Repo, tmp_path: Path) -> None:
    nested(repo)
    before = Snapshot.of(repo.root)
    agent = "echo x >y; cd nested && echo agent >f && git commit -qam agent && git rev-parse HEAD >../../made"
    done = repo.run(agent, "false", "--rollback", "stash")
    assert done.code == 1, done.text
    assert differences(before, Snapshot.of(repo.root), stash=False) == []
    data = repo.events("rollback.finished")[-1]["data"]
    there = overlaid(repo, data["copies"], tmp_path / "over")
    assert repo.sh(f"git -C {there}/nested rev-parse HEAD") == (tmp_path / "made").read_text()
    assert data["copies"] in done.text + repo.evolver("attempts", "show", "last").out
    assert repo.evolver("attempts", "drop", "last").code == 0
    assert not Path(data["copies"]).exists()


@pytest.mark.parametrize("point", ["restore.refs", "accept.after"])
def test_a_person_commits_on_top_of_the_accepting_commit(repo: Repo, point: str) -> None:
    repo.sh("echo s >>run.sh && git stash -q")
    mine = repo.sh("git rev-parse stash")
    crash(repo, point, "echo x >y; git stash clear; git branch agents")
    accepting = repo.head()
    time.sleep(1.1)
    repo.sh("echo p >p && git add p && git commit -qm one && echo p >>p && git commit -qam two && git branch topic")
    if point != "restore.refs":
        repo.sh("echo wip >>p && git stash -q")
    tip, stash = repo.head(), repo.sh("git stash list").splitlines()
    assert repo.evolver("resume").code == 0
    assert recovered(repo)["action"] == "acceptance_recorded"
    assert [e["data"]["commit"] for e in repo.events("iteration.accepted")] == [accepting]
    assert repo.head() == tip
    assert repo.sh("git branch --list topic agents").split() == ["topic"]
    listed = repo.sh("git stash list --format=%H").split()
    assert listed[-1] == mine.strip()
    assert len(listed) == max(len(stash), 1)


def test_an_acceptance_that_cannot_bring_the_stash_list_back_is_held(repo: Repo) -> None:
    repo.sh("echo s >>run.sh && git stash -q")
    mine = repo.sh("git rev-parse stash")
    log = repo.root / ".git/logs/refs/stash"
    (repo.root.parent / "probe").touch()
    if subprocess.run(["chattr", "+i", repo.root.parent / "probe"], capture_output=True, check=False).returncode:
        pytest.skip("needs immutable files")
    subprocess.run(["chattr", "-i", repo.root.parent / "probe"], check=True)
    try:
        done = repo.run(f"echo x >y; git stash clear; : >{log}; chattr +i {log}", "true")
        assert done.code == 4, done.text
        assert repo.events("iteration.accepted") == []
        assert (repo.root / ".git/evolver/resume.lock").exists()
    finally:
        subprocess.run(["chattr", "-i", log], check=False)
    assert resumed(repo).code == 0
    assert repo.sh("git rev-parse stash") == mine and not (repo.root / "y").exists()


def test_a_copy_of_a_live_repository_leaves_the_run_alone(repo: Repo, tmp_path: Path) -> None:
    process = repo.start("run", "--max-iters", "1", "--codegen", "echo x >y; touch ../up; sleep 5", "--validate", "true")
    repo.wait_for(lambda: (tmp_path / "up").exists())
    copy = Repo(tmp_path / "copy")
    shutil.copytree(repo.root, copy.root, symlinks=True)
    copy.evolver("resume", "--rollback", "hard")
    assert ended(process).code == 0
    assert [e["data"]["action"] for e in copy.events("run.recovered")][:1] != ["killed"]
    assert all(not e["data"].get("killed") for e in copy.events("run.recovered"))


def test_drift_is_seen_among_more_paths_than_the_lock_remembers_one_by_one(repo: Repo) -> None:
    done = repo.run("mkdir many && cd many && seq 20100 | xargs touch", "false", "--rollback", "none")
    assert done.code == 3, done.text
    lock = json.loads((repo.root / ".git/evolver/resume.lock").read_text())
    assert lock["held"][-1].startswith("and ")
    first = {line.split(" ")[1] for line in lock["held"][:-1]}
    beyond = next(f"many/{n}" for n in range(1, 20101) if f"many/{n}" not in first)
    (repo.root / beyond).write_text("mine\n")
    assert repo.evolver("resume", "--rollback", "hard").code == 0
    names = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/attempts").split()
    assert any(repo.sh(f"git show {n}^3:{beyond}", check=False) == "mine\n" for n in names)
