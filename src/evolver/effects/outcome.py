"""What undoing the effects of an iteration came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compensation:
    """How undoing the effects of an iteration went. `left`: what nothing reverts and therefore stays."""

    ok: bool = True
    reason: str = ""
    left: tuple[str, ...] = ()
