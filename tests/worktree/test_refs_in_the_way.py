"""A branch that gave way to another below its name, packed by gc: found by the state machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


@pytest.mark.parametrize("mode", ["hard", "stash"])
def test_a_branch_replaced_by_one_below_its_name_and_packed(tmp_path: Path, mode: str) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other")
    before = Snapshot.of(repo.root)
    agent = "git branch -D other; git branch other/one; git reflog expire --expire=now --all; git gc -q --prune=now; echo z >>src/a.py"
    done = repo.run(agent, "false", "--rollback", mode)
    assert done.code == 1, done.text
    assert differences(before, Snapshot.of(repo.root), stash=mode != "stash") == []
