"""Recovery: what a killed run left alive. It must be dead before anything is restored under it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from evolver.process.table import Entry, ancestors, has_variable, send, snapshot
from evolver.process.values import RUN_ID

_PAUSE = 0.02


def _members(run_id: str, recorded: Sequence[tuple[int, str]]) -> list[Entry]:
    table = snapshot()
    # Never ourselves, nor who started us: a run may be recovered by the shell, or the agent, that the dead run started.
    spared = ancestors(table, os.getpid())
    exact = set(recorded)
    leaders = dict(recorded)
    children: dict[int, list[Entry]] = {}
    for item in table.values():
        children.setdefault(item.ppid, []).append(item)

    def ours(item: Entry) -> bool:
        if (item.pid, item.started) in exact:
            return True
        if item.sid in leaders:
            # The session of a recorded step. Its leader may be dead: the number is not given away while the session
            # lives. A leader with another start time means that it was reused after all.
            leader = table.get(item.sid)
            if leader is None or leader.started == leaders[item.sid]:
                return _boot_of(item.started) == _boot_of(leaders[item.sid]) and _later(item.started, leaders[item.sid])
        return bool(run_id) and has_variable(item.pid, RUN_ID, run_id)

    found: dict[int, Entry] = {}
    queue = [item for item in table.values() if item.pid not in spared and ours(item)]
    while queue:
        item = queue.pop()
        if item.pid not in found and item.pid not in spared:
            found[item.pid] = item
            queue.extend(children.get(item.pid, []))
    return [item for item in found.values() if not item.zombie]


def _boot_of(started: str) -> str:
    return started.rpartition("-")[0]


def _later(started: str, than: str) -> bool:
    try:
        return float(started.rpartition("-")[2]) >= float(than.rpartition("-")[2])
    except ValueError:
        return False


def sweep_dead_run(
    run_id: str, recorded: Sequence[tuple[int, str]], *, grace_ms: int = 1000, patience_ms: int = 10_000
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kill what is alive of a run whose evolver is dead: `(killed, survivors)`, as pids.

    Found by recorded pid and start time, by the session of a recorded pid, and by `EVOLVER_RUN_ID` in the environment;
    with everything below them. Only call it while holding the run lock: then the run is dead for certain.
    """
    alive = _members(run_id, recorded)
    killed: set[int] = set()
    for item in alive:
        killed.add(item.pid)
        send(item, signal.SIGTERM)
    grace_ends = time.monotonic() + grace_ms / 1000
    while alive and time.monotonic() < grace_ends:
        time.sleep(_PAUSE)
        alive = _members(run_id, recorded)
    deadline = time.monotonic() + patience_ms / 1000
    while alive:
        refused = set()
        for item in alive:
            killed.add(item.pid)
            if not send(item, signal.SIGKILL):
                refused.add(item.pid)
        if time.monotonic() >= deadline or all(item.pid in refused for item in alive):
            break
        time.sleep(_PAUSE)
        alive = _members(run_id, recorded)
    survivors = tuple(sorted(item.pid for item in alive))
    return tuple(sorted(killed - set(survivors))), survivors
