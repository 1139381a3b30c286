"""Iterations in the stream's words: one function an event, from the values an iteration already has."""

from __future__ import annotations

from decimal import Decimal

from evolver.events.types import IterationAccepted, IterationAccepting, IterationInspected, IterationNoChange, IterationStarted
from evolver.model import RollbackMode
from evolver.worktree.values import Accepted, Attempt, Baseline, Preserved, Restored

NAMED = 100  # paths named in one event


def text_path(path: bytes) -> str:
    """A path for people and JSON: bytes that are no UTF-8 come out as `\\xff`."""
    return path.decode("utf-8", "backslashreplace")


def started(iteration_id: str, mode: RollbackMode, baseline: Baseline, changes_digest: str | None) -> IterationStarted:
    return IterationStarted(
        from_="idle",
        to="codegen",
        iteration_id=iteration_id,
        rollback_mode=str(mode),
        pre_ref=baseline.pre_ref,
        branch=baseline.branch,
        baseline=baseline.fingerprint,
        files=baseline.files,
        changes_digest=changes_digest,
    )


def inspected(iteration_id: str, baseline: Baseline, attempt: Attempt) -> IterationInspected:
    kinds = [str(c.kind) for c in attempt.changes]
    return IterationInspected(
        iteration_id=iteration_id,
        pre_ref=baseline.pre_ref,
        post_ref=attempt.post_ref,
        added=kinds.count("added"),
        modified=kinds.count("modified"),
        deleted=kinds.count("deleted"),
        paths=tuple(text_path(c.path) for c in attempt.changes[:NAMED]),
        commits=len(attempt.commits),
        refs=tuple(r.name for r in attempt.refs[:NAMED]),
        control=attempt.control.changed[:NAMED],
        committable=attempt.committable,
        patch_id=attempt.patch_id,
    )


def accepting(iteration_id: str, baseline: Baseline, attempt: Attempt) -> IterationAccepting:
    return IterationAccepting(
        from_="validated",
        to="accepting",
        iteration_id=iteration_id,
        pre_ref=baseline.pre_ref,
        post_ref=attempt.post_ref,
        tree=attempt.tree,
    )


def accepted(
    iteration_id: str,
    baseline: Baseline,
    attempt: Attempt,
    done: Accepted,
    score: Decimal | None,
    kept_in: str,
    elapsed_ms: int,
) -> IterationAccepted:
    return IterationAccepted(
        from_="accepting",
        to="accepted",
        iteration_id=iteration_id,
        pre_ref=baseline.pre_ref,
        commit=done.commit,
        branch=baseline.branch,
        paths=tuple(text_path(p) for p in done.paths[:NAMED]),
        paths_total=len(done.paths),
        insertions=attempt.insertions,
        deletions=attempt.deletions,
        squashed=done.squashed,
        user_files=tuple(text_path(p) for p in done.user_files[:NAMED]),
        user_files_kept=kept_in if done.user_files else "",
        score=str(score) if score is not None else None,
        duration_ms=elapsed_ms,
    )


def no_change(
    iteration_id: str,
    baseline: Baseline,
    attempt: Attempt,
    restored: Restored,
    preserved: Preserved,
    verified: bool,
    elapsed_ms: int,
) -> IterationNoChange:
    return IterationNoChange(
        from_="inspected",
        to="no_change",
        iteration_id=iteration_id,
        pre_ref=baseline.pre_ref,
        reason="the attempt left nothing to commit" if attempt.changed else "the attempt changed nothing",
        restored=restored.written + restored.deleted,
        verified=verified,
        stash_ref=preserved.stash,
        attempt_ref=preserved.refs[0] if preserved.refs else None,
        duration_ms=elapsed_ms,
    )
