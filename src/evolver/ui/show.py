"""One iteration for a person: what changed, who judged, why it was rejected, how it was restored, how to get it back."""

from __future__ import annotations

from collections.abc import Iterator

from evolver.ui import words
from evolver.ui.objects import output_tail
from evolver.ui.views import RUNNING, IterationView, RunView

NAMED = 12


def sections(run: RunView, it: IterationView, stat: str) -> Iterator[tuple[str, list[str]]]:
    """Heading and lines."""
    yield "", _summary(run, it)
    yield "changed", _changed(it, stat)
    yield "steps", _steps(it)
    if it.outcome not in ("accepted", RUNNING):
        yield "why", _why(it)
    if it.outcome in ("rolled_back", "interrupted", "rollback_failed", "no_change"):
        yield "restored", _restored(it)
    if it.resumed:
        yield "resumed", [words.decided(it)]
    if it.effects:
        yield "effects", [words.one_line(text, 160) for text in it.effects]
    if it.alerts:
        yield "alerts", [words.one_line(alert) for alert in it.alerts]
    yield "now", _now(run, it)


def _summary(run: RunView, it: IterationView) -> list[str]:
    out = [f"iteration {it.number} of run {run.run_id}: {words.LABELS.get(it.outcome, it.outcome)}"]
    facts = [f"loop {words.one_line(run.loop)}", f"mode {it.mode or run.mode}", f"from {words.short(it.pre_ref)}"]
    facts.append(f"{words.clock(it.started_at, date=True)}, {words.took(it.duration_ms)}" if it.ended_at else "not ended")
    if words.score_of(it):
        facts.append(f"score {words.score_of(it)}")
    if it.tokens:
        facts.append(f"{words.count(it.tokens)} tokens")
    if it.cost:
        facts.append(words.money(it.cost))
    return [*out, ", ".join(facts)]


def _changed(it: IterationView, stat: str) -> list[str]:
    if stat:
        return [words.one_line_keep(line) for line in words.plain(stat).rstrip().splitlines()]
    if not it.paths_total:
        return ["nothing"]
    more = [f"and {it.paths_total - NAMED} more"] if it.paths_total > NAMED else []
    return [*(words.one_line(path) for path in it.paths[:NAMED]), *more]


def _steps(it: IterationView) -> list[str]:
    rows = []
    for step in it.steps:
        name = words.one_line(step.name) + (f" (round {step.round})" if step.round else "")
        extra = " (flaky)" if step.flaky else f" (killed {step.killed} left behind)" if step.killed else ""
        rows.append((name, step.judgement, words.took(step.duration_ms), words.one_line(step.reason, 160) + extra))
    out = words.columns(rows)
    failing = it.failing_step
    if failing is not None and it.outcome != "accepted":
        telling = words.lines_that_matter(output_tail(failing.log))
        out += [f"| {line}" for line in telling]
        if failing.log:
            told = f"{words.count(failing.log_bytes)} bytes: {failing.log}"
            out.append(f"{told} ({words.one_line(failing.log_error)})" if failing.log_error else f"all {told}")
    return out or ["none ran"]


def _why(it: IterationView) -> list[str]:
    return [words.one_line(it.reason) or "the events do not say"]


def _restored(it: IterationView) -> list[str]:
    if it.outcome == "rollback_failed":
        left = [words.one_line(path) for path in it.leftovers[:NAMED]]
        return ["NOT restored; what still differs:", *left, f"the baseline is kept in {it.vault}"]
    by = " after a crash, by recovery" if it.recovered else ""
    if not it.rollback_ref and not (it.restored or it.removed or it.refs):
        return [f"nothing had to be{by}; {'verified equal to the baseline' if it.verified else 'not verified'}"]
    counts = f"{it.restored} written, {it.removed} removed, {it.refs} refs moved back"
    proof = "verified equal to the baseline" if it.verified else "not verified"
    out = [f"by {it.rollback_ref or 'evolver'}{by}: {counts}; {proof}"]
    if it.left:
        out.append(f"never part of it: {', '.join(words.one_line(path) for path in it.left[:NAMED])}")
    return out


def _now(run: RunView, it: IterationView) -> list[str]:
    name = str(it.number)
    match it.outcome:
        case "accepted" | "kept" if it.reverted_by:
            return [f"it was reverted by {words.short(it.reverted_by)}"]
        case "kept" if it.commit is None:
            return ["it is in the tree as it was"]
        case "accepted" | "kept":
            out = [f"git show {words.short(it.commit)}", f"evolver revert {name}  # undo it by a new commit"]
            if it.user_files:
                out.append(f"untracked files of yours it changed ({', '.join(it.user_files[:NAMED])}): {it.user_files_kept}")
            return out
        case "held":
            return ["the attempt is in the worktree: git status", "evolver resume  # keep it, or roll it back"]
        case "rollback_failed":
            return ["evolver status", "evolver resume"]
        case _ if it.stash_ref:
            return [f"git stash apply --index {it.stash_ref}  # on a clean checkout of {words.short(it.pre_ref)}"]
        case _ if it.attempt_ref:
            return [f"evolver attempts apply {run.run_id}/{name}", f"git show {it.attempt_ref}"]
        case "rolled_back" if it.resumed:
            return ["not kept; `evolver resume --rollback stash` would have"]
        case "put_back":
            return ["not kept: the tree was the baseline again before `evolver resume`"]
        case "rolled_back" | "interrupted":
            return ["not kept (mode hard); next time: --rollback stash, or [rollback] keep_attempts = 10"]
        case other if other == RUNNING:
            return ["evolver events -f", "evolver stop"]
    return ["nothing to do"]
