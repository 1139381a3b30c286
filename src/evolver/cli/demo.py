"""`evolver demo`: twenty real iterations on a scratch repository, without a model and without a network."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:
  evolver demo                in a temporary folder
  evolver demo --quiet demo   in ./demo, only the table at the end
"""


def register(app: typer.Typer) -> None:
    app.command("demo", epilog=EPILOG)(demo)


def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="An empty or new folder; a temporary one if left out.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the table at the end.")] = False,
) -> None:
    """Watch a loop work in a scratch repository, without a model. A seeded mutator improves a small heuristic."""
    from evolver.assemble import prepared
    from evolver.demo import make_repository, scratch
    from evolver.events.reader import read
    from evolver.interrupts import Interrupts
    from evolver.planning import plan
    from evolver.ui.progress import progress
    from evolver.ui.tables import console, print_run
    from evolver.ui.timeline import Timeline

    root = scratch(directory)
    make_repository(root)
    planned = plan(root, name="demo", env=_environment())
    if not quiet:
        print(f"A scratch repository: {root}", flush=True)
    with (
        Interrupts(last=True) as interrupts,
        progress(planned, as_json=False, quiet=quiet) as shown,
        prepared(planned, interrupts, listeners=[shown.event], on_output=shown.output) as ready,
    ):
        report = ready.execute()
    events = planned.layout.events(planned.settings.events)
    run = Timeline(read(events, run=report.run_id)).run(report.run_id)
    out = console()
    if run is not None:
        out.print()
        print_run(run, out)
    command = _called()
    for line in (
        "",
        f"Events   {events}",
        f"Try      cd {shlex.quote(str(root))}",
        "         git log --oneline",
        f"         {command} show 1",
        f"         {command} audit verify",
        f"         {command} report -o report.html",
        f"         {command} run demo --rollback stash   # keep what fails as stash entries",
    ):
        out.print(line, soft_wrap=True)
    sys.stdout.flush()
    raise typer.Exit(int(report.exit_code))


def _called() -> str:
    """How a person calls this program again, from anywhere."""
    if shutil.which("evolver"):
        return "evolver"
    program = Path(sys.argv[0]).absolute()
    return shlex.join([sys.executable, "-m", "evolver"] if program.name == "__main__.py" else [str(program)])


def _environment() -> dict[str, str]:
    """Without the settings a person made for their own loops: the demo shows the demo's."""
    kept = {"EVOLVER_STATE_DIR", "EVOLVER_DEBUG", "EVOLVER_CRASH_AT"}
    return {name: value for name, value in os.environ.items() if not name.startswith("EVOLVER_") or name in kept}
