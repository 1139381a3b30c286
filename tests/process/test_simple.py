"""`run_simple`: short helpers."""

from __future__ import annotations

import time
from pathlib import Path

from evolver.process import run_simple


def test_streams_are_kept_apart_and_input_arrives() -> None:
    done = run_simple(["sh", "-c", "cat; echo err >&2; exit 4"], input=b"hello", timeout_ms=5000)
    assert (done.exit_code, done.stdout, done.stderr, done.ok) == (4, b"hello", b"err\n", False)
    assert done.describe() == "exit 4"


def test_output_is_bounded() -> None:
    done = run_simple(["sh", "-c", "head -c 3000000 /dev/zero"], timeout_ms=20_000, keep_bytes=1000)
    assert done.ok and len(done.stdout) == 1000 and done.truncated


def test_input_that_is_not_read_does_no_harm() -> None:
    assert run_simple(["true"], input=b"x" * 1_000_000, timeout_ms=5000).ok


def test_a_timeout_kills_the_group() -> None:
    begun = time.monotonic()
    done = run_simple(["sh", "-c", "trap '' TERM; sleep 60 & sleep 60; sleep 60"], timeout_ms=200)
    assert done.timed_out and not done.ok
    assert time.monotonic() - begun < 4


def test_a_daemon_that_keeps_the_pipe_is_not_waited_for() -> None:
    begun = time.monotonic()
    done = run_simple(["sh", "-c", "echo hi; sleep 20 & exit 0"], timeout_ms=15_000)
    assert done.stdout == b"hi\n" and time.monotonic() - begun < 5


def test_what_cannot_be_started_is_a_value(tmp_path: Path) -> None:
    assert run_simple(["/no/such"], timeout_ms=100).error
    assert run_simple([], timeout_ms=100).error
    assert run_simple(["true"], timeout_ms=100, cwd=tmp_path / "gone").error
    assert "could not start" in run_simple(["/no/such"], timeout_ms=100).describe()


def test_death_by_signal() -> None:
    done = run_simple(["sh", "-c", "kill -9 $$"], timeout_ms=5000)
    assert done.signal == 9 and done.exit_code is None and done.describe() == "killed by signal 9"
