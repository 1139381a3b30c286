"""From a report to a page. What agents wrote is escaped, and the page's own policy forbids it to load or run anything."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from evolver.ui import words
from evolver.ui.report import charts, model
from evolver.ui.report.model import Report
from evolver.ui.views import IterationView

# Opens every fold for the printer and for the button; the only script of the page.
SCRIPT = """
const all = open => document.querySelectorAll('details').forEach(d => { d.open = open; });
addEventListener('beforeprint', () => all(true));
const button = document.getElementById('unfold');
button.hidden = false;
button.addEventListener('click', () => {
  const open = button.getAttribute('aria-pressed') !== 'true';
  button.setAttribute('aria-pressed', String(open));
  all(open);
});
addEventListener('hashchange', () => {
  const row = document.getElementById(location.hash.slice(1));
  if (row && row.matches('details')) { row.open = true; row.querySelector('summary').focus(); }
});
"""


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _environment(*, html: bool) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evolver.ui.report", "templates"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (words.took, words.short, words.one_line, words.money, words.count, words.plain)
    environment.filters.update({f.__name__: f for f in filters}, cell=_cell, clock=lambda time: words.clock(time, date=True))
    environment.globals.update({f.__name__: f for f in (words.why, words.size, words.score_of, words.verdicts)})
    environment.globals.update(glyphs=words.GLYPHS, labels=words.LABELS, decision=words.decision, stopped=words.stopped)
    return environment


def _cell(text: str) -> str:
    """One Markdown table cell. It goes into a pull request: no link, no picture, no markup, nobody notified."""
    flat = re.sub(r"([\\`*_\[\]|!~#])", r"\\\1", words.one_line(text, 120)).replace("<", "&lt;")
    return flat.replace("@", "@\N{ZERO WIDTH SPACE}")


def _detailed(report: Report) -> set[int]:
    """The iterations whose steps are listed: all, or of a long run those that did not simply pass or fail alike."""
    iterations: tuple[IterationView, ...] = report.run.iterations
    if len(iterations) <= model.DETAILED_ITERATIONS:
        return {iteration.number for iteration in iterations}
    newest = {group.numbers[-1] for group in report.failures}
    kept = [i.number for i in iterations if i.outcome not in ("rolled_back", "no_change") or i.alerts or i.number in newest]
    return set(kept[-model.DETAILED_ITERATIONS :])


def html(report: Report) -> str:
    run = report.run
    plots = [
        (title, svg)
        for title, svg in (
            ("Score", charts.score(run)),
            ("Time per iteration", charts.seconds(run)),
            ("Cost per iteration", charts.cost(run)),
            ("Tokens per iteration", charts.tokens(run)),
        )
        if svg
    ]
    text = _environment(html=True).get_template("report.html.jinja")
    rendered: str = text.render(
        report=report,
        run=run,
        plots=plots,
        outcomes=model.outcomes(run),
        detailed=_detailed(report),
        script=SCRIPT,
        policy=_policy(),
    )
    return rendered


def markdown(report: Report) -> str:
    text = _environment(html=False).get_template("report.md.jinja")
    rendered: str = text.render(report=report, run=report.run, outcomes=model.outcomes(report.run))
    return rendered
