"""The machine as an effect's record and undo see it: ask a tool something, make it act, keep a file aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolver import process
from evolver.interrupts import Interrupts
from evolver.layout import Layout

ASK_TIMEOUT_MS = 60_000
UNDO_GRACE_MS = 10_000


@dataclass(frozen=True)
class Host:
    """Where commands run. Nothing here can be interrupted: a revert that is cut short would be half a revert."""

    layout: Layout
    cwd: Path
    env: Mapping[str, str]
    scratch: Path  # kept until the iteration is over; private
    log: Path  # what acting commands print
    timeout_ms: int
    redactor: Callable[[], process.Redactor | None] = lambda: None
    _never: Interrupts = field(default_factory=lambda: Interrupts(signals=()), repr=False)

    def ask(self, argv: tuple[str, ...], *, merge_env: Mapping[str, str] | None = None) -> process.SimpleFinished:
        """Run a command for its answer."""
        return process.run_simple(
            argv, timeout_ms=min(ASK_TIMEOUT_MS, self.timeout_ms), env={**self.env, **(merge_env or {})}, cwd=self.cwd
        )

    def act(self, argv: tuple[str, ...], *, quote: bool = True) -> str:
        """Run a command for what it does. The empty string when it did, else what went wrong, with a tool's last words.

        `quote` False: it is nobody's known tool, and what it prints may not go into an event.
        """
        done = process.run(
            process.Command(
                argv=argv,
                cwd=self.cwd,
                env=self.env,
                timeout_ms=self.timeout_ms,
                grace_ms=UNDO_GRACE_MS,
                log=self.log,
                name="undo",
            ),
            interrupts=self._never,
            redactor=self.redactor(),
        )
        if done.exit_code == 0 and not done.timed_out and not done.error:
            return ""
        return f"`{' '.join(argv)[:200]}`: {how(done)}{last_words(done.tail)}" if quote else f"undo: {how(done)}"


def how(done: process.Finished) -> str:
    """One phrase: how a child ended."""
    if done.error:
        return f"could not start: {done.error}"
    if done.timed_out:
        return f"timed out after {done.duration_ms} ms"
    if done.interrupted:
        return "interrupted"
    if done.signal is not None:
        return f"killed by signal {done.signal}"
    return f"exit {done.exit_code}"


def last_words(output: bytes) -> str:
    """The last line of some output, short, to be added to a reason."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
