"""One plain line for an event, or nothing when it is no milestone."""

from __future__ import annotations

from evolver.events import types as ev
from evolver.events.envelope import Envelope
from evolver.loop import RunReport
from evolver.model import Outcome
from evolver.recovery import Recovered
from evolver.ui import words
from evolver.ui.timeline import alert_text, event_of


def describe(envelope: Envelope) -> str:
    """The line for a person; empty for events that only auditors need."""
    number, event = envelope.iteration, event_of(envelope)
    match event:
        case ev.RunStarted():
            where = words.one_line((event.branch or "detached HEAD").removeprefix("refs/heads/"))
            left = "".join(f"\nnot kept, over the budget: {words.one_line(path)}" for path in event.left_out)
            loop, start = words.one_line(event.loop), words.short(event.pre_ref)
            return f"run {envelope.runid}: loop {loop}, {event.rollback_mode} rollback, {start} on {where}{left}"
        case ev.BaselineValidated():
            return f"baseline: {'red: ' + words.one_line(event.reason) if event.red else 'green'}"
        case ev.StepFinished() if number:
            name = words.one_line(event.name)
            reason = words.one_line(event.reason, 160).removeprefix(f"{name}: ")
            told = words.took(event.duration_ms) if event.judgement == "pass" else f"{reason}, {words.took(event.duration_ms)}"
            return f"[{number}] {name}: {event.judgement} ({told})"
        case ev.IterationAccepted():
            score = f", score {event.score}" if event.score else ""
            changed = f"{words.plural(event.paths_total, 'file')} +{event.insertions} -{event.deletions}"
            return f"[{number}] accepted as {words.short(event.commit)}: {changed}{score}"
        case ev.IterationNoChange():
            return f"[{number}] no change: {words.one_line(event.reason)}"
        case ev.RollbackFinished():
            stash = f", kept as stash {words.short(event.stash_ref)}" if event.stash_ref else ""
            stash += f", nested repositories in {event.copies}" if event.copies else ""
            gone = [name.removesuffix(" (gone)") for name in event.left if name.endswith(" (gone)")]
            stash += f"; gone, as it was left out of the baseline: {words.one_line(', '.join(gone), 160)}" if gone else ""
            proof = "rolled back and verified" if event.verified else "rolled back"
            return f"[{number}] {proof}: {words.one_line(event.reason)}{stash}"
        case ev.RollbackFailed():
            return f"[{number}] NOT RESTORED: {words.one_line(event.reason)}; the baseline is in {words.one_line(event.vault)}"
        case ev.RollbackSkipped():
            return f"[{number}] held as it is: {words.one_line(event.reason)}"
        case ev.RunHeld() | None:
            return ""
        case _ if event.SEVERITY == "alert":
            return f"ALERT {words.one_line(alert_text(event))}"
    return ""


def recovery(found: Recovered | None) -> str:
    """What became of a run that died; empty when none had."""
    if found is None or found.action == "nothing_to_do":
        return ""
    return f"recovered run {found.run_id}: {found.action.replace('_', ' ')}. {words.one_line(found.reason)}".rstrip()


def closing(report: RunReport) -> list[str]:
    """How a run ended, and what a person can do next."""
    state, stop = report.state, report.stop
    counts = [(state.rolled_back, "rolled back"), (state.no_change, "without a change"), (state.held, "held")]
    if state.last is not None and state.last.outcome in (Outcome.INTERRUPTED, Outcome.ROLLBACK_FAILED):  # only the last can be
        counts.append((1, words.LABELS[state.last.outcome]))
    told = ", ".join([f"{state.accepted} accepted", *(f"{number} {word}" for number, word in counts if number)])
    score = f" Best score {state.best}." if state.best is not None else ""
    rejected = state.last.verdict.reason if state.last is not None and state.last.verdict is not None else ""
    # The number of iterations and why the last one was rejected are told already.
    why = f" ({words.one_line(stop.detail)})" if stop.detail not in ("", rejected) and stop.name != "max_iterations" else ""
    out = [f"{words.plural(state.iterations, 'iteration')}: {told}. Stopped: {stop.name.replace('_', ' ')}{why}.{score}"]
    if report.exit_code in (3, 4):
        out.append("A person is needed: look at `evolver status` and the worktree, then run `evolver resume`.")
    return out
