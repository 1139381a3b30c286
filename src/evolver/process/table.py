"""The process table, and signals that cannot hit a reused pid.

Linux reads `/proc`; elsewhere psutil answers, more slowly and without sessions of other users.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Entry:
    """One process. `started` names this very process: a later one with the same pid has another."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    started: str
    zombie: bool


@cache
def _boot() -> str:
    """Start times count from boot, so the boot is part of the name; a pid of yesterday's boot never matches."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    return ""


def _entry(pid: int) -> Entry | None:
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in brackets and may hold spaces and brackets itself: split after the last one.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, ppid, pgid, sid = fields[0], int(fields[1]), int(fields[2]), int(fields[3])
    # A process whose first thread has ended shows as a zombie while its other threads work on.
    dead = state in (b"Z", b"X", b"x") and int(fields[17]) <= 1
    return Entry(pid, ppid, pgid, sid, f"{_boot()}-{int(fields[19])}", dead)


def _psutil_entry(pid: int) -> Entry | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return Entry(pid, process.ppid(), os.getpgid(pid), os.getsid(pid), f"{process.create_time():.3f}", zombie)
    except (psutil.Error, OSError):
        return None


def entry(pid: int) -> Entry | None:
    """None: no such process."""
    return _entry(pid) if LINUX else _psutil_entry(pid)


def process_started(pid: int) -> str:
    """What tells this process from a later one with the same pid; the empty string when there is none."""
    found = entry(pid)
    return found.started if found is not None else ""


def is_running(pid: int, started: str) -> bool:
    """Is it that very process, and not dead already?"""
    found = entry(pid)
    return found is not None and bool(started) and found.started == started and not found.zombie


def _pids() -> Iterator[int]:
    if LINUX:
        with os.scandir("/proc") as folder:
            for item in folder:
                if item.name.isdigit():
                    yield int(item.name)
        return
    import psutil

    yield from psutil.pids()


def snapshot() -> dict[int, Entry]:
    """Every process that can be seen, by pid."""
    found = (entry(pid) for pid in _pids())
    return {item.pid: item for item in found if item is not None}


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with this environment variable. False when that may not be read."""
    if LINUX:
        try:
            data = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return os.fsencode(f"{name}={value}") in data.split(b"\0")
    import psutil

    try:
        return psutil.Process(pid).environ().get(name) == value
    except (psutil.Error, OSError):
        return False


def ancestors(table: dict[int, Entry], pid: int) -> frozenset[int]:
    """`pid` and everything above it."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].ppid
    return frozenset(found)


def send(target: Entry, number: signal.Signals) -> bool:
    """Signal exactly this process. True when it is gone or was signalled; False when we may not."""
    if not LINUX or not hasattr(os, "pidfd_open"):
        if process_started(target.pid) != target.started:
            return True
        try:
            os.kill(target.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True
    try:
        descriptor = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return True
    except OSError:  # no descriptor to be had: the number is all there is
        descriptor = -1
    try:
        if process_started(target.pid) != target.started:
            return True
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(target.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True
