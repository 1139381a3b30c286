"""What evolver keeps may not lie in the worktree, however the way leads there; its scratch files never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("mkdir tmp inner; echo u >tmp/user; ln -s r/inner ../into; ln -s '../outside' hop; mkdir ../outside; ln -s r/hop ../twice")
    return repo


INSIDE = ["r/state", "r/.git/state", "into/state", "r/hop/state", "twice/state", "outside/../r/x", "r"]


@pytest.mark.parametrize(("name", "place"), [*(("EVOLVER_STATE_DIR", p) for p in INSIDE), ("XDG_STATE_HOME", "r"), ("HOME", "r")])
def test_a_state_folder_in_the_worktree(repo: Repo, tmp_path: Path, name: str, place: str) -> None:
    before = Snapshot.of(repo.root)
    others = {n: "" for n in ("EVOLVER_STATE_DIR", "XDG_STATE_HOME") if n != name}
    done = repo.run("echo x >y", "true", env={**others, "GIT_CONFIG_GLOBAL": "/dev/null", name: str(tmp_path / place)})
    assert done.code == 2 and "inside the worktree" in done.err and "EVOLVER_STATE_DIR" in done.err, done.text
    assert differences(before, Snapshot.of(repo.root)) == []


@pytest.mark.parametrize("place", ["r/events.jsonl", "into/events.jsonl", "twice/events.jsonl"])
def test_a_stream_in_the_worktree(repo: Repo, tmp_path: Path, place: str) -> None:
    done = repo.run("echo x >y", "true", env={"EVOLVER_EVENTS": str(tmp_path / place)})
    assert done.code == 2 and "EVOLVER_EVENTS" in done.err, done.text


@pytest.mark.parametrize("place", ["r/tmp", "into"])
def test_scratch(repo: Repo, tmp_path: Path, place: str) -> None:
    where = 'printf %s "$EVOLVER_LAST_FAILURE" >>"$SEEN"'
    env = {"TMPDIR": str(tmp_path / place), "SEEN": str(tmp_path / "seen")}
    before = Snapshot.of(repo.root)
    assert repo.run(f"echo x >y; {where}", "false", env=env).code == 1
    assert differences(before, Snapshot.of(repo.root)) == []
    seen = (tmp_path / "seen").read_text()
    assert not Path(seen).resolve().is_relative_to(repo.root)
    assert repo.run("echo x >y", "true", env=env).code == 0
    assert repo.sh("git show --format= --name-only").split() == ["y"]
