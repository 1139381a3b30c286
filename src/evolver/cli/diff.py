"""`evolver diff N`: what an iteration changed, if it was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolver.cli.show import ITERATION

EPILOG = """Examples:
  evolver diff 3               as a patch
  evolver diff last --stat     files and counts
  evolver diff 3 | git apply   the same changes on the tree as it is now
"""


def register(app: typer.Typer) -> None:
    app.command("diff", epilog=EPILOG)(diff)


def diff(
    iteration: Annotated[str, ITERATION] = "last",
    stat: Annotated[bool, typer.Option("--stat", help="Files and counts only.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Print the changes of one iteration as a patch. It was accepted, stashed or kept as an attempt; exit 1 when it was discarded."""
    from evolver.cli import pick
    from evolver.cli.stream import find_stream
    from evolver.errors import ExitStatus, PreflightError
    from evolver.ui.objects import Objects
    from evolver.ui.patch import print_patch
    from evolver.ui.tables import console

    stream = find_stream(directory)
    if stream.layout is None:
        raise PreflightError(f"{directory} is not in a git worktree", "A diff needs the repository; give its worktree with -C.")
    run, found = pick.iteration(stream.path, iteration)
    text = Objects.of(stream.layout).attempt_diff(found, stat=stat)
    if text is not None:
        print_patch(text, console())
        return
    if found.outcome == "held" and run.held:
        reason = f"it is still in the worktree: git diff {found.pre_ref[:10]}"
    elif found.outcome == "no_change":
        reason = "it changed nothing"
    elif found.outcome == "put_back":
        reason = "a person had undone it before `evolver resume`"
    elif found.stayed and found.commit is None:
        reason = "nothing had to be committed when it was kept"
    elif found.stayed:
        reason = f"commit {found.commit} is no longer in this repository"
    else:
        reason = "it was discarded; keep attempts with --rollback stash or [rollback] keep_attempts"
    typer.echo(f"iteration {found.number} has no diff: {reason}", err=True)
    raise typer.Exit(int(ExitStatus.NOTHING_ACCEPTED))
