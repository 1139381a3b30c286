"""Named places where a test may kill the process for real (SIGKILL), to prove that recovery works from there.

`EVOLVER_CRASH_AT=name` kills at the first pass, `name:N` at the N-th. A crash point is never a raised exception: nothing may
clean up behind it, as nothing does behind a power failure.
"""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "baseline.before",
    "baseline.objects",
    "baseline.vault",
    "baseline.lifeboat",
    "baseline.after",
    "guard.before",
    "guard.entry",
    "guard.git_rebuilt",
    "guard.after",
    "inspect.after",
    "preserve.before",
    "preserve.commit",
    "preserve.after",
    "keep.copies",
    "keep.before",
    "keep.after",
    "settle.after",
    "restore.before",
    "restore.moved",
    "restore.deleted",
    "restore.written",
    "restore.file",
    "restore.refs",
    "restore.stash",
    "restore.index",
    "restore.after",
    "accept.before",
    "accept.commit",
    "accept.ref",
    "accept.index",
    "accept.after",
    "hold.before",
    "hold.after",
    "release.before",
    "release.after",
    "run.started",
    "run.between",
    "run.finished",
    "iteration.before_baseline",
    "iteration.started",
    "iteration.codegen_done",
    "iteration.inspected",
    "iteration.validated",
    "iteration.accepting",
    "iteration.accepted",
    "iteration.rollback_started",
    "iteration.preserved",
    "iteration.restored",
    "iteration.verified",
    "iteration.before_lock",
    "iteration.locked",
    "recovery.done",
    "effect.started",
    "effect.ran",
    "effect.succeeded",
    "effect.rolling_back",
    "effect.undone",
)

# Outside runs: each feature's own tests kill there.
OTHER_CRASH_POINTS = ("changes.write", "changes.step", "revert.merged", "revert.committed", "vouched.index", "vouched.ref")

_passes: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Kill this process when the environment asks for it here. Raise `ValueError` on a name that is not registered."""
    if name not in CRASH_POINTS and name not in OTHER_CRASH_POINTS:
        raise ValueError(f"crash point {name!r} is not registered")
    wanted = os.environ.get("EVOLVER_CRASH_AT")
    if not wanted:
        return
    target, _, count = wanted.partition(":")
    if target != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
