"""`evolver log`: one line an iteration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import complete

EPILOG = """Examples:
  evolver log                the last run
  evolver log --all          every run, oldest first
  evolver log --run 019f3a   the run whose id starts so
"""


def register(app: typer.Typer) -> None:
    app.command("log", epilog=EPILOG)(log)


def log(
    run: Annotated[
        str | None, typer.Option("--run", help="A run's id, or its beginning; else the last one.", autocompletion=complete.runs)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run, oldest first.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """List the iterations of the last run, one a line, and why."""
    from evolver.cli import pick
    from evolver.cli.stream import find_stream
    from evolver.ui.tables import console, print_run

    stream = find_stream(directory)
    if not stream.path.exists():
        print("nothing has run here yet; `evolver run` starts a loop, `evolver init` sets one up", file=sys.stderr)
        return
    out = console()
    chosen = list(reversed(list(pick.runs(stream.path)))) if everything else [pick.run(stream.path, run)]
    for number, found in enumerate(chosen):
        if number:
            out.print()
        print_run(found, out)
