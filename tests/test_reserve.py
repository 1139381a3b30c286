"""Room kept for a rollback: there while an agent works, gone after the run, and never a way to write where an agent points."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver import reserve
from support import Repo


def test_it_is_there_while_the_agent_works_and_gone_after_the_run(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    seen = tmp_path / "seen"
    done = repo.run(f"stat -c %b .git/evolver/reserve >'{seen}'; echo z >>src/a.py", "false")
    assert done.code == 1, done.text
    assert int(seen.read_text()) * 512 >= reserve.SIZE
    assert not (repo.root / ".git/evolver/reserve").exists()


@pytest.mark.parametrize("plant", ["ln -s ../../src/a.py reserve", "mkdir -p reserve/x", "mkfifo reserve", "rm -f reserve"])
def test_what_an_agent_plants_in_its_place_is_neither_followed_nor_in_the_way(tmp_path: Path, plant: str) -> None:
    repo = Repo.make(tmp_path / "r")
    before = (repo.root / "src/a.py").read_bytes()
    done = repo.run(f"cd .git/evolver && rm -f reserve && {plant}; echo z >>../../src/pkg/b.py", "false", "--max-iters", "2")
    assert done.code == 1, done.text
    assert (repo.root / "src/a.py").read_bytes() == before
    assert len(repo.events("rollback.finished")) == 2


def test_holding_twice_makes_it_once_and_letting_go_says_whether_there_was_one(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve.hold(path)
    first = path.stat()
    reserve.hold(path)
    assert path.stat().st_ino == first.st_ino
    path.write_bytes(b"")  # truncated by somebody: no room in it any more
    reserve.hold(path)
    assert path.stat().st_blocks * 512 >= reserve.SIZE
    assert reserve.let_go(path) and not reserve.let_go(path)
    reserve.hold(tmp_path / "no" / "folder")  # best effort: nothing raised
