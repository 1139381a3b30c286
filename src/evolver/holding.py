"""What the resume lock says of a held attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from evolver.errors import ExitStatus
from evolver.keeping import sha256_text
from evolver.layout import Layout
from evolver.resume_lock import ResumeLock
from evolver.telling import NAMED, text_path
from evolver.worktree.values import Attempt, Baseline

HELD_LINES = 20_000  # paths of a held attempt that the resume lock remembers one by one; of the others it has a digest
_BEYOND = ("ref ", "index ", "control ")


def held_lines(attempt: Attempt, beyond: Sequence[str]) -> tuple[str, ...]:
    """The attempt as it was when the loop stopped, a line a path, ref and control file (`beyond`: `Workspace.beyond_paths`), so that
    `resume` can say what drifted since: a person may have changed nothing but refs or configuration."""
    refs = [f"ref {text_path(os.fsencode(r.name))} {text_path(os.fsencode(r.new or '-'))}" for r in attempt.refs]
    lines = [*beyond, *refs, *(f"{c.kind} {text_path(c.path)} {c.digest}" for c in attempt.changes)]
    rest = lines[HELD_LINES:]
    if not rest:
        return tuple(lines)
    return (*lines[:HELD_LINES], f"and {len(rest)} more {sha256_text(chr(10).join(rest))}")


def drift(then: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """Lines that changed since the hold. Of refs, index and control files only what is new: one that is the baseline's again (a rollback
    that failed half-way put it back) is nobody's loss."""
    old, new = set(then), set(now)
    known = any(line.startswith("index ") for line in then)  # not so where the attempt could not be inspected
    paths = {line for line in old ^ new if not line.startswith(_BEYOND)}
    added = {line for line in new - old if line.startswith(_BEYOND) and line != "index unchanged"}
    return tuple(sorted(paths | {line for line in added if known or not line.startswith("index ")}))


def planted(then: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """AREA/PATH of git's own files that the attempt changed and nobody since."""
    same = set(then) & set(now)
    return tuple(sorted(line.removeprefix("control ").rpartition(" ")[0] for line in same if line.startswith("control ")))


def drifted_name(line: str) -> str:
    """What a line is about, for a person."""
    kind, _, rest = line.partition(" ")
    name = rest.rpartition(" ")[0]
    return {"index": "the index", "control": f"control file {name.partition('/')[2]}", "ref": f"ref {name}"}.get(kind, name)


def lock_of(
    layout: Layout,
    run_id: str,
    number: int,
    baseline: Baseline,
    attempt: Attempt,
    beyond: Sequence[str],
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
        held=held_lines(attempt, beyond),
        vault=str(layout.vault),
        changes_digest=changes_digest,
    )
