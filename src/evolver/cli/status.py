"""`evolver status`: state, last run, lock, counts. The plain call does not even come here: see `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:
  evolver status          the state, the last run, the lock
  evolver status -w       again every second
  evolver status --json   for a script or a prompt
"""


def register(app: typer.Typer) -> None:
    app.command("status", epilog=EPILOG)(status)


def status(
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second until interrupted.")] = False,
) -> None:
    """Tell what the loop is doing, or how its last run ended."""
    from evolver.ui.status import show

    show(directory, as_json=as_json, watch=watch)
