"""A validator of a passing attempt that deletes the user's ignored files; an attempt too large to hash."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def test_the_user_s_ignored_files_that_a_validator_deletes_are_named_and_their_bytes_kept(repo: Repo) -> None:
    (repo.root / "build").mkdir()
    (repo.root / "build/precious.bin").write_text("precious")
    judge = "test $EVOLVER_ITERATION = 0 || rm -rf build"
    done = repo.run("echo z >>src/a.py", judge)
    assert done.code == 0, done.text
    told = repo.events("iteration.accepted")[0]["data"]
    assert told["user_files"] == ["build/precious.bin"]
    vault = Path(told["user_files_kept"])
    kept = [json.loads(line) for line in (vault / "kept.jsonl").read_bytes().splitlines()]
    digest = next(k["sha256"] for k in kept if k["path"] == "build/precious.bin")
    assert (vault / "objects" / digest[:2] / digest[2:]).read_text() == "precious"


@pytest.mark.parametrize("mode", ["hard", "none"])
def test_a_giant_file_of_the_attempt_is_rejected_without_being_hashed(repo: Repo, mode: str) -> None:
    before = Snapshot.of(repo.root)
    begun = time.monotonic()
    done = repo.run("truncate -s 3G huge.bin; echo z >>src/a.py", "true", "--rollback", mode, env={"EVOLVER_MAX_VAULT": "1GiB"})
    assert done.code == (3 if mode == "none" else 1), done.text
    assert "MiB of new or changed files" in done.out
    if mode == "none":
        assert repo.evolver("resume", "--rollback", "hard", env={"EVOLVER_MAX_VAULT": "1GiB"}).code == 0
    assert differences(before, Snapshot.of(repo.root)) == []
    assert time.monotonic() - begun < 60


def test_a_giant_attempt_cannot_be_stashed_and_is_held_instead_of_destroyed(repo: Repo) -> None:
    env = {"EVOLVER_MAX_VAULT": "1GiB"}
    done = repo.run("truncate -s 3G huge.bin", "true", "--rollback", "stash", env=env)
    assert done.code == 4, done.text
    assert (repo.root / "huge.bin").exists()
    assert repo.evolver("resume", "--rollback", "hard", env=env).code == 0
    assert not (repo.root / "huge.bin").exists()
