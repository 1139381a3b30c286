"""Plots as inline SVG, by pygal: no script, no fonts, colours from the page's own variables."""

from __future__ import annotations

import re
from typing import Any

from evolver.ui import words
from evolver.ui.views import RunView

MOST_DOTS = 150  # above it dots hide the line, and each one costs 150 bytes
# Comments, pygal's configuration script, and the hints for its tooltips: the page has no use for them.
_SURPLUS = re.compile(r"<!--.*?-->|<script.*?</script>|<desc[^>]*>.*?</desc>", re.DOTALL)


def _style() -> Any:
    from pygal.style import Style

    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--rule)",
        guide_stroke_color="var(--rule)",
        major_guide_stroke_color="var(--rule)",
        colors=("var(--line)", "var(--good)"),
        font_family="inherit",
        label_font_size=13,
        major_label_font_size=13,
        transition="0s",
    )


def _render(name: str, y_title: str, series: list[tuple[str, list[tuple[int, float]], bool]]) -> str:
    """`series`: name, points, whether they are dots (else a line)."""
    import pygal

    chart = pygal.XY(
        style=_style(), js=[], width=900, height=260, show_legend=False, disable_xml_declaration=True, explicit_size=False,
        include_x_axis=False, x_title="iteration", y_title=y_title, dots_size=3.5, margin=8, truncate_label=-1,
    )  # fmt: skip
    chart.uuid = name
    highest = max((x for _, points, _ in series for x, _ in points), default=1)
    step = max(1, highest // 10)
    chart.x_labels = list(range(0, highest + 1, step))
    chart.x_value_formatter = lambda x: f"{x:.0f}"
    for title, points, dots in series:
        chart.add(title, points, show_dots=dots and len(points) <= MOST_DOTS, stroke=not dots or len(points) > MOST_DOTS)
    svg = _SURPLUS.sub("", chart.render(is_unicode=True))
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name} per iteration" ', 1)


def score(run: RunView) -> str:
    """Every attempt's score as a line, the accepted ones as dots; empty when there is no score."""
    points = [(i.number, float(words.score_of(i))) for i in run.iterations if words.score_of(i)]
    accepted = [(i.number, float(i.score)) for i in run.iterations if i.outcome == "accepted" and i.score is not None]
    return _render("score", "score", [("attempts", points, False), ("accepted", accepted, True)]) if points else ""


def seconds(run: RunView) -> str:
    points = [(i.number, round(i.duration_ms / 1000, 1)) for i in run.iterations if i.ended_at]
    return _render("seconds", "seconds", [("seconds", points, False)]) if points else ""


def cost(run: RunView) -> str:
    """US dollars an iteration; empty when no agent reported any."""
    points = [(i.number, float(i.cost)) for i in run.iterations]
    return _render("cost", "US dollars", [("cost", points, False)]) if any(y for _, y in points) else ""


def tokens(run: RunView) -> str:
    points = [(i.number, float(i.tokens)) for i in run.iterations]
    return _render("tokens", "tokens", [("tokens", points, False)]) if any(y for _, y in points) else ""
