"""`evolver resume`: a person decides about a held tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from evolver.resuming import Decision, Held, Resume

EPILOG = """Examples:
  evolver resume                    what differs, and the choices
  evolver resume --dry-run          what rolling back would restore and delete
  evolver resume --rollback stash   the baseline; the attempt as a stash entry
  evolver resume --keep --note 'fixed by hand'
"""
SHOWN = 40


def register(app: typer.Typer) -> None:
    app.command("resume", epilog=EPILOG)(resume)


def resume(
    keep: Annotated[bool, typer.Option("--keep", help="Vouch for the tree as it stands: commit it, or adopt HEAD.")] = False,
    rollback: Annotated[
        str | None, typer.Option("--rollback", metavar="hard|stash", help="Put the baseline back; stash keeps the attempt aside.", show_default=False)
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why; goes into the event stream.", show_default=False)] = "",
    go_on: Annotated[bool, typer.Option("--run", help="Start the same loop again afterwards; it must have a file.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what rolling back (with --keep: keeping) would do; change nothing.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Work in this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Look at a held tree and decide: keep it, or roll it back."""
    from evolver.clone import locate_person
    from evolver.definition import RollbackSection
    from evolver.interrupts import Interrupts
    from evolver.model import RollbackMode
    from evolver.opening import opened
    from evolver.redact import Redactor
    from evolver.resuming import Resume, refuse_agents
    from evolver.settings import read as read_settings

    refuse_agents(os.environ)
    if keep and rollback:
        raise UsageError("--keep and --rollback exclude each other", "Choose one.")
    if rollback is not None and rollback not in (RollbackMode.HARD, RollbackMode.STASH):
        raise UsageError(f"--rollback: expected hard or stash, got {rollback!r}")
    layout = locate_person(directory)
    settings = read_settings(os.environ, layout.root / ".env", strict=False)
    for ignored in settings.ignored:
        print(f"evolver: ignored: {ignored}", file=sys.stderr)
    with (
        Interrupts(last=True),  # a Ctrl-C may not cut a restore short
        opened(
            layout,
            settings,
            env=os.environ,
            rollback=RollbackSection(),
            redactor=Redactor.from_environment(os.environ),
            refuse_held=False,
            note="resume",
        ) as found,
    ):
        if found.recovered is not None:
            print(
                f"recovered run {found.recovered.run_id}: {found.recovered.action.replace('_', ' ')}. {found.recovered.reason}".rstrip()
            )
        deciding = Resume(found)
        held = deciding.look()
        if held is None:
            print("nothing to resume")
            decision = None
        else:
            if go_on and not dry_run:
                _refuse_nameless(deciding, held)
            decision = _decide(deciding, held, keep, rollback, note, dry_run)
    if decision is not None:
        _tell(decision)
        if decision.exit_code is not ExitStatus.ACCEPTED:
            raise typer.Exit(int(decision.exit_code))
    if go_on and not dry_run:
        from evolver.cli.run import run

        run(
            loop=held.lock.loop if held is not None else None,
            isolation="clone" if found.layout != layout else None,
            directory=directory,
        )


def _refuse_nameless(deciding: Resume, held: Held) -> None:
    """`--run` can start again what has a file. Said before anything is decided: afterwards, half of what was asked for is done."""
    if held.lock.loop == "command-line":
        deciding.leave(held)
        raise UsageError(
            "--run: the held run was given on the command line (--codegen or --agent), and no file has its loop",
            "Nothing was changed. Leave --run out, then start it as you did before.",
        )


def _decide(deciding: Resume, held: Held, keep: bool, rollback: str | None, note: str, dry_run: bool) -> Decision:
    from evolver.model import RollbackMode
    from evolver.resuming import Decision

    if dry_run:
        try:
            if keep:
                _show_keeping(deciding, held)
            else:
                _show_plan(held)
        finally:
            deciding.leave(held)
        return Decision("undecided", ExitStatus.HELD)
    if not held.attempt.changed and not held.effects:
        return deciding.unchanged(held, note)
    if not keep and rollback is None:
        _show(held)
        answer = _ask() if sys.stdin.isatty() and sys.stdout.isatty() else ""
        keep, rollback = answer == "keep", answer if answer in ("hard", "stash") else None
    if keep:
        return deciding.keep(held, note)
    if rollback is not None:
        return deciding.roll_back(held, RollbackMode(rollback), note)
    return deciding.leave(held)


