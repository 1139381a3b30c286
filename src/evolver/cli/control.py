"""`evolver pause` and `evolver stop`: reach a running loop without signals."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from evolver import lock, requests
from evolver.clone import locate_person
from evolver.errors import ExitStatus
from evolver.layout import Layout

WAIT_STEP_S = 0.1
PAUSE_EPILOG = """Examples:
  evolver pause          returns at once
  evolver pause --wait   returns when the loop has ended
"""
STOP_EPILOG = """Examples:
  evolver stop
  evolver stop --wait   returns when everything is put back
"""


def register(app: typer.Typer) -> None:
    app.command("pause", epilog=PAUSE_EPILOG)(pause)
    app.command("stop", epilog=STOP_EPILOG)(stop)


def pause(
    wait: Annotated[bool, typer.Option("--wait", help="Return when the loop has ended.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="The loop in this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """End the running loop after its iteration. `evolver run` goes on from there."""
    _ask("pause", directory, wait, "the loop ends after this iteration; `evolver run` goes on from there")


def stop(
    wait: Annotated[bool, typer.Option("--wait", help="Return when the loop has ended.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="The loop in this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """End the running loop now. Its step is killed, the attempt is rolled back by mode."""
    _ask("stop", directory, wait, "the loop ends now; its attempt is rolled back by mode")


def _ask(request: requests.Request, directory: Path, wait: bool, told: str) -> None:
    layout = locate_person(directory)
    if not lock.is_held(layout):
        typer.echo("no loop is running here", err=True)
        raise typer.Exit(int(ExitStatus.NOTHING_ACCEPTED))
    requests.ask(layout, request)
    typer.echo(told)
    if wait:
        _until_free(layout)


def _until_free(layout: Layout) -> None:
    while lock.is_held(layout):
        time.sleep(WAIT_STEP_S)
