"""What a person does between two iterations belongs to the next baseline, however soon after the rollback it is done."""

from __future__ import annotations

from pathlib import Path

from evolver.definition import RollbackSection
from evolver.layout import locate
from evolver.lock import run_lock
from evolver.worktree.workspace import Workspace
from oracle import Snapshot, differences
from support import Repo


def test_a_change_made_at_once_after_a_verified_rollback_is_taken_into_the_next_baseline(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    layout = locate(repo.root)
    with run_lock(layout):
        workspace = Workspace.open(layout, rollback=RollbackSection())
        for number in range(1, 4):
            baseline = workspace.baseline(f"01900000-0000-7000-8000-000000000000/{number}")
            repo.sh(f"echo agent >>src/a.py; echo agent >agent-{number}")
            attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
            workspace.restore(baseline, attempt)
            assert workspace.verify(baseline).equal
            (repo.root / f"mine-{number}").write_text("written the moment the rollback was verified")
            (repo.root / "notes.txt").write_text(f"note {number}")
            before = Snapshot.of(repo.root)
            baseline = workspace.baseline(f"01900000-0000-7000-8000-000000000000/{number}b")
            repo.sh(f"echo agent >mine-{number}; rm notes.txt")
            attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
            workspace.restore(baseline, attempt)
            assert workspace.verify(baseline).equal
            assert differences(before, Snapshot.of(repo.root)) == []
