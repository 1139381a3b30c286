"""`evolver land`: bring the commits of an isolated run to the branch it started from."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.errors import ExitStatus, PreflightError, UsageError

if TYPE_CHECKING:
    from evolver.clone import Unlanded
    from evolver.land import Landed, Refused

EPILOG = """Examples:
  evolver land            fast-forward your branch to what the last run made
  evolver land --squash   the same, as one commit
  evolver land --rebase   your branch went on: rebase, validate again, land
"""


def register(app: typer.Typer) -> None:
    app.command("land", epilog=EPILOG)(land)


def land(
    squash: Annotated[bool, typer.Option("--squash", help="Land one commit instead of one for each attempt.")] = False,
    rebase: Annotated[bool, typer.Option("--rebase", help="Rebase the work first, in the clone, and validate it again.")] = False,
    run: Annotated[str | None, typer.Option("--run", help="This run's work: its id or the start of it.", show_default=False)] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Forget the work instead: the next run starts from your branch.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Land in this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Bring the commits of an isolated run to your branch. Never forces anything, never pushes."""
    from evolver import clone, landing
    from evolver.interrupts import Interrupts
    from evolver.land import Refused, short
    from evolver.land import drop as forget_work
    from evolver.resuming import refuse_agents

    refuse_agents(os.environ)
    if drop and (squash or rebase):
        raise UsageError("--drop excludes --squash and --rebase", "Choose one.")
    with Interrupts(last=True) as interrupts, landing.opened_for_landing(clone.locate_person(directory), os.environ, interrupts) as site:
        record = _chosen(site.waiting, run)
        if record is None:
            print("nothing to land")
            return
        if drop:
            kept = forget_work(site.person, site.clone, record)
            if kept is None:
                back = f"`git fetch {shlex.quote(str(site.clone.root))} {shlex.quote(short(record.branch))}` brings its commits back"
                print(f"forgot run {record.run_id}; its branch stays in the clone: {short(record.branch)}\n{back}")
            else:
                print(f"forgot run {record.run_id}; its branch in the clone does not hold what once was tried to land, so that stays: {kept}")
                print(f"`git update-ref -d {kept}` removes it")
            return
        result = site.land(record, squash=squash, rebase=rebase)
    if interrupts.signal is not None:
        raise typer.Exit(128 + interrupts.signal)
    if isinstance(result, landing.Failed):
        print(f"evolver: not landed: {result.reason}", file=sys.stderr)
        raise typer.Exit(int(ExitStatus.NOTHING_ACCEPTED))
    if isinstance(result, Refused):
        raise PreflightError(f"not landed: {result.reason}", result.hint)
    if result is None:
        print("nothing to land")
        return
    tell(result)


def _chosen(waiting: tuple[Unlanded, ...], run: str | None) -> Unlanded | None:
    """The newest run, or the one that was named."""
    if run is None:
        if len(waiting) > 1:
            others = ", ".join(record.run_id for record in waiting[:-1])
            print(f"evolver: landing the newest of {len(waiting)} runs; also waiting: {others}", file=sys.stderr)
        return waiting[-1] if waiting else None
    found = [record for record in waiting if record.run_id.startswith(run)]
    if len(found) != 1:
        have = ", ".join(record.run_id for record in waiting) or "none"
        raise UsageError(f"--run {run}: {'several runs' if found else 'no run'} with work to land begin so", f"Waiting: {have}.")
    return found[0]


def tell(result: Landed | Refused, *, quiet: bool = False) -> None:
    """One line for a person; a refusal on standard error."""
    from evolver.land import Refused, short

    if isinstance(result, Refused):
        print(f"evolver: not landed: {result.reason}\n  hint: {result.hint}", file=sys.stderr)
    elif not quiet:
        how = {"ff": "", "squash": " as one commit", "rebase": " after rebasing them"}[result.how]
        print(f"landed {result.commits} commits on {short(result.branch)}{how}: {result.old[:10]} -> {result.new[:10]}")
