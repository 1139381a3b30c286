"""Signals end the wait at once, and never by an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.process import run

from .conftest import Make


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_silent_step_at_once(make: Make, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
        begun = time.monotonic()
        done = run(make("exec sleep 600"), interrupts=interrupts)
        assert time.monotonic() - begun < 2
    assert done.interrupted and not done.timed_out and done.signal == 15
    assert interrupts.signal == number and interrupts.count == 1 and interrupts.name == number.name
    assert signal.getsignal(number) is before


def test_a_second_signal_shortens_the_grace(make: Make) -> None:
    with Interrupts() as interrupts:
        for delay in (0.3, 0.8):
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        done = run(make("trap '' TERM; while :; do sleep 0.1; done", grace_ms=60_000), interrupts=interrupts)
    assert done.interrupted and done.signal == 9 and done.survivors == ()
    assert time.monotonic() - begun < 4
    assert interrupts.count == 2


def test_the_first_signal_alone_leaves_the_grace(make: Make) -> None:
    interrupts = Interrupts()
    threading.Timer(0.2, interrupts.trigger, (signal.SIGTERM,)).start()
    begun = time.monotonic()
    done = run(make("trap '' TERM; while :; do sleep 0.1; done", grace_ms=1500), interrupts=interrupts)
    assert done.interrupted and 1.6 < time.monotonic() - begun < 1.7 + 2


def test_nothing_is_started_after_a_signal(make: Make, tmp_path: Path) -> None:
    interrupts = Interrupts()
    interrupts.trigger(signal.SIGTERM)
    done = run(make("touch started"), interrupts=interrupts)
    assert done.interrupted and not (tmp_path / "started").exists()


def test_a_child_killed_together_with_us_counts_as_interrupted(make: Make) -> None:
    """`systemctl stop` signals every process of the unit."""
    with Interrupts() as interrupts:

        def both(pid: int, since: str) -> None:
            os.kill(pid, signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

        done = run(make("exec sleep 600"), interrupts=interrupts, on_start=both)
    assert done.interrupted


def test_a_wait_ends_at_once() -> None:
    interrupts = Interrupts()
    assert not interrupts.wait(0.05)
    threading.Timer(0.1, interrupts.trigger, (signal.SIGINT,)).start()
    begun = time.monotonic()
    assert interrupts.wait(30)
    assert interrupts.wait(30)
    assert time.monotonic() - begun < 2


def test_a_cancelled_step_ends_and_the_run_goes_on(make: Make) -> None:
    interrupts = Interrupts()
    threading.Timer(0.3, interrupts.cancel).start()
    assert run(make("exec sleep 600"), interrupts=interrupts).interrupted
    interrupts.uncancel()
    assert interrupts.signal is None
    assert run(make("true"), interrupts=interrupts).exit_code == 0
    interrupts.cancel()
    interrupts.uncancel()
    before = time.process_time()
    assert not interrupts.wait(0.3)
    assert time.process_time() - before < 0.2  # asleep, not spinning on a stale wake-up


def test_an_ignored_hangup_stays_ignored() -> None:
    """`nohup evolver run`."""
    script = (
        "import os, signal\nfrom evolver.interrupts import Interrupts\n"
        "with Interrupts() as i:\n os.kill(os.getpid(), signal.SIGHUP)\n print(i.signal, i.count)"
    )
    out = subprocess.run(["nohup", sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "None 0\n"


def test_file_descriptors_do_not_grow(make: Make) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    run(make("true"), interrupts=Interrupts())
    before = count()
    for _ in range(5):
        run(make("echo x", stdin=b"y"), interrupts=Interrupts())
    assert count() <= before