def _ask() -> str:
    return str(typer.prompt("keep, hard, stash, or leave", default="leave")).strip().lower()


def _show(held: Held) -> None:
    from evolver.holding import drifted_name

    print(f"iteration {held.lock.iteration_id} is held since {held.lock.time}: {held.lock.reason}")
    print(f"it started from {held.lock.pre_ref}; what differs from then:")
    _list("  ", [f"{c.kind:8} {_text(c.path)}" for c in held.attempt.changes])
    _list("  ref ", [f"{r.name}: {r.old or 'nothing'} -> {r.new or 'nothing'}" for r in held.attempt.refs])
    _list("  control file ", list(held.attempt.control.changed))
    if held.drifted:
        print("changed since the agent had finished, by a validator or after the loop stopped:")
        _list("  ", sorted({drifted_name(line) for line in held.drifted}))
    if held.effects:
        print("effects outside the worktree that are in force; --rollback reverts them, --keep keeps them:")
        _list("  ", list(held.effects))
    print("choices: --keep (commit it as it stands), --rollback hard, --rollback stash; --dry-run shows the details")


def _show_keeping(deciding: Resume, held: Held) -> None:
    wanted = deciding.to_keep(held)
    if not wanted.staged:
        print(f"keeping would adopt HEAD ({wanted.head[:12]}): nothing is uncommitted")
        return
    count = len(wanted.staged)
    print(f"keeping would commit {count} {'path' if count == 1 else 'paths'} on HEAD ({wanted.head[:12]}):")
    _list("  ", [_text(path) for path in wanted.paths], most=10**9)
    if held.planted:
        print(f"put {len(held.planted)} of git's own files back, which only the attempt had changed:")
        _list("  ", [name.partition("/")[2] for name in held.planted], most=10**9)
    print("and keep everything else as it is")


def _show_plan(held: Held) -> None:
    print(f"rolling back iteration {held.lock.iteration_id} to {held.lock.pre_ref} would")
    for verb, paths in (("restore", held.restores()), ("delete", held.deletes())):
        if not paths:
            continue
        print(f"{verb} {len(paths)}:")
        _list("  ", list(paths), most=10**9)
    refs = [f"{r.name} -> {r.old or 'deleted'}" for r in held.attempt.refs]
    if held.effects:
        print(f"revert {len(held.effects)} effects:")
        _list("  ", list(held.effects), most=10**9)
    control = held.attempt.control.changed
    if not (held.restores() or held.deletes() or refs or held.effects or control):
        print("put the index and git's own files back")
    if refs:
        print(f"move {len(refs)} {'ref' if len(refs) == 1 else 'refs'}:")
    _list("  ", refs, most=10**9)
    if control:
        print(f"put {len(control)} of git's own files back:")
    _list("  ", list(control), most=10**9)
    print(
        "and keep everything else as it is"
        + (f"; left alone: {', '.join(held.baseline.left_out)}" if held.baseline.left_out else "")
    )


def _text(path: bytes) -> str:
    return repr(path.decode("utf-8", "backslashreplace"))[1:-1]


def _list(prefix: str, lines: list[str], most: int = SHOWN) -> None:
    for line in lines[:most]:
        print(f"{prefix}{line}")
    if len(lines) > most:
        print(f"{prefix}… and {len(lines) - most} more")


def _tell(decision: Decision) -> None:
    stash = f", the attempt is stash {decision.stash[:10]}" if decision.stash else ""
    words = {
        "unchanged": "the tree equals the baseline; the lock is lifted",
        "kept": f"kept as {decision.commit}; the lock is lifted",
        "rolled_back": f"rolled back and verified{stash}; the lock is lifted",
        "undecided": "nothing changed; the lock stays",
        "not_restored": f"NOT RESTORED: {decision.detail}; the lock stays",
    }
    print(words[decision.action])
    if decision.put_back:
        print("of git's own files, those that only the attempt had changed are as before it:")
        _list("  ", [name.partition("/")[2] for name in decision.put_back])
    if decision.kept:
        print("what was changed since the loop stopped is kept, together with the attempt; to bring it back:")
        print(f"  evolver attempts apply {decision.kept[0]}")
        _list("  commits and refs that were made: ", list(decision.kept[1:]))
    if decision.copies:
        print(f"what no commit can hold is copied to {decision.copies}")
