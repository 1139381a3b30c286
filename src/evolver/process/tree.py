"""Everything a step started: found, ended, and proved dead.

Three marks find a process, since each can be shaken off: it descends from us (with the subreaper that holds for daemons as
well), it is in the step's session, it carries the run's id in its environment. A step runs in a session of its own and a
session can never be joined from outside; so a process of *our* session is never a step's, and git commands and other
helpers that run beside a step are safe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from evolver.process.subreaper import adopting
from evolver.process.table import Entry, ancestors, has_variable, send, snapshot
from evolver.process.values import RUN_ID

HELPERS: set[int] = set()  # pids of `run_simple` commands that are running: never a step's
KILL_PATIENCE = 10.0  # seconds until what SIGKILL did not end counts as a survivor
_PAUSE = 0.02


@dataclass(slots=True)
class Scope:
    """One step's processes. Made before the step starts: what we had as children by then is none of it."""

    run_id: str = ""
    root: int | None = None  # the step's first process: its pid is its session's id
    before: frozenset[tuple[int, str]] = field(default_factory=frozenset)
    seen: set[tuple[int, str]] = field(default_factory=set)  # everything that was ever signalled
    own_session: bool = False  # for a step inside this very process: then every child it started is in our session
    awaited: frozenset[int] = frozenset()  # children whose end somebody in this process waits for: never reaped behind his back

    @classmethod
    def take(cls, run_id: str) -> Scope:
        me = os.getpid()
        return cls(run_id, None, frozenset((e.pid, e.started) for e in snapshot().values() if e.ppid == me))

    def members(self) -> list[Entry]:
        """Who is alive. Reaps orphans that came to us and are dead already."""
        table = snapshot()
        me, session = os.getpid(), os.getsid(0)
        spared = ancestors(table, me)
        children: dict[int, list[Entry]] = {}
        for item in table.values():
            children.setdefault(item.ppid, []).append(item)
        found: dict[int, Entry] = {}
        queue = [e for e in children.get(me, []) if self._ours(e, session)]
        while queue:
            item = queue.pop()
            if item.pid not in found:
                found[item.pid] = item
                queue.extend(children.get(item.pid, []))
        for item in table.values():
            if item.pid in found or item.pid in spared or item.sid == session:
                continue
            if (self.root is not None and item.sid == self.root) or (
                self.run_id and not item.zombie and has_variable(item.pid, RUN_ID, self.run_id)
            ):
                found[item.pid] = item
        for item in found.values():
            if item.zombie and item.ppid == me and item.pid != self.root and item.pid not in self.awaited:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(item.pid, os.WNOHANG)
        return [item for item in found.values() if not item.zombie]

    def _ours(self, child: Entry, session: int) -> bool:
        """Whether a child of this process belongs to the step."""
        if (child.pid, child.started) in self.before or child.pid in HELPERS:
            return False
        return child.sid != session or self.own_session

    def signal(self, number: signal.Signals) -> list[Entry]:
        """Signal everyone alive; those that we may not signal are returned."""
        refused = []
        for item in self.members():
            self.seen.add((item.pid, item.started))
            if not send(item, number):
                refused.append(item)
        return refused

    def gone(self) -> bool:
        """Nobody is alive. Looked at twice: the table is read pid by pid, and a process may fork behind our back meanwhile."""
        return not self.members() and not self.members()

    def wait(self, seconds: float, *, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Until nobody is alive, at most `seconds`; True then. `give_up` ends the wait early."""
        deadline = time.monotonic() + seconds
        while not self.gone():
            if time.monotonic() >= deadline or give_up():
                return False
            time.sleep(_PAUSE)
        return True

    def kill(self, patience: float = KILL_PATIENCE) -> tuple[int, ...]:
        """SIGKILL until nobody is left. Returns who could not be killed.

        One look is not enough: a process may fork between the look and the signal. So it ends only after a look that found
        nobody, or when all that is left refuses our signals or outlasts `patience` (uninterruptible sleep).
        """
        deadline = time.monotonic() + patience
        while True:
            alive = self.members() or self.members()
            if not alive:
                return ()
            refused = {item.pid for item in alive if not send(item, signal.SIGKILL)}
            self.seen.update((item.pid, item.started) for item in alive)
            if time.monotonic() >= deadline or all(item.pid in refused for item in alive):
                return tuple(sorted(item.pid for item in alive))
            time.sleep(_PAUSE / 10)


def end(scope: Scope, grace: float, *, give_up: Callable[[], bool] = lambda: False) -> tuple[int, ...]:
    """SIGTERM, up to `grace` seconds, SIGKILL. Returns the survivors."""
    if scope.gone():
        return ()
    scope.signal(signal.SIGTERM)
    if scope.wait(grace, give_up=give_up):
        return ()
    return scope.kill()


@dataclass(slots=True)
class Contained:
    """What a step inside this process left running."""

    killed: int = 0
    survivors: tuple[int, ...] = ()


@contextlib.contextmanager
def contained(run_id: str, grace: float) -> Iterator[Contained]:
    """Around a step that runs in this process: whatever it started is dead afterwards, as after any other step.

    A child that another thread starts meanwhile counts as the step's, unless `run_simple` started it.
    """
    result = Contained()
    with adopting():
        scope = Scope.take(run_id)
        scope.own_session = True
        try:
            yield result
        finally:
            me, session = os.getpid(), os.getsid(0)
            scope.awaited = frozenset(e.pid for e in snapshot().values() if e.ppid == me and e.sid == session)
            result.survivors = end(scope, grace)
            result.killed = len(scope.seen) - len(result.survivors)


def quiesce(run_id: str, *, grace_ms: int = 0) -> tuple[int, ...]:
    """End everything that carries this run's id. Returns the pids that could not be killed."""
    scope = Scope(run_id, None, Scope.take(run_id).before)
    return end(scope, grace_ms / 1000) if grace_ms else scope.kill()
