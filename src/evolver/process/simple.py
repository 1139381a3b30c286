"""Short helper commands: their output in memory, bounded; no interrupts, since a rollback must not be cut short."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evolver.process.tree import HELPERS
from evolver.process.values import CHUNK, SimpleFinished

KEEP_BYTES = 1024 * 1024
_KILL_SECONDS = 1.0


def run_simple(
    argv: Sequence[str],
    *,
    input: bytes = b"",
    timeout_ms: int,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    keep_bytes: int = KEEP_BYTES,
) -> SimpleFinished:
    """Run a command to its end; at most `keep_bytes` of each stream are kept (the beginning), the rest is read and dropped.

    Its process group is killed at the timeout. It stays in our session: a person may be asked for a passphrase. Whatever
    keeps its pipes open after it ended (a daemon) is not waited for.
    """
    begun = time.monotonic()
    if not argv:
        return SimpleFinished(error="(empty command): there is nothing to start")
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE if input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return SimpleFinished(error=f"{argv[0]}: {why}")
    HELPERS.add(process.pid)
    try:
        return _collect(process, input, begun, timeout_ms, keep_bytes)
    finally:
        HELPERS.discard(process.pid)


def _collect(process: subprocess.Popen[bytes], input: bytes, begun: float, timeout_ms: int, keep_bytes: int) -> SimpleFinished:
    kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    truncated = False
    deadline = begun + timeout_ms / 1000
    timed_out = False
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, name)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        ended_at: float | None = None
        while selector.get_map() or process.poll() is None:
            now = time.monotonic()
            if process.poll() is not None:
                ended_at = now if ended_at is None else ended_at
                if now - ended_at > _KILL_SECONDS:  # a daemon holds the pipes
                    break
            if now >= deadline and not timed_out:
                timed_out = True
                _kill_group(process)
            for key, _ in selector.select(0.02):
                if key.data == "stdin":
                    assert process.stdin is not None
                    input = _feed(process, selector, input)  # noqa: A001
                    continue
                try:
                    chunk = os.read(key.fd, CHUNK)
                except BlockingIOError:
                    continue
                if not chunk:
                    selector.unregister(key.fileobj)
                buffer = kept[key.data]
                truncated |= len(buffer) + len(chunk) > keep_bytes
                buffer += chunk[: max(0, keep_bytes - len(buffer))]
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    code = process.wait()
    return SimpleFinished(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        duration_ms=round((time.monotonic() - begun) * 1000),
        stdout=bytes(kept["stdout"]),
        stderr=bytes(kept["stderr"]),
        truncated=truncated,
    )


def _feed(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, data: bytes) -> bytes:
    assert process.stdin is not None
    try:
        data = data[os.write(process.stdin.fileno(), data[:CHUNK]) :]
    except BlockingIOError:
        return data
    except OSError:  # it does not read: its exit code tells the rest
        data = b""
    if not data:
        selector.unregister(process.stdin)
        with contextlib.suppress(OSError):
            process.stdin.close()
    return data


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a second, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
