"""The rows of `evolver compare`. Pure."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from evolver.ui import words
from evolver.ui.views import IterationView, RunView

Picked = tuple[RunView, IterationView]


def rows(left: Picked, right: Picked) -> list[tuple[str, ...]]:
    """Label, left, right, difference; facts that neither has are left out."""
    (run_a, a), (run_b, b) = left, right
    same_run = run_a.run_id == run_b.run_id
    table: list[tuple[str, ...]] = [("", str(a.number) if same_run else a.iteration_id, str(b.number) if same_run else b.iteration_id, "")]

    def add(label: str, first: str, second: str, difference: str = "") -> None:
        if first or second:
            table.append((label, first or "-", second or "-", difference))

    add("outcome", words.LABELS.get(a.outcome, a.outcome), words.LABELS.get(b.outcome, b.outcome))
    add("reason", words.one_line(words.why(a), 60), words.one_line(words.why(b), 60))
    add("from", words.short(a.pre_ref), words.short(b.pre_ref), "same" if a.pre_ref == b.pre_ref else "")
    add("time", words.took(a.duration_ms), words.took(b.duration_ms), _signed(b.duration_ms - a.duration_ms, "ms"))
    add("score", words.score_of(a), words.score_of(b), _score(words.score_of(a), words.score_of(b)))
    if a.tokens or b.tokens:
        add("tokens", words.count(a.tokens), words.count(b.tokens), _signed(b.tokens - a.tokens))
    if a.cost or b.cost:
        add("cost", words.money(a.cost), words.money(b.cost))
    add("changed", words.size(a), words.size(b))
    both = set(a.paths) & set(b.paths)
    if both:
        table.append(("paths in both", words.one_line(", ".join(sorted(both)), 120), "", ""))
    for name in dict.fromkeys(step.name for step in (*a.steps, *b.steps)):
        add(words.one_line(name, 30), _judged(a, name), _judged(b, name))
    return table


def _judged(iteration: IterationView, name: str) -> str:
    step = next((step for step in reversed(iteration.steps) if step.name == name), None)
    return f"{step.judgement}, {words.took(step.duration_ms)}" if step is not None else ""


def _signed(number: int, unit: str = "") -> str:
    return f"{number:+,} {unit}".strip() if number else "same"


def _score(first: str, second: str) -> str:
    try:
        return f"{Decimal(second) - Decimal(first):+f}"
    except InvalidOperation:
        return ""
