"""`evolver explain ITERATION`: one iteration retold from its events alone, in plain sentences."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import pick
from evolver.cli.stream import find_stream, quiet_pipe
from evolver.ui.views import RUNNING, IterationView, RunView, StepView
from evolver.ui.words import clock, one_line, plural, short, took

NAMED = 8  # paths named before the rest is counted
EPILOG = """Examples:
  evolver explain     the last iteration
  evolver explain 3   iteration 3 of the last run
"""


def register(app: typer.Typer) -> None:
    app.command("explain", epilog=EPILOG)(explain)


def explain(
    iteration: Annotated[str, typer.Argument(help="RUN_ID/N, N of the last run, or last.")] = "last",
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path(),
) -> None:
    """Retell one iteration in sentences, from its events alone.

    What it started from, what changed, who judged, what was undone, how that was proved.
    """
    stream = find_stream(directory)
    run, found = pick.iteration(stream.path, iteration)
    with quiet_pipe():
        sys.stdout.write("\n".join(retell(run, found)) + "\n")


def retell(run: RunView, it: IterationView) -> list[str]:
    """The sentences, one paragraph a line."""
    branch = it.branch.removeprefix("refs/heads/") if it.branch else "a detached HEAD"
    out = [
        f"Iteration {it.number} of run {run.run_id} (loop {one_line(run.loop)}, mode {it.mode or run.mode}) started at "
        f"{clock(it.started_at, date=True)} from commit {short(it.pre_ref)} on {one_line(branch)}."
    ]
    if run.red is not None:
        red = f"the validators failed already: {one_line(run.red_reason)}" if run.red else "the validators passed"
        out.append(f"On the baseline of the run, {red}.")
    out += [_step(step) for step in it.steps]
    out.append(_changed(it))
    out += [f"{one_line(text)}." for text in it.effects]
    out += [f"Alert: {one_line(alert)}." for alert in it.alerts]
    out += _ending(it)
    return out


def _step(step: StepView) -> str:
    who = {
        "codegen": "The agent",
        "validate": f"Validator {one_line(step.name)}",
        "effect": f"Effect {one_line(step.name)}",
    }.get(step.step, one_line(step.name))
    again = f" in repair round {step.round}" if step.round else ""
    if step.judgement == RUNNING:
        return f"{who} was started{again}; the events do not say how it ended."
    verdict = {"pass": "passed", "fail": "failed", "inconclusive": "was inconclusive"}.get(step.judgement, step.judgement)
    if step.step == "codegen":
        verdict = {"pass": "finished", "fail": "failed"}.get(step.judgement, verdict)
    score = f", score {step.score}" if step.score is not None else ""
    flaky = ", only on a retry (flaky)" if step.flaky else ""
    killed = f"; {plural(step.killed, 'process')} it left running had to be killed" if step.killed else ""
    return f"{who} {verdict}{again} after {took(step.duration_ms)} ({one_line(step.reason)}{score}{flaky}){killed}."


def _changed(it: IterationView) -> str:
    if not it.paths_total and not it.paths:
        return "Nothing that could be committed had changed." if it.outcome != RUNNING else "What changed is not recorded."
    kinds = [
        f"{count} {word}" for count, word in ((it.added, "added"), (it.modified, "modified"), (it.deleted, "deleted")) if count
    ]
    lines = f", +{it.insertions} -{it.deletions} lines" if it.insertions or it.deletions else ""
    named = ", ".join(one_line(path) for path in it.paths[:NAMED])
    rest = f" and {it.paths_total - NAMED} more" if it.paths_total > NAMED else ""
    total = plural(it.paths_total, "path")
    return f"The attempt changed {total} ({', '.join(kinds) or 'see below'}{lines}): {named}{rest}."


def _ending(it: IterationView) -> list[str]:
    match it.outcome:
        case "accepted":
            out = [f"It was accepted as commit {short(it.commit)}" + (f" with score {it.score}." if it.score else ".")]
            if it.squashed:
                out.append(f"{plural(len(it.squashed), 'commit')} of the agent's own were squashed into it.")
            if it.user_files:
                named = ", ".join(one_line(path) for path in it.user_files[:NAMED])
                out.append(f"It changed untracked files of yours ({named}); their earlier bytes: {it.user_files_kept}.")
            if it.reverted_by:
                out.append(f"Later it was reverted by commit {short(it.reverted_by)}.")
            return out
        case "no_change":
            return [f"It counts as no change: {one_line(it.reason)}."]
        case "rolled_back" | "interrupted":
            return [*_decided(it), _undone(it), *_kept(it), _proof(it)]
        case "kept":
            what = f"as commit {short(it.commit)}" if it.commit else "as it was: nothing had to be committed"
            later = [f"Later it was reverted by commit {short(it.reverted_by)}."] if it.reverted_by else []
            return [f"It was rejected: {one_line(it.reason)}.", *_decided(it), f"It was kept {what}.", *later]
        case "put_back":
            return [
                f"It was rejected: {one_line(it.reason)}.",
                *_decided(it),
                "The tree had been made equal to the baseline by hand by then.",
            ]
        case "held":
            return [
                f"It was rejected: {one_line(it.reason)}.",
                "In mode none nothing was undone: the attempt stands as the agent left it.",
                "The loop stopped and wrote the resume lock: `evolver resume` decides.",
            ]
        case "rollback_failed":
            left = ", ".join(one_line(path) for path in it.leftovers[:NAMED]) or "nothing by name"
            return [
                f"It was rejected, and the baseline could NOT be put back: {one_line(it.reason)}.",
                f"What still differs: {left}. The baseline is kept in {it.vault}; a person has to finish by hand.",
            ]
    return ["Its end is not in the stream: the run is going on, or was killed and not recovered yet."]


def _decided(it: IterationView) -> list[str]:
    """What a person did about an iteration that was held; nothing when it was not."""
    if not it.resumed:
        return []
    person = f" ({one_line(it.resumed_by)})" if it.resumed_by else ""
    note = f' The note says: "{one_line(it.note)}".' if it.note else ""
    return [f"The loop stopped and held it, until a person{person} ran `evolver resume`.{note}"]


def _undone(it: IterationView) -> str:
    parts = [
        f"{plural(it.restored, 'path')} written back" if it.restored else "",
        f"{plural(it.removed, 'path')} removed" if it.removed else "",
    ]
    parts.append(f"{plural(it.refs, 'ref')} moved back" if it.refs else "")
    by = " by the next start of evolver, after a crash" if it.recovered else ""
    did = ", ".join(part for part in parts if part) or "nothing had to be written"
    return f"It was rejected ({one_line(it.reason)}) and undone{by}: {did}."


def _kept(it: IterationView) -> list[str]:
    if it.stash_ref:
        return [f"The attempt is kept as stash entry {short(it.stash_ref)}."]
    return [f"The attempt is kept as {it.attempt_ref}."] if it.attempt_ref else ["The attempt was discarded."]


def _proof(it: IterationView) -> str:
    left = f" Never part of it, and left alone: {', '.join(one_line(path) for path in it.left[:NAMED])}." if it.left else ""
    if it.verified:
        return f"The worktree was then compared with the baseline (commit {short(it.pre_ref)}) and found equal.{left}"
    return f"The worktree was not proved equal to the baseline.{left}"
