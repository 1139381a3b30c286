"""The message of the accepting commit: subject, what was squashed into it, and the trailers that recovery looks for."""

from __future__ import annotations

from decimal import Decimal

from evolver.context import RunContext
from evolver.worktree.values import Attempt, Baseline


def commit_message(run: RunContext, number: int, baseline: Baseline, attempt: Attempt, score: Decimal | None) -> str:
    definition = run.loaded.definition
    goal = definition.loop.goal.strip().splitlines()
    subject = definition.accept.message or f"evolver: {goal[0][:60] if goal else run.loaded.name} (iteration {number})"
    body = [subject.replace("{iteration}", str(number)), ""]
    if attempt.commit_subjects:
        body += ["Squashed:", *(f"- {s}" for s in attempt.commit_subjects[:50]), ""]
    body += [f"Evolver-Run: {run.run_id}", f"Evolver-Iteration: {run.iteration_id(number)}"]
    if score is not None:
        body.append(f"Evolver-Score: {score}")
    return "\n".join(body) + "\n"
