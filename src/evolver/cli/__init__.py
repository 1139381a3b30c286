"""The command line: the only place (with `ui/`) that prints, and the only one that catches errors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Exits with an `ExitStatus`."""
    _open_standard_streams()
    ended: BaseException | None = None
    try:
        _main(list(sys.argv[1:] if arguments is None else arguments))
    except (OSError, SystemExit) as error:
        ended = error
    lost = _unwritten(ended)
    if lost is not None:
        # Python would flush once more while it ends, complain, and end with a status of its own.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(lost, BrokenPipeError):  # the reader (`head`, a closed pager) has what it wanted
            sys.exit(ended.code if isinstance(ended, SystemExit) else 0)
        if not isinstance(ended, SystemExit) or not ended.code:
            _tell(f"standard output: {lost.strerror or lost}", "What was asked for could not be printed to its end.")
            sys.exit(1)
    if isinstance(ended, BrokenPipeError):
        sys.exit(0)
    if ended is not None:
        raise ended


def _main(words: list[str]) -> None:
    if words in (["--version"], ["-V"]):
        # Asked by scripts and prompts, thousands of times: not worth importing a command line parser for.
        from evolver._version import __version__

        print(f"evolver {__version__}")
        return
    from evolver.errors import EXHAUSTED, EvolverError, ExitStatus

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
    except KeyboardInterrupt:
        sys.exit(int(ExitStatus.INTERRUPTED))
    except Exception as error:  # the last line of defence: a bug is told as one
        if _debug():
            raise
        if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and _while_printing(error) and _unwritten(error) is not None):
            raise
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            # A run that had begun is not undone yet: the next command that looks at the worktree does it.
            where = f"{error.filename}: " if error.filename else ""
            _tell(
                f"{where}{error.strerror}", "Make room or raise the limit; then `evolver run` or `evolver resume` finishes it."
            )
            sys.exit(int(ExitStatus.NOT_RESTORED))
        if isinstance(error, FileNotFoundError) and error.filename is None and _folder_is_gone():
            _tell("the folder this was called in is gone", "Change to one that exists (`cd`), then try again.")
            sys.exit(int(ExitStatus.USAGE))
        message = f"a bug in evolver: {type(error).__name__}: {error}"
        try:
            from evolver.cli.crash_report import write

            _tell(message, f"A crash report lies in {write(error, words)}; please send it along.")
        except (OSError, EOFError) as second:
            _tell(message, f"No crash report could be written: {second}")
        sys.exit(int(ExitStatus.BUG))


def _open_standard_streams() -> None:
    """Where the caller closed descriptor 0, 1 or 2, the next file opened would get it, and a child's words would land in it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names are bytes: what the terminal cannot show is shown escaped
            stream.reconfigure(errors="backslashreplace")


def _unwritten(met: BaseException | None = None) -> OSError | None:
    """Why standard output cannot be written: what did not go out is still in its buffer, or (unbuffered) `met` was raised by a write."""
    try:
        sys.stdout.flush()
        if isinstance(met, OSError) and met.filename is None and _while_printing(met):
            os.write(sys.stdout.fileno(), b"\n")
    except OSError as error:
        return error
    return None


def _while_printing(error: OSError) -> bool:
    """Not while the stream, a lock or the tree was written: on a disk where every write fails, that is what has to be told."""
    inner, at = "", error.__traceback__
    while at is not None:
        inner = at.tb_frame.f_globals.get("__name__", "") if at.tb_frame.f_globals.get("__name__", "").startswith("evolver") else inner
        at = at.tb_next
    return inner.startswith(("evolver.cli", "evolver.ui"))


def _folder_is_gone() -> bool:
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _debug() -> bool:
    return os.environ.get("EVOLVER_DEBUG", "") not in ("", "0")


def _tell(message: str, hint: str) -> None:
    text = f"evolver: {message}\n" + (f"  hint: {hint}\n" if hint else "")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode())
        sys.stderr.flush()
