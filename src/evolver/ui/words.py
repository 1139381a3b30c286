"""How things are written for a person: times, money, outcomes, and text that a terminal may be trusted with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from evolver.ui.views import KEPT, PUT_BACK, RUNNING, IterationView, RunView, StepView, parse_time

# An agent's output, a path, a validator's message: none of it may move the cursor, set the title or write the clipboard.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

GLYPHS = {
    "accepted": "●",
    KEPT: "◆",
    "rolled_back": "×",
    PUT_BACK: "×",
    "no_change": "○",
    "held": "■",
    "rollback_failed": "!",
    "interrupted": "~",
    RUNNING: "…",
}
ASCII_GLYPHS = {
    **GLYPHS, "accepted": "+", KEPT: "*", "rolled_back": "x", PUT_BACK: "x", "no_change": ".", "held": "#", RUNNING: ">",
}  # fmt: skip
STYLES = {
    "accepted": "bold green",
    KEPT: "green",
    "rolled_back": "red",
    PUT_BACK: "red",
    "no_change": "dim",
    "held": "bold yellow",
    "rollback_failed": "bold red reverse",
    "interrupted": "yellow",
    RUNNING: "cyan",
}
LABELS = {outcome: outcome.replace("_", " ") for outcome in GLYPHS} | {KEPT: "kept by a person", PUT_BACK: "put back by hand"}


def plain(text: str) -> str:
    """Without escape sequences and control characters; newlines and tabs stay."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, width: int = 0) -> str:
    """Plain, on one line, cut to `width` characters (0: not cut)."""
    flat = " ".join(plain(text.replace("\r", "\n")).split())
    return flat if not width or len(flat) <= width else flat[: max(1, width - 1)] + "…"


def last_line(output: str) -> str:
    """What a terminal would show of the last line that says something: a progress bar rewrites its own with `\\r`."""
    for line in reversed(re.split(r"[\r\n]+", _ESCAPES.sub("", output))):
        if line.strip():
            return one_line(line)
    return ""


def took(ms: int) -> str:
    """`85 ms`, `3.2 s`, `1m05s`, `2h03m`, `1d02h`."""
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms // 1000
    if seconds < 60:
        return f"{ms / 1000:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600:02}h"


def clock(time: str, *, date: bool = False) -> str:
    """Local time of a stream time."""
    found = parse_time(time)
    return found.astimezone().strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S") if found else ""


def short(commit: str | None) -> str:
    return (commit or "")[:10]


def money(cost: Decimal) -> str:
    return f"${cost:.2f}" if cost >= Decimal("0.01") or not cost else f"${cost.normalize():f}"


def count(number: int) -> str:
    """`1,234`."""
    return f"{number:,}"


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(lines: IterationView) -> str:
    """`2 files +3 -1`."""
    if not lines.paths_total:
        return ""
    counted = f" +{lines.insertions} -{lines.deletions}" if lines.insertions or lines.deletions else ""
    return plural(lines.paths_total, "file") + counted


def score_of(iteration: IterationView) -> str:
    """The score of an attempt, accepted or not; empty when there was none."""
    if iteration.best_guess_score is not None:
        return iteration.best_guess_score
    match = re.match(r"score: (-?\d+(?:\.\d+)?(?:E[+-]?\d+)?) against", iteration.reason)
    return match[1] if match else ""


def why(iteration: IterationView) -> str:
    """One line: why it ended so."""
    reverted = f", reverted by {short(iteration.reverted_by)}" if iteration.reverted_by else ""
    if iteration.outcome == KEPT:
        commit = f"commit {short(iteration.commit)}" if iteration.commit else "nothing had to be committed"
        return f"{commit}{reverted}; {decided(iteration)}; was held: {one_line(iteration.reason)}"
    if iteration.outcome == "accepted":
        flaky = ", ".join(step.name for step in iteration.steps if step.flaky)
        return f"commit {short(iteration.commit)}{reverted}" + (f" (flaky: {flaky})" if flaky else "")
    if iteration.outcome == RUNNING:
        step = iteration.steps[-1] if iteration.steps else None
        return f"running {step.name}" if step is not None and step.judgement == RUNNING else ""
    return one_line(iteration.reason) + (f"; {decided(iteration)}" if iteration.resumed else "")


_DECISIONS = {"kept": "kept", "rolled_back": "rolled back", "unchanged": "found undone"}


def decision(action: str, person: str) -> str:
    """`rolled back with resume by ada`."""
    return f"{_DECISIONS.get(action, one_line(action))} with resume" + (f" by {one_line(person)}" if person else "")


def decided(iteration: IterationView) -> str:
    """The same of an iteration, with the note."""
    said = f" ({one_line(iteration.note, 80)})" if iteration.note else ""
    return decision(iteration.resumed, iteration.resumed_by) + said


def stopped(run: RunView) -> str:
    """The stop condition, with its detail unless the last iteration's line gives the same reason."""
    told = run.iterations[-1].reason if run.iterations else ""
    return run.reason + (f" ({one_line(run.detail, 200)})" if run.detail not in ("", told) else "")


def verdicts(run: RunView) -> str:
    """`3 accepted, 16 rolled back, 1 no change`."""
    counts = ((outcome, run.count(outcome)) for outcome in GLYPHS if outcome != RUNNING)
    return ", ".join(f"{number} {LABELS[outcome]}" for outcome, number in counts if number) or "no iteration finished"


def running_step(iteration: IterationView | None) -> StepView | None:
    return next((step for step in reversed(iteration.steps) if step.judgement == RUNNING), None) if iteration else None


_TELLING = re.compile(
    r"\b(errors?|fail(ed|ure|s|ing)?|fatal|panic(ked)?|exception|traceback|assert\w*|expected|undefined|cannot|refused)\b"
    r"|^E\s|^FAIL|✗|✖|^not ok",
    re.IGNORECASE,
)


def lines_that_matter(output: str, limit: int = 12) -> tuple[str, ...]:
    """The lines of a failing step's output that a person would look for: those that name a failure, else the last ones."""
    lines = [line.rstrip() for line in plain(output).replace("\r", "\n").split("\n") if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return tuple(one_line_keep(line) for line in (telling or lines)[-limit:])


def one_line_keep(line: str, width: int = 300) -> str:
    """Indentation kept, tabs expanded, cut."""
    text = line.expandtabs(4)
    return text if len(text) <= width else text[: width - 1] + "…"


def columns(rows: Iterable[tuple[str, ...]], gap: str = "  ") -> list[str]:
    """Rows aligned by column, for pipes and logs: nothing is cut, nothing is drawn."""
    table = list(rows)
    widths = [max((len(row[n]) for row in table), default=0) for n in range(max(map(len, table), default=0))]
    return [gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in table]
