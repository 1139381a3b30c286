"""`evolver revert N`: undo one accepted iteration by a new commit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.cli.show import ITERATION

if TYPE_CHECKING:
    from evolver.revert import Accepted

_FULL = re.compile(r"[0-9a-f-]{36}/[1-9][0-9]*")
EPILOG = """Examples:
  evolver revert 3
  evolver revert last

Not a rollback: the iteration was accepted, and what came after it stays. The best score is forgotten: the next run measures
what is there then.
"""


def register(app: typer.Typer) -> None:
    app.command("revert", epilog=EPILOG)(revert)


def revert(
    iteration: Annotated[str, ITERATION],
    directory: Annotated[Path, typer.Option("-C", help="Work in this folder's worktree.", show_default=False)] = Path(),
) -> None:
    """Undo one accepted iteration by a new commit. A conflict is aborted, and the files are named."""
    from evolver.changes.gitwork import Repository
    from evolver.definition import RollbackSection
    from evolver.errors import ExitStatus, PreflightError
    from evolver.events.types import IterationReverted
    from evolver.keeping import forget_best
    from evolver.layout import locate
    from evolver.opening import opened
    from evolver.revert import revert as undo
    from evolver.settings import read as read_settings

    layout = locate(directory)
    settings = read_settings(os.environ, layout.root / ".env")
    with opened(layout, settings, env=os.environ, rollback=RollbackSection(), note="revert") as worktree:
        repository = Repository.find(layout.root)
        if repository is None:
            raise PreflightError(f"{layout.root}: git is not to be had", "Install git.")
        wanted, recorded = _accepted(layout.events(settings.events), iteration)
        result = undo(repository, wanted)
        if result.revert_commit is None:
            typer.echo(f"evolver: iteration {wanted.iteration_id} was not reverted: {result.reason}", err=True)
            typer.echo(f"  hint: {result.hint}", err=True)
            raise typer.Exit(int(ExitStatus.NOTHING_ACCEPTED))
        if not (result.done_before and recorded == result.revert_commit):
            run_id, _, number = wanted.iteration_id.rpartition("/")
            event = IterationReverted(
                iteration_id=wanted.iteration_id, commit=result.commit, revert_commit=result.revert_commit
            )
            worktree.log.emit(event, run_id=run_id, iteration=int(number))
            forget_best(layout)
        what = "was reverted before, by" if result.done_before else "reverted by"
        typer.echo(f"Iteration {wanted.iteration_id} ({result.commit[:12]}) {what} {result.revert_commit[:12]}.")


def _accepted(stream: Path, wanted: str) -> tuple[Accepted, str | None]:
    """What the stream knows of it, and the commit that reverted it already. A full id does without the stream."""
    from evolver.cli import pick
    from evolver.errors import UsageError
    from evolver.revert import Accepted

    try:
        _, found = pick.iteration(stream, wanted)
    except UsageError:
        if _FULL.fullmatch(wanted) is None:
            raise
        return Accepted(wanted), None
    if not (found.stayed and found.commit):
        raise UsageError(
            f"iteration {found.iteration_id} was not accepted ({found.outcome.replace('_', ' ')}), so there is nothing to revert",
            "`evolver log` lists the iterations.",
        )
    return Accepted(found.iteration_id, found.commit or "", found.pre_ref), found.reverted_by
