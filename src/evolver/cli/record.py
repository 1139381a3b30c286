"""`evolver changes record`: a worker script keeps a changes log without writing JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evolver.changes.recorder import ChangesRecorder

Root = Annotated[
    Path | None, typer.Option("--root", help="What paths in the log are relative to; found when not given.", show_default=False)
]
Log = Annotated[str | None, typer.Option("--log", help="The log's name in the root; found when not given.", show_default=False)]
EPILOG = """Examples:
  evolver changes record start --phase bug-fixing
  evolver changes record modified src/app.ts      (before it is changed)
  evolver changes record created src/new.ts
  evolver changes record command -- pnpm install
  evolver changes record commit HEAD
  evolver changes record finish
"""


def register(app: typer.Typer) -> None:
    record = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="Write a changes log, one entry a call.")
    record.command("start", epilog="Examples:\n  evolver changes record start --phase bug-fixing\n")(start)
    record.command("modified", epilog="Examples:\n  evolver changes record modified src/app.ts\n")(modified)
    record.command("created", epilog="Examples:\n  evolver changes record created src/new.ts\n")(created)
    record.command(
        "command",
        epilog="Examples:\n  evolver changes record command -- pnpm install\n",
        context_settings={"ignore_unknown_options": True},
    )(command)
    record.command("commit", epilog="Examples:\n  evolver changes record commit HEAD\n")(commit)
    record.command("artifact", epilog="Examples:\n  evolver changes record artifact plan.md\n")(artifact)
    record.command("finish", epilog="Examples:\n  evolver changes record finish\n  evolver changes record finish --discard\n")(
        finish
    )
    app.add_typer(record, name="record")


def _recorder(root: Path | None, log: str | None) -> ChangesRecorder:
    from evolver.changes.recorder import ChangesRecorder, find_recording

    if log is not None:
        return ChangesRecorder(root if root is not None else _top(), log=log)
    return find_recording((root or Path()).absolute().resolve())


def _top() -> Path:
    """The worktree's top; without git, where we stand."""
    from evolver.errors import PreflightError
    from evolver.layout import locate

    try:
        return locate(Path.cwd()).root
    except PreflightError:
        return Path.cwd()


def start(
    phase: Annotated[str, typer.Option("--phase", help="The phase of the workflow, such as bug-fixing.", show_default=False)],
    log: Annotated[
        str | None, typer.Option("--log", help="The log's name; .PHASE-changes.json when not given.", show_default=False)
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="What paths are relative to; the worktree's top when not given.", show_default=False),
    ] = None,
) -> None:
    """Begin a log, before anything is changed."""
    from evolver.changes.recorder import ChangesRecorder

    recorder = ChangesRecorder(root if root is not None else _top(), phase=phase, log=log)
    recorder.start()
    typer.echo(os.fsencode(recorder.root / recorder.log))  # bytes: a path need not be text


def modified(
    path: Annotated[Path, typer.Argument(help="A file that is about to be changed or deleted.", show_default=False)],
    log: Log = None,
    root: Root = None,
) -> None:
    """Keep a file's bytes, before it is changed or deleted."""
    _recorder(root, log).modified(_absolute(path))


def created(
    path: Annotated[Path, typer.Argument(help="A file or folder that is new.", show_default=False)],
    log: Log = None,
    root: Root = None,
) -> None:
    """Name a file or folder that is about to be made."""
    _recorder(root, log).created(_absolute(path))


def command(
    argv: Annotated[list[str], typer.Argument(metavar="-- ARGV...", help="The command, word by word, or as one line.", show_default=False)],
    log: Log = None,
    root: Root = None,
) -> None:
    """Name a command that is about to run."""
    _recorder(root, log).command(argv[0] if len(argv) == 1 else argv)  # one argument: a whole line


def commit(
    sha: Annotated[str, typer.Argument(metavar="SHA", help="A commit that was made.")] = "HEAD",
    log: Log = None,
    root: Root = None,
) -> None:
    """Name a commit that was made."""
    _recorder(root, log).commit(sha)


def artifact(
    path: Annotated[Path, typer.Argument(help="A temporary file.", show_default=False)], log: Log = None, root: Root = None
) -> None:
    """Name a temporary file that a rollback removes."""
    _recorder(root, log).artifact(_absolute(path))


def finish(
    discard: Annotated[bool, typer.Option("--discard", help="The phase went well: remove the log and its backups.")] = False,
    log: Log = None,
    root: Root = None,
) -> None:
    """End the log. It stays for a rollback unless discarded."""
    _recorder(root, log).finish(discard=discard)


def _absolute(path: Path) -> Path:
    """Paths on the command line are relative to where the caller stands, in the log to its root."""
    return Path.cwd() / path
