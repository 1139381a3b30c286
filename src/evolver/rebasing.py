"""Moving an isolated run's commits onto a branch that went on: rebased in the clone, judged there again, never by force.

It may be killed at any time: the baseline is in the clone's vault before anything moves, and `recover` puts it back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver import clone as clones
from evolver.clone import Unlanded
from evolver.cloning import git_of, switch
from evolver.errors import NotRestoredError
from evolver.git import Git
from evolver.layout import Layout
from evolver.model import Judgement, Verdict
from evolver.process import sweep_dead_run
from evolver.resume_lock import write_atomic
from evolver.worktree.values import Baseline
from evolver.worktree.workspace import Workspace

_ONTO = "refs/evolver/onto"
_QUIET = ("rebase.autoStash=false", "rebase.autoSquash=false", "rebase.updateRefs=false", "rebase.missingCommitsCheck=ignore")


class _Mark(msgspec.Struct, frozen=True):
    """Beside the clone while a rebase is under way."""

    run_id: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Rebased:
    """What became of it; `verdict.step` is `rebase` when git could not do it."""

    record: Unlanded
    verdict: Verdict


def rebase(
    person: Layout,
    clone: Layout,
    workspace: Workspace,
    record: Unlanded,
    judge: Callable[[Baseline, str], tuple[Verdict, bool]],
) -> Rebased:
    """Rebase the run's branch onto the person's and judge the result. `judge` gets the clone's baseline and the commit that is
    checked out; it says the verdict, and whether a writer survived.

    Passing: the branch in the clone is the rebased one. Otherwise the clone is as it was. Raise `NotRestoredError`.
    """
    git = git_of(clone)
    git.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(person.root), f"+{record.onto}:{_ONTO}")
    target = git.text("rev-parse", _ONTO)
    tip = git.text("rev-parse", record.branch)
    if git.run("symbolic-ref", "--quiet", "HEAD", check=False).text != record.branch:
        switch(clone, git, tip, record.branch)
    baseline = workspace.baseline(f"{record.run_id}/0")
    mark = _mark_path(clone)
    write_atomic(mark, msgspec.json.encode(_Mark(record.run_id, baseline.fingerprint)))
    verdict, survivors, new = _rebased(git, record, tip, target), False, ""
    if verdict is None:
        new = git.text("rev-parse", "HEAD")
        verdict, survivors = judge(baseline, new)
    _put_back(workspace, baseline, survivors)
    mark.unlink()
    workspace.release()
    if verdict.passed:
        switch(clone, git, new, record.branch)
        record = msgspec.structs.replace(record, start=target)
        clones.remember(clone, record)
    return Rebased(record, verdict)


def _rebased(git: Git, record: Unlanded, tip: str, target: str) -> Verdict | None:
    """None when it went well; HEAD is then the new tip, detached."""
    git.run("checkout", "--quiet", "--detach", tip, "--")
    options = git.but(options=(*git.options, *_QUIET))
    done = options.run("rebase", "--quiet", "--merge", "--no-verify", "--no-fork-point", "--onto", target, record.start, check=False)
    if done.ok:
        return None
    conflicts = [os.fsdecode(f) for f in git.run("diff", "--name-only", "--diff-filter=U", "-z", "--").fields()]
    git.run("rebase", "--abort", check=False)
    last = os.fsdecode(done.err).strip().splitlines()
    why = f"conflicts in {', '.join(conflicts[:5])}" if conflicts else " / ".join(last[-2:]) or f"git rebase: exit {done.code}"
    return Verdict(Judgement.FAIL, why, "rebase")


def recover(clone: Layout, workspace: Workspace) -> bool:
    """Finish a rebase that was killed; whether there was one. The caller holds the locks. Raise `NotRestoredError`."""
    try:
        mark = msgspec.json.decode(_mark_path(clone).read_bytes(), type=_Mark)
    except FileNotFoundError:
        return False
    _, survivors = sweep_dead_run(mark.run_id, [])
    if survivors:
        raise NotRestoredError(
            f"processes {', '.join(map(str, survivors))} of a landing that was killed still live", "Stop them, then try again."
        )
    _put_back(workspace, workspace.load_baseline(mark.baseline), False)
    _mark_path(clone).unlink()
    workspace.release()
    return True


def _put_back(workspace: Workspace, baseline: Baseline, survivors: bool) -> None:
    attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
    restored = workspace.restore(baseline, attempt)
    verified = workspace.verify(baseline)
    if survivors or not verified.equal:
        left = ", ".join((*verified.differences, *restored.problems)[:5]) or "processes that cannot be killed"
        raise NotRestoredError(f"the clone {workspace.layout.root} could not be put back: {left}", "Look at it by hand.")


def _mark_path(clone: Layout) -> Path:
    return clone.root.parent / "rebasing"
