"""Who agreed that a risky effect may run. The event stream is the only record: a grant is an `effect.approved` in the chain.

A grant holds for one definition of one effect, for good; any change of its command, undo, args or risk asks again. It is
looked up by its hash in the raw bytes of the segments, newest first, which takes about a second for a gibibyte of events,
and only where a loop has risky effects.
"""

from __future__ import annotations

import mmap
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import msgspec

from evolver.effects.plan import EffectPlan
from evolver.errors import LogError, PreflightError
from evolver.events import chain, lines, paths
from evolver.events.types import EffectApproved

Policy = Literal["ask", "listed", "never"]
LISTED = "loop file"  # `by` of what the loop file itself approves


class _Grant(msgspec.Struct, frozen=True):
    definition_hash: str = ""
    by: str = ""


_DECODER = msgspec.json.Decoder(_Grant)


def granted(log: Path, wanted: Collection[str]) -> frozenset[str]:
    """Which of these definition hashes a person approved. Raise `LogError` when the stream cannot be read."""
    missing, found = set(wanted), set[str]()
    for segment in reversed(paths.segments(log)):
        if not missing:
            break
        try:
            with segment.open("rb") as file:
                if segment.stat().st_size == 0:
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    here = {digest for digest in missing if _stands_in(data, digest)}
        except OSError as error:
            raise LogError(f"{segment}: {error.strerror}", "Approvals are read from the event stream.") from error
        found |= here
        missing -= here
    return frozenset(found)


def _stands_in(data: mmap.mmap, digest: str) -> bool:
    needle = digest.encode()
    at = data.rfind(needle)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        if end >= 0 and _is_grant(data[start:end], digest):
            return True
        at = data.rfind(needle, 0, start) if start else -1
    return False


def _is_grant(line: bytes, digest: str) -> bool:
    envelope = lines.ours(line)
    if envelope is None or envelope.name != EffectApproved.TYPE or not chain.intact(line):
        return False
    try:
        grant = _DECODER.decode(envelope.data)
    except msgspec.DecodeError:
        return False
    return grant.definition_hash == digest and grant.by != LISTED


def event(plan: EffectPlan, by: str) -> EffectApproved:
    """What goes into the chain."""
    return EffectApproved(
        from_="queued",
        to="approved",
        effect=plan.name,
        action=plan.action,
        definition_hash=plan.definition_hash,
        risk=plan.risk,
        rollback_available=plan.rollback_available,
        by=by,
    )


def unapproved(plans: Collection[EffectPlan], policy: Policy, log: Path) -> tuple[EffectPlan, ...]:
    """The risky effects that may not run."""
    risky = tuple(plan for plan in plans if plan.risky)
    if policy == "listed" or not risky:
        return ()
    if policy == "never":
        return risky
    held = granted(log, {plan.definition_hash for plan in risky})
    return tuple(plan for plan in risky if plan.definition_hash not in held)


def refuse(plans: tuple[EffectPlan, ...], policy: Policy, loop: str) -> None:
    """Raise `PreflightError` when there is anything that may not run."""
    if not plans:
        return
    named = ", ".join(f"{plan.name!r} ({plan.action}, risk {plan.risk})" for plan in plans)
    if policy == "never":
        raise PreflightError(
            f'[effects] approve = "never", and these effects are risky: {named}',
            'Take them out of the loop file, or let a person decide: approve = "ask".',
        )
    look, approve = (f"evolver effects {verb} {shlex.quote(loop) if loop else ''}".rstrip() for verb in ("list", "approve"))
    raise PreflightError(
        f"risky effects that nobody approved as they stand now: {named}", f"Look with `{look}`, then approve with `{approve}`."
    )
