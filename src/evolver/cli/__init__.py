"""The command line: the only place (with `ui/`) that prints, and the only one that catches errors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Exits with an `ExitStatus`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        # Asked by scripts and prompts, thousands of times: not worth importing a command line parser for.
        from evolver._version import __version__

        print(f"evolver {__version__}")
        return
    from evolver.errors import EvolverError, ExitStatus

    try:
        if words in (["status"], ["status", "--json"]):  # likewise: in every prompt, in every watch
            from pathlib import Path

            from evolver.ui.status import show

            show(Path(), as_json=len(words) > 1)
            return
        from evolver.cli.app import build

        build(words[0] if words else None)(words, prog_name="evolver", standalone_mode=True)
    except EvolverError as error:
        _tell(error.message, error.hint)
        if _debug():
            raise
        sys.exit(int(error.exit_code))
    except BrokenPipeError:
        # The reader (`head`, a closed pager) has what it wanted. Python would complain once more while flushing at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(int(ExitStatus.INTERRUPTED))
    except Exception as error:  # the last line of defence: a bug is told as one
        if _debug():
            raise
        from evolver.cli.crash_report import write

        _tell(
            f"a bug in evolver: {type(error).__name__}: {error}",
            f"A crash report lies in {write(error, words)}; please send it along.",
        )
        sys.exit(int(ExitStatus.BUG))


def _debug() -> bool:
    return os.environ.get("EVOLVER_DEBUG", "") not in ("", "0")


def _tell(message: str, hint: str) -> None:
    text = f"evolver: {message}\n" + (f"  hint: {hint}\n" if hint else "")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode())
        sys.stderr.flush()
