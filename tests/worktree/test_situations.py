"""Every situation of tests/situations, each in all three modes: hard and stash restore, none holds and can be rolled back.

The judge is the oracle, which shares no code with the implementation. One parametrisation a family of hazards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolver.errors import PreflightError
from evolver.model import DirtyPolicy
from oracle import Snapshot, differences
from worktree.scene import Scene, situations


def run(case: dict[str, Any], tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, case.get("setup", ""))
    if case.get("expect") == "refuse":
        with pytest.raises(PreflightError) as refused:
            scene.workspace().preflight(dirty=DirtyPolicy.KEEP)
        assert refused.value.hint
        assert scene.wrong() == []
        return
    agent = case["agent"]

    first = scene.attempt(agent)
    assert first.attempt.changed
    assert first.reject().differences == ()
    assert scene.wrong() == []

    second = scene.attempt(agent)
    kept = second.preserve()
    assert second.reject().differences == ()
    assert scene.wrong(stash=False) == []
    if not case.get("keeps_nothing"):
        assert kept.stash is not None
        assert scene.git("rev-parse", "stash@{0}").decode().strip() == kept.stash
        assert second.missing_from(kept.stash) == []
    if kept.stash is not None:
        scene.git("stash", "drop", "-q")

    held = scene.attempt(agent)
    held.workspace.hold(held.baseline, held.attempt)
    touched = differences(held.left, Snapshot.of(scene.root))
    assert [line for line in touched if "evolver" not in line] == []
    later = scene.workspace()
    baseline = later.load_baseline(held.baseline.fingerprint)
    assert not later.fingerprint_now(baseline).equal
    attempt = later.inspect(baseline, later.guard_control(baseline))
    later.restore(baseline, attempt)
    assert later.verify(baseline).differences == ()
    assert scene.wrong() == []
    later.restore(baseline, attempt)  # twice changes nothing
    assert scene.wrong() == []


def ids(case: dict[str, Any]) -> str:
    return str(case["id"])


@pytest.mark.parametrize("case", situations("user"), ids=ids)
def test_the_users_own_state(case: dict[str, Any], tmp_path: Path) -> None:
    run(case, tmp_path)


@pytest.mark.parametrize("case", situations("git"), ids=ids)
def test_what_an_agent_does_with_git(case: dict[str, Any], tmp_path: Path) -> None:
    run(case, tmp_path)


@pytest.mark.parametrize("case", [c for c in situations("files") if not c.get("late")], ids=ids)
def test_what_an_agent_does_to_files(case: dict[str, Any], tmp_path: Path) -> None:
    run(case, tmp_path)


@pytest.mark.parametrize("case", [c for c in situations("hostile") if not c.get("blocks")], ids=ids)
def test_what_redirects_or_starves_whoever_looks(case: dict[str, Any], tmp_path: Path) -> None:
    if "state-is-a-link" in case["id"] or "lifeboat" in case["id"]:
        pytest.skip("steers evolver's own folders: shown through the command line by the attack tests")
    run(case, tmp_path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", [c for c in situations("hostile") if c.get("blocks")], ids=ids)
def test_nothing_waits_for_what_an_agent_put_where_git_reads(case: dict[str, Any], tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, case.get("setup", ""))
    for preserve in (False, True):
        workspace = scene.workspace()
        baseline = workspace.baseline("01900000-0000-7000-8000-000000000000/1")
        scene.sh(case["agent"], check=False)
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        list(workspace.diff(baseline, attempt))
        if preserve:
            kept = workspace.preserve(baseline, attempt, message="evolver 01900000-0000-7000-8000-000000000000/1: test")
            assert kept.stash is not None
        workspace.restore(baseline, attempt)
        assert workspace.verify(baseline).differences == ()
        assert scene.wrong(stash=False) == []
