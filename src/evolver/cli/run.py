"""`evolver run`: the loop."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import complete
from evolver.settings import Override, slips

EPILOG = """Examples:
  evolver run --max-iters 20
  evolver run mutate --rollback stash
  evolver run --codegen 'python improve.py' --validate 'pytest -q'
  evolver run --agent claude --prompt task.md --validate 'npm test'
"""


def register(app: typer.Typer) -> None:
    app.command("run", epilog=EPILOG)(run)


def run(
    loop: Annotated[
        str | None,
        typer.Argument(
            help="Loop: a name in loops/, a built-in one, or a path.", show_default=False, autocompletion=complete.loops
        ),
    ] = None,
    max_iters: Annotated[
        int | None, typer.Option("--max-iters", min=1, help="Stop after this many iterations.", show_default=False)
    ] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", help="Stop after this time, such as 8h.", show_default=False)
    ] = None,
    rollback: Annotated[
        str | None,
        typer.Option("--rollback", metavar="hard|stash|none", help="What becomes of a failed attempt.", show_default=False),
    ] = None,
    dirty: Annotated[
        str | None, typer.Option("--dirty", metavar="refuse|keep", help="Your own edits of tracked files.", show_default=False)
    ] = None,
    breaker: Annotated[bool, typer.Option("--breaker/--no-breaker", help="Stop when the loop goes in circles.")] = True,
    codegen: Annotated[
        str | None,
        typer.Option("--codegen", help="Command that makes an attempt; a loop file is read only if named.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            help="Agent preset that makes an attempt; a loop file is read only if named.",
            show_default=False,
            autocompletion=complete.agents,
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Prompt template for --agent.", show_default=False)] = None,
    validate: Annotated[
        list[str] | None,
        typer.Option("--validate", help="Command that judges an attempt; may be given again.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="GOAL", help="accepted, score, 'score >= X' or promise.", show_default=False)
    ] = None,
    isolation: Annotated[
        str | None, typer.Option("--isolation", metavar="inplace|clone", help="Work in your worktree, or in a clone beside it.", show_default=False)
    ] = None,
    directory: Annotated[Path, typer.Option("-C", help="Work in this folder.", show_default=False)] = Path("."),
    as_json: Annotated[
        bool, typer.Option("--json", help="Write the run's events to standard output, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait while a resume lock stands.")] = False,
) -> None:
    """Let the loop work: every attempt is committed, or undone."""
    from evolver.assemble import prepared
    from evolver.clone import holder
    from evolver.interrupts import Interrupts
    from evolver.opening import once_recovered
    from evolver.planning import Plan, plan
    from evolver.spending import unwatched
    from evolver.ui.lines import recovery
    from evolver.ui.progress import progress

    given = {
        "loop.max_iters": (max_iters, "--max-iters"),
        "loop.max_time": (max_time, "--max-time"),
        "rollback.mode": (rollback, "--rollback"),
        "loop.dirty": (dirty, "--dirty"),
        "loop.until": (until, "--until"),
        "loop.isolation": (isolation, "--isolation"),
        "codegen.command": (codegen, "--codegen"),
        "codegen.agent": (agent, "--agent"),
        "codegen.prompt": (str(Path(prompt).absolute()) if prompt else None, "--prompt"),
    }
    flags = [Override(key, value, flag) for key, (value, flag) in given.items() if value is not None]


    def made() -> Plan:
        file = loop is not None or (codegen is None and agent is None)
        return plan(directory, name=loop, flags=flags, validators=tuple(validate or ()), file=file)

    planned, before = (made(), None) if dry_run else once_recovered(made, directory, os.environ)
    if text := recovery(before):
        print(text, file=sys.stderr, flush=True)
    warnings = list(slips(planned.settings))
    if not planned.loaded.definition.validator and not dry_run:
        warnings.append("nothing judges: every attempt that changes something is accepted (see --validate)")
    warnings += unwatched(planned.loaded.definition, commands=dry_run)
    for warning in warnings:
        print(f"evolver: warning: {warning}", file=sys.stderr, flush=True)
    if dry_run:
        from evolver.ui.plan import print_plan

        print_plan(planned, as_json=as_json)
        return
    with Interrupts(last=True) as interrupts:
        if wait:
            from evolver.events.follow import wait_for_removal
            from evolver.lock import wait_until_free

            if (held := holder(planned.layout)) is not None:
                wait_for_removal(held.resume_lock, lambda: interrupts.signal is not None)
            wait_until_free(planned.layout)  # also of a `resume` that had lifted its lock when we looked
            if interrupts.signal is not None:
                raise typer.Exit(128 + interrupts.signal)
        undelivered: list[str] = []
        with (
            progress(planned, as_json=as_json, quiet=quiet, breaker=breaker) as shown,
            prepared(planned, interrupts, breaker=breaker, listeners=[shown.event], on_output=shown.output, late=undelivered.append) as ready,
        ):
            shown.recovered(ready.recovered)
            report = ready.execute()
        shown.finished(report)
        for words in undelivered:
            print(f"evolver: warning: {words}", file=sys.stderr, flush=True)
    if report.landed is not None:
        from evolver.cli.land import tell

        tell(report.landed, quiet=quiet or as_json)
    raise typer.Exit(int(report.exit_code))
