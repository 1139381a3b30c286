"""`evolver show N`: one iteration, all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import complete

ITERATION = typer.Argument(help="RUN_ID/N, N of the last run, or last.", autocompletion=complete.iterations)
EPILOG = """Examples:
  evolver show     the last iteration
  evolver show 3   iteration 3 of the last run
"""


def register(app: typer.Typer) -> None:
    app.command("show", epilog=EPILOG)(show)


def show(
    iteration: Annotated[str, ITERATION] = "last",
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Show one iteration: what changed, why it failed, what to do. Also who judged it and how it was restored."""
    from rich.text import Text

    from evolver.cli import pick
    from evolver.cli.stream import find_stream
    from evolver.errors import GitError
    from evolver.ui import words
    from evolver.ui.objects import Objects
    from evolver.ui.show import sections
    from evolver.ui.tables import console

    stream = find_stream(directory)
    run, found = pick.iteration(stream.path, iteration)
    stat = ""
    if stream.layout is not None:
        try:
            stat = (Objects.of(stream.layout).attempt_diff(found, stat=True) or b"").decode(errors="replace")
        except GitError:  # `.git` is gone: the events still tell everything else
            stat = ""
    out = console()
    for heading, lines in sections(run, found, stat):
        style = words.STYLES.get(found.outcome, "") if not heading else ""
        if heading:
            out.print(Text(heading, "bold"))
        for number, line in enumerate(lines):
            indent = "  " if heading else ""
            out.print(Text(indent + line, style if not number else ""), soft_wrap=True)
