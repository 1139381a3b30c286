"""What a report says, gathered from a run: grouped failures, accepted commits, how to reproduce it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolver.definition import LoopDefinition
from evolver.ui import words
from evolver.ui.views import KEPT, IterationView, RunView

# Diffs and steps share what is left below a megabyte; a page that a phone cannot open helps nobody.
DIFF_BYTES = 300_000
DETAILED_ITERATIONS = 400


@dataclass(frozen=True, slots=True)
class Failures:
    """Rejected iterations with one cause."""

    cause: str
    step: str
    numbers: tuple[int, ...]
    example: str  # the telling lines of the newest one


@dataclass(frozen=True, slots=True)
class Commit:
    """An accepted attempt with its diff, perhaps cut."""

    iteration: IterationView
    subject: str
    diff: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """What verifying the event stream said."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    run: RunView
    failures: tuple[Failures, ...]
    commits: tuple[Commit, ...]
    chain: Chain
    reproduce: tuple[str, ...]
    advice: tuple[str, ...]
    healthy: str  # one sentence
    version: str
    made_at: str


_NUMBERS = re.compile(r"\b\d[\d.,:]*\b|0x[0-9a-fA-F]+|\b[0-9a-f]{7,64}\b")


def cause_of(iteration: IterationView) -> tuple[str, str]:
    """Step and normalised reason: iterations with equal ones failed alike."""
    step = iteration.failing_step
    name = step.name if step is not None else ("score" if iteration.reason.startswith("score:") else "")
    return name, _NUMBERS.sub("…", words.one_line(iteration.reason, 160)) or "no reason given"


def group_failures(run: RunView, output_of: Callable[[IterationView], str]) -> tuple[Failures, ...]:
    """The most frequent first."""
    groups: dict[tuple[str, str], list[IterationView]] = {}
    for iteration in run.iterations:
        if iteration.outcome in ("rolled_back", "held", "rollback_failed", "put_back"):
            groups.setdefault(cause_of(iteration), []).append(iteration)
    found = []
    for (step, _), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        newest = members[-1]
        telling = "\n".join(words.lines_that_matter(output_of(newest), 8))
        found.append(Failures(words.one_line(newest.reason, 200), step, tuple(m.number for m in members), telling))
    return tuple(found)


def commits(run: RunView, show: Callable[[str], tuple[str, str] | None]) -> tuple[Commit, ...]:
    """Accepted commits; `show` gives subject and diff, None for a commit that is gone."""
    accepted = [iteration for iteration in run.iterations if iteration.stayed and iteration.commit]
    each = max(400, DIFF_BYTES // max(1, len(accepted)))
    out = []
    for iteration in accepted:
        found = show(iteration.commit or "")
        subject, diff = found if found is not None else ("(no longer in this repository)", "")
        text = words.plain(diff)
        out.append(Commit(iteration, words.one_line(subject, 120), text[:each], len(text) > each))
    return tuple(out)


def reproduce(run: RunView, definition: LoopDefinition | None) -> tuple[str, ...]:
    """Commands that run the same loop on the same commit, in a worktree of its own."""
    if run.loop in ("", "command-line") and definition is None:
        return (f"git worktree add --detach ../evolver-{run.run_id[:8]} {run.pre_ref}", "# the command that ran is not kept any more")
    folder = f"../evolver-{run.run_id[:8]}"
    command = ["evolver", "run"]
    if run.loop and run.loop != "command-line":
        command.append(run.loop)
    elif definition is not None:
        if isinstance(definition.codegen.command, str):
            command += ["--codegen", definition.codegen.command]
        elif definition.codegen.agent:
            command += ["--agent", definition.codegen.agent]
            command += ["--prompt", definition.codegen.prompt] if definition.codegen.prompt else []
        for validator in definition.validator:
            if isinstance(validator.command, str):
                command += ["--validate", validator.command]
    if run.max_iterations:
        command += ["--max-iters", str(run.max_iterations)]
    if run.mode:
        command += ["--rollback", run.mode]
    return (
        f"git worktree add --detach {folder} {run.pre_ref}",
        f"cd {folder}",
        shlex.join(command),
    )


def advice(run: RunView) -> tuple[str, ...]:
    """What to do now, with commands."""
    out: list[str] = []
    last = run.iterations[-1] if run.iterations else None
    if run.held:
        out.append(f"evolver show {run.held.rpartition('/')[2]}  # why it stopped; then: evolver resume")
    if last is not None and last.outcome == "rollback_failed":
        out.append("evolver status  # the tree could not be restored: what differs, and where the baseline is kept")
    if run.red:
        out.append("# the validators were already red on the commit the run started from")
    if run.reason.startswith("breaker") and last is not None:
        out.append(f"evolver show {last.number}  # what every attempt fails at")
    if any(i.stayed for i in run.iterations):
        out.append(f"git log --oneline {words.short(run.pre_ref)}..{words.short(run.head) or 'HEAD'}  # what was kept")
        newest = next((i for i in reversed(run.iterations) if i.stayed and i.commit), None)
        if newest is not None:
            out.append(f"evolver revert {newest.number}  # undo one accepted iteration, by a new commit")
    if any(i.stash_ref or i.attempt_ref for i in run.iterations):
        out.append("evolver attempts list  # rejected attempts that were kept")
    return tuple(out)


def health(run: RunView, chain: Chain) -> str:
    """One sentence: may a person rely on the worktree?"""
    if not chain.ok:
        return f"The event stream cannot be relied on: {chain.text}"
    failed = run.count("rollback_failed")
    if failed:
        return "The worktree could not be restored: a person is needed."
    if run.held:
        return "Stopped and held: the failed attempt is still in the worktree until `evolver resume`."
    if not run.finished:
        return "Running." if not run.recovered else "The run died and was recovered."
    undone = [i for i in run.iterations if i.outcome in ("rolled_back", "interrupted", "put_back")]
    unproved = [i.number for i in undone if not i.verified and i.outcome != "put_back"]  # `resume` compared that one itself
    if unproved:
        return f"Iterations {', '.join(map(str, unproved))} were rolled back but not verified."
    kept = sum(i.stayed for i in run.iterations)
    if not kept:
        if not undone:
            return "Nothing was kept, and there was nothing to undo."
        return f"Nothing was kept: {words.plural(len(undone), 'attempt')} undone, each proved equal to its baseline."
    by_hand = f" ({run.count(KEPT)} by a person)" if run.count(KEPT) else ""
    return f"Healthy: {kept} kept{by_hand}, {len(undone)} undone" + (", each proved." if undone else ".")


def build(
    run: RunView,
    definition: LoopDefinition | None,
    chain: Chain,
    *,
    show: Callable[[str], tuple[str, str] | None],
    output_of: Callable[[IterationView], str],
    version: str,
    made_at: str,
) -> Report:
    return Report(
        run=run,
        failures=group_failures(run, output_of),
        commits=commits(run, show),
        chain=chain,
        reproduce=reproduce(run, definition),
        advice=advice(run),
        healthy=health(run, chain),
        version=version,
        made_at=made_at,
    )


def outcomes(run: RunView) -> Sequence[tuple[str, int]]:
    """Outcome and how often, for those that occurred."""
    return [(name, run.count(name)) for name in words.GLYPHS if run.count(name)]
