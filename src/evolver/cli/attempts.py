"""`evolver attempts list|show|apply|drop`: failed attempts that were kept."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evolver.git import Git
    from evolver.layout import Layout
    from evolver.worktree.kept import KeptAttempt

FOLDER = typer.Option("-C", help="Work in this folder's worktree.", show_default=False)
WHICH = typer.Argument(help="RUN_ID/N, N of the newest run with kept attempts, `last`, a commit id, or a ref.", show_default=False)
EPILOG = """Examples:
  evolver attempts list
  evolver attempts show last
  evolver attempts apply 3

Attempts are kept by --rollback stash (entries of `git stash list`), by [rollback] keep_attempts = N (private refs), and by
recovery after a crash or `evolver resume`. The last may hold a person's work and are marked so in the list: keep_attempts does not
count them, and only `drop` forgets them.
"""


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="Failed attempts that were kept: list, show, bring back, forget.", epilog=EPILOG
    )
    group.command("list", epilog="Examples:\n  evolver attempts list\n  evolver attempts list --json\n")(list_attempts)
    group.command("show", epilog="Examples:\n  evolver attempts show last\n")(show_attempt)
    group.command("apply", epilog="Examples:\n  evolver attempts apply 3\n")(apply_attempt)
    group.command("drop", epilog="Examples:\n  evolver attempts drop 3 5\n")(drop_attempts)
    app.add_typer(group, name="attempts")


def _at(directory: Path) -> tuple[Layout, Git]:
    from evolver.attempts import repository
    from evolver.layout import locate

    layout = locate(directory)
    _not_held(layout)
    return layout, repository(layout)


def _not_held(layout: Layout) -> None:
    """A held tree has the attempt's git config: no git runs in it but behind the guard."""
    from evolver.recovery import refuse_held

    refuse_held(layout)


def list_attempts(
    directory: Annotated[Path, FOLDER] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List kept attempts, the newest first."""
    from evolver.attempts import listed

    _, git = _at(directory)
    kept = listed(git)
    if as_json:
        import msgspec

        for attempt in kept:
            sys.stdout.buffer.write(msgspec.json.encode(_public(attempt)) + b"\n")
        return
    if not kept:
        typer.echo("no attempts are kept; --rollback stash keeps them, and so does [rollback] keep_attempts = N")
        return
    for attempt in kept:
        when = datetime.fromtimestamp(attempt.time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        where = "stash" if attempt.in_stash else "ref"
        whose = "  [may hold a person's work]" if attempt.for_person else ""
        typer.echo(f"{attempt.iteration_id}  {attempt.commit[:12]}  {where:5}  {when}  {_text(attempt.reason)}{whose}")


def show_attempt(which: Annotated[str, WHICH], directory: Annotated[Path, FOLDER] = Path()) -> None:
    """Show a kept attempt as a diff against the commit it started from."""
    from evolver.attempts import find, show
    from evolver.cli.stream import quiet_pipe

    _, git = _at(directory)
    with quiet_pipe():
        sys.stdout.buffer.write(show(git, find(git, which)))


def apply_attempt(which: Annotated[str, WHICH], directory: Annotated[Path, FOLDER] = Path()) -> None:
    """Bring a kept attempt back into the worktree. Files and index; HEAD stays."""
    from evolver.attempts import apply, find, repository
    from evolver.definition import RollbackSection
    from evolver.layout import locate
    from evolver.opening import opened
    from evolver.settings import read as read_settings
    from evolver.worktree.copies import folder_of

    layout = locate(directory)
    settings = read_settings(os.environ, layout.root / ".env")
    with opened(layout, settings, env=os.environ, rollback=RollbackSection(), note="attempts apply"):
        git = repository(layout)
        attempt = find(git, which)
        done = apply(layout, git, attempt)
    typer.echo(f"attempt {attempt.iteration_id} is back: {len(done.paths)} paths{', merged onto HEAD' if done.merged else ''}")
    if done.replaced:
        typer.echo(f"your untracked files of the same names are kept in {done.replaced_ref}:")
        for path in done.replaced[:20]:
            typer.echo(f"  git show {done.replaced_ref}:{_text(path)}")
    if attempt.copies:
        where = folder_of(git.git_dir, attempt.copies) or f"{attempt.copies}, not found in this repository"
        typer.echo(f"what no commit can hold was not brought back; `evolver attempts show` lists it: {where}")
    if attempt.post_ref and attempt.post_ref != attempt.pre_ref:
        typer.echo(
            f"what the agent had committed is staged; its own commits: git log {attempt.pre_ref[:12]}..{attempt.post_ref[:12]}"
        )


def drop_attempts(
    which: Annotated[list[str], typer.Argument(help="Attempts to forget.", show_default=False)],
    directory: Annotated[Path, FOLDER] = Path(),
) -> None:
    """Forget kept attempts. Stash entries that are not evolver's are never touched."""
    from evolver.attempts import drop, find, repository
    from evolver.definition import RollbackSection
    from evolver.layout import locate
    from evolver.opening import opened
    from evolver.settings import read as read_settings

    layout = locate(directory)
    settings = read_settings(os.environ, layout.root / ".env")
    with opened(layout, settings, env=os.environ, rollback=RollbackSection(), note="attempts drop"):
        git = repository(layout)
        for attempt in [find(git, name) for name in which]:
            drop(git, attempt)
            typer.echo(f"dropped {attempt.iteration_id} ({attempt.commit[:12]})")


def _text(words: str) -> str:
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _public(attempt: KeptAttempt) -> dict[str, object]:
    return {
        "iteration_id": attempt.iteration_id,
        "commit": attempt.commit,
        "ref": attempt.ref,
        "pre_ref": attempt.pre_ref,
        "post_ref": attempt.post_ref,
        "time": attempt.time,
        "reason": _text(attempt.reason),
        "for_person": attempt.for_person,
    }
