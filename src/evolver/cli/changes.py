"""`evolver changes`: roll back a changes log, write one, print what can be reverted."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.errors import BusyError, ExitStatus, HeldError, UsageError

if TYPE_CHECKING:
    from evolver.changes.report import ChangesReport
    from evolver.changes.reverts import Reverts

ROLLBACK_EPILOG = """Examples:
  evolver changes rollback .bug-changes.json --phase bug-fixing
  evolver changes rollback .bug-changes.json --dry-run
  evolver changes rollback .bug-changes.json --yes --json
"""


def register(app: typer.Typer) -> None:
    from evolver.cli import record

    changes = typer.Typer(no_args_is_help=True, help="Undo what a changes log lists; write such a log.")
    changes.command("rollback", epilog=ROLLBACK_EPILOG)(rollback)
    changes.command("commands", epilog="Examples:\n  evolver changes commands\n  evolver changes commands --json\n")(commands)
    record.register(changes)
    app.add_typer(changes, name="changes")


def rollback(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The changes log, such as .bug-changes.json.", show_default=False)],
    phase: Annotated[str | None, typer.Option("--phase", help="Refuse a log of another phase.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the log, say what would be done, do nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on standard output.")
    ] = False,
    clean: Annotated[bool, typer.Option("--clean", help="After full success remove the log as well.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a log with unknown fields.")] = False,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="What paths are relative to; the log's folder when not given.", show_default=False),
    ] = None,
    loop: Annotated[
        str | None, typer.Option("--loop", help="Loop whose [changes.revert] counts; the worktree's own.", show_default=False)
    ] = None,
) -> None:
    """Undo what a changes log lists. Files, commands, commits and artifacts."""
    from evolver.changes.rollback import rollback_changes

    reverts = _reverts(log, root, loop, phase=phase, strict=strict, preview=dry_run)
    if reverts is not None and not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("no terminal to ask on, and no --yes: nothing was done", "Look with --dry-run, then give --yes.")

    def tell(report: ChangesReport) -> None:
        _print(report, as_json=as_json)

    report = rollback_changes(
        log,
        confirm=None if yes else _ask if reverts is not None else lambda _: False,
        phase=phase,
        root=root,
        strict=strict,
        clean=clean,
        dry_run=dry_run,
        reverts=reverts or {},
        tell=tell,
    )
    raise typer.Exit(int(ExitStatus.ACCEPTED if report.success else ExitStatus.NOTHING_ACCEPTED))


def _reverts(
    log: Path, root: Path | None, loop: str | None, *, phase: str | None, strict: bool, preview: bool
) -> Reverts | None:
    """What the loop file adds to the registry; None for a log that will be refused: the rollback itself says why.
    With `preview`, also says what would be done."""
    from evolver.changes.plan import steps
    from evolver.changes.reverts import named_reverts, own_reverts
    from evolver.changes.rollback import Opened, open_log
    from evolver.changes.stream import refuse_unfinished

    refuse_unfinished(root if root is not None else log.parent)
    with open_log(log, root, phase=phase, strict=strict) as opened:
        if not isinstance(opened, Opened):
            return None
        if loop is not None:
            reverts = named_reverts(loop, opened.repository.layout.root if opened.repository else opened.root.path)
        else:
            reverts, problem = own_reverts(opened.repository, opened.log.commits)
            if problem:
                _say(f"evolver: {problem}", err=True)
        if preview:
            for line in steps(opened, reverts):
                _say(line, err=True)
    return reverts


def _say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """A log's text may be in letters that this terminal cannot show; that is no reason to fail."""
    stream = sys.stderr if err else sys.stdout
    encoding = stream.encoding or "utf-8"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding) + end, nl=False, err=err)


def _ask(question: str) -> bool:
    """Only `yes` (or `y`) is yes; the end of the input is no."""
    _say(question, err=True, end=" ")
    return sys.stdin.readline().strip().lower() in ("yes", "y")


def _print(report: ChangesReport, *, as_json: bool) -> None:
    if as_json:
        _say(report.to_json())
        return
    for line in report.actions_taken:
        _say(line)
    for kind, lines in (("warning", report.warnings), ("error", report.errors)):
        for line in lines:
            _say(f"{kind}: {line}", err=True)
    if report.user_declined:
        _say("Declined; nothing was done.", err=True)
    elif not report.success:
        _say(f"Phase {report.phase!r} was not rolled back.", err=True)
    else:
        counts = f"{report.files_restored} restored, {report.files_deleted} deleted, {report.commands_reverted} commands, "
        counts += f"{report.git_commits_reverted} commits, {report.artifacts_cleaned} artifacts"
        _say(f"Phase {report.phase!r}: {counts}, {len(report.warnings)} warnings, {len(report.errors)} errors.", err=True)


def commands(
    loop: Annotated[
        str | None, typer.Option("--loop", help="Loop whose [changes.revert] is shown; the worktree's own.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON: command, argv, how, source.")] = False,
) -> None:
    """Print which commands can be reverted, and how. The exact words of each are told."""
    from evolver.changes.gitwork import Repository
    from evolver.changes.registry import table
    from evolver.changes.reverts import named_reverts, own_reverts
    from evolver.changes.stream import refuse_unfinished

    repository = Repository.find(Path.cwd())
    if loop is not None:
        reverts, problem = named_reverts(loop, repository.layout.root if repository else Path.cwd()), ""
    else:
        try:
            refuse_unfinished(Path.cwd())
            reverts, problem = own_reverts(repository, ())
        except (BusyError, HeldError) as error:
            reverts, problem = {}, f"[changes.revert] of the loop file is not looked at: {error.message}"
    if problem:
        _say(f"evolver: {problem}", err=True)
    rows = list(table(reverts))
    if as_json:
        import json

        shape = [{"command": line, "argv": list(r.argv), "how": str(r.how), "source": r.source} for line, r in rows]
        _say(json.dumps(shape, indent=2))
        return
    width = max(len(line) for line, _ in rows)
    for line, revert in rows:
        note = "" if revert.source == "built in" else f"  # {revert.source}"
        words = " ".join(word if word.startswith("{") else shlex.quote(word) for word in revert.argv)
        _say(f"{line:<{width}}  {words}{note}")
    _say("Anything else needs a person.", err=True)
