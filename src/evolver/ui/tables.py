"""The table of iterations: rich on a terminal, aligned plain lines anywhere else."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evolver.ui import words
from evolver.ui.views import IterationView, RunView


def console(*, stderr: bool = False) -> Console:
    """Colour only on a terminal and without NO_COLOR; no markup, since what is printed is not ours."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def glyphs(encoding: str | None) -> dict[str, str]:
    """The strip's signs in what the terminal can write."""
    return words.GLYPHS if (encoding or "").lower().replace("-", "") in ("utf8", "utf16") else words.ASCII_GLYPHS


def _cells(iteration: IterationView, sign: str) -> tuple[str, ...]:
    return (
        str(iteration.number),
        f"{sign} {words.LABELS.get(iteration.outcome, iteration.outcome)}",
        words.took(iteration.duration_ms) if iteration.ended_at else "",
        words.score_of(iteration),
        words.size(iteration),
        words.why(iteration),
    )


HEAD = ("#", "outcome", "time", "score", "changed", "why")


def rows(run: RunView, signs: dict[str, str]) -> list[tuple[str, ...]]:
    """Cells of every iteration; columns that are empty throughout are dropped."""
    table = [HEAD, *(_cells(iteration, signs.get(iteration.outcome, "?")) for iteration in run.iterations)]
    used = [n for n in range(len(HEAD)) if n in (0, 1) or any(row[n] for row in table[1:])]
    return [tuple(row[n] for n in used) for row in table]


def title(run: RunView) -> str:
    began = words.clock(run.started_at, date=True)
    return f"run {run.run_id}  loop {words.one_line(run.loop)}  mode {run.mode}  {began}"


def closing(run: RunView) -> str:
    """How a run ended, in one line."""
    over = bool(run.finished or run.recovered)
    parts = [words.verdicts(run), f"in {words.took(run.duration_ms)}" if over else f"last sign {words.clock(run.last_at)}"]
    if run.best:
        parts.append(f"best score {run.best}")
    if run.tokens:
        parts.append(f"{words.count(run.tokens)} tokens")
    if run.cost:
        parts.append(words.money(run.cost))
    if run.finished:
        parts.append(f"stopped: {words.stopped(run)}, exit {run.exit_code}")
        if run.resumed:
            parts.append(words.decision(run.resumed, run.resumed_by))
    elif run.recovered:
        parts.append(f"died; recovered: {run.recovered}")
    return ", ".join(parts)


def print_run(run: RunView, out: Console) -> None:
    """Title, one line an iteration, closing line, alerts."""
    signs = glyphs(out.encoding)
    lines = rows(run, signs) if run.iterations else []
    if not out.is_terminal:
        for line in (title(run), *words.columns(lines), closing(run), *(f"alert: {words.one_line(a)}" for a in run.alerts)):
            out.print(line, soft_wrap=True)
        return
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, header_style="bold")
    for name in lines[0] if lines else ():
        table.add_column(name, justify="right" if name in ("#", "time", "score") else "left", no_wrap=name != "why")
    for iteration, cells in zip(run.iterations, lines[1:], strict=True):
        style = words.STYLES.get(iteration.outcome, "")
        table.add_row(cells[0], Text(cells[1], style), *cells[2:])
    out.print(Text(title(run), "bold"))
    if lines:
        out.print(table)
    out.print(closing(run))
    for alert in run.alerts:
        out.print(Text(f"alert: {words.one_line(alert)}", "bold red"))


def strip(run: RunView, signs: dict[str, str], width: int) -> Text:
    """The history of verdicts, newest last, as much as fits."""
    text = Text()
    for iteration in run.iterations[-width:]:
        text.append(signs.get(iteration.outcome, "?"), words.STYLES.get(iteration.outcome, ""))
    return text
