"""`evolver prompt`: what the next iteration would tell the agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.cli import complete
from evolver.settings import Override

if TYPE_CHECKING:
    from evolver.prompt import Values
    from evolver.ui.views import RunView

EPILOG = """Examples:
  evolver prompt
  evolver prompt --last
  evolver prompt --prompt task.md | claude -p
"""


def register(app: typer.Typer) -> None:
    app.command("prompt", epilog=EPILOG)(prompt)


def prompt(
    loop: Annotated[
        str | None,
        typer.Argument(
            help="Loop: a name in loops/, a built-in one, or a path.", show_default=False, autocompletion=complete.loops
        ),
    ] = None,
    template: Annotated[
        str | None, typer.Option("--prompt", help="Another template than the loop's.", show_default=False)
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="As if the last run went on; without it a finished run teaches nothing.")
    ] = False,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Print the prompt that the next iteration would send. Starts nothing."""
    from dataclasses import replace

    from evolver.cli import pick
    from evolver.cli.stream import find_stream
    from evolver.planning import plan
    from evolver.prompt import Prompt, first_values

    flags = [Override("codegen.prompt", str(Path(template).absolute()), "--prompt")] if template else []
    planned = plan(directory, name=loop, flags=flags)
    made = Prompt(planned.loaded)
    values = replace(first_values(planned.loaded), pre_ref=_head(planned.layout.git_dir))
    run = next(pick.runs(find_stream(directory).path), None)
    if run is not None and run.loop == planned.loaded.name and (last or not run.finished):
        values = _learned(values, run)
    typer.echo(made.render(values), nl=False)


def _learned(values: Values, run: RunView) -> Values:
    """What a run in progress would tell its next iteration."""
    from dataclasses import replace

    from evolver.feedback import Feedback
    from evolver.model import Judgement, Outcome, Verdict
    from evolver.prompt import trimmed
    from evolver.ui.objects import output_tail

    told = Feedback()
    for iteration in run.iterations:
        if iteration.judged not in tuple(Outcome):
            continue
        step = iteration.failing_step
        stat = f"{iteration.paths_total or len(iteration.paths)} paths, +{iteration.insertions} -{iteration.deletions}"
        verdict = Verdict(Judgement.FAIL, iteration.reason, step.name if step is not None else "")
        output = output_tail(step.log) if step is not None else ""
        told = told.after(iteration.number, Outcome(iteration.judged), verdict, output, stat)
    accepted = [i for i in run.iterations if i.outcome == Outcome.ACCEPTED]
    return replace(
        values,
        iteration=max((i.number for i in run.iterations), default=0) + 1,
        reason=told.reason,
        output=trimmed(told.output),
        tried=told.tried,
        diff_stat=told.diff_stat,
        score=(accepted[-1].score or "") if accepted else "",
        best=run.best or "",
        accepted=len(accepted),
        baseline_red=bool(run.red) and not accepted,
    )


def _head(git_dir: Path) -> str:
    """HEAD's commit, as far as two small files tell; empty when a ref is packed. Only for show."""
    try:
        text = (git_dir / "HEAD").read_text().strip()
        return (git_dir / text.removeprefix("ref: ")).read_text().strip() if text.startswith("ref: ") else text
    except OSError:
        return ""
