"""What the resume lock says of a held attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from evolver.errors import ExitStatus
from evolver.keeping import sha256_text
from evolver.layout import Layout
from evolver.resume_lock import ResumeLock
from evolver.telling import NAMED, text_path
from evolver.worktree.values import Attempt, Baseline

HELD_LINES = 20_000  # paths of a held attempt that the resume lock remembers one by one; of the others it has a digest


def held_lines(attempt: Attempt) -> tuple[str, ...]:
    """The attempt as it was when the loop stopped, a line a path, so that `resume` can say what drifted since."""
    lines = [f"{c.kind} {text_path(c.path)} {c.digest}" for c in attempt.changes]
    rest = lines[HELD_LINES:]
    if not rest:
        return tuple(lines)
    return (*lines[:HELD_LINES], f"and {len(rest)} more {sha256_text(chr(10).join(rest))}")


def lock_of(
    layout: Layout,
    run_id: str,
    number: int,
    baseline: Baseline,
    attempt: Attempt,
    *,
    reason: str,
    mode: str,
    status: ExitStatus,
    loop: str,
    definition: str,
    failed_step: str,
    leftovers: Sequence[str],
    changes_digest: str | None,
) -> ResumeLock:
    return ResumeLock(
        run_id=run_id,
        iteration=number,
        iteration_id=f"{run_id}/{number}",
        pre_ref=baseline.pre_ref,
        post_ref=attempt.post_ref,
        reason=reason,
        baseline=baseline.fingerprint,
        rollback_mode=mode,
        exit_code=int(status),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        loop=loop,
        definition=definition,
        validators_failed=failed_step,
        leftovers=tuple(leftovers[:NAMED]),
        held=held_lines(attempt),
        vault=str(layout.vault),
        changes_digest=changes_digest,
    )
