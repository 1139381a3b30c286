"""A run's stream with all that hangs on it: sinks, signed checkpoints, the anchor ref at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evolver.audit import Signer, move_anchor_ref
from evolver.errors import EvolverError, LogError
from evolver.events.log import EventLog
from evolver.layout import Layout
from evolver.sinks.base import Configured
from evolver.sinks.forwarder import Forwarder


@contextmanager
def attended(
    log: EventLog,
    layout: Layout,
    *,
    run_id: str,
    sinks: list[Configured],
    sign_key: Path | None,
    late: Callable[[str], None],
) -> Iterator[None]:
    """Forward and sign while the run lasts; at its end sign once more, let sinks drain (`late` is told who did not), and move
    the anchor ref. Raise `UsageError` for a key that cannot be used."""
    signer = Signer.open(log, sign_key) if sign_key is not None else None
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    try:
        yield
    finally:
        try:
            if signer is not None:
                signer.checkpoint(run_id)
            if log.head is not None:
                anchor(layout, log)
        finally:
            for words in forwarder.drain():
                late(words)


def anchor(layout: Layout, log: EventLog) -> None:
    """Let `refs/evolver/audit/…` remember where the stream ends; a repository git cannot write to keeps its older anchor."""
    if log.head is None:
        return
    if any(os.path.exists(p) for p in (layout.resume_lock, layout.lifeboat / "resume.lock")):  # noqa: PTH110 - see `requests`
        return  # held: git's folder is as the attempt left it, and no git of ours runs in it
    try:
        move_anchor_ref(layout, log.path, log.head)
    except LogError:
        raise
    except EvolverError:
        return  # held with a broken repository: the head files still anchor the end
