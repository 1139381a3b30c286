"""The live view: seven lines that stay readable in 80 columns, redrawn four times a second."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from evolver.definition import LoadedLoop
from evolver.events.envelope import Envelope
from evolver.loop import RunReport
from evolver.recovery import Recovered
from evolver.ui import forecast, words
from evolver.ui.lines import closing, recovery
from evolver.ui.tables import glyphs, strip
from evolver.ui.timeline import Timeline
from evolver.ui.views import RUNNING, IterationView, RunView, StepView

KEEP = 4096  # bytes of a step's output that its last line is looked for in


class Hushed:
    """Standard output that may go away (a closed terminal, a full disk): that ends the telling, never the run."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # what is in the buffer has to go somewhere when the process ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())


class LiveView:
    """Fed by the run, drawn by a thread of rich's. What is drawn is a snapshot: frozen values, swapped whole."""

    def __init__(self, loaded: LoadedLoop, *, breaker: bool = True, out: Console | None = None) -> None:
        self._loaded, self._breaker = loaded, breaker
        self._out = out or Console(file=cast(IO[str], Hushed(sys.stdout)), markup=False, highlight=False, emoji=False)
        self._timeline = Timeline()
        self._run: RunView | None = None
        self._tail = b""
        self._step_began = self._iteration_began = self._began = time.monotonic()
        self._live = Live(
            get_renderable=self.render, console=self._out, refresh_per_second=4, transient=False, redirect_stdout=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def event(self, envelope: Envelope, line: bytes) -> None:
        self._timeline.feed(envelope)
        match envelope.name:
            case "step.started":
                self._tail, self._step_began = b"", time.monotonic()
            case "iteration.started":
                self._iteration_began = time.monotonic()
        self._run = self._timeline.run(envelope.runid) if envelope.runid else self._run

    def recovered(self, found: Recovered | None) -> None:
        if text := recovery(found):
            self._out.print(Text(text, "yellow"))

    def finished(self, report: RunReport) -> None:
        for text in closing(report):
            self._out.print(Text(text))

    def output(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk[-KEEP:])[-KEEP:]

    def render(self) -> RenderableType:
        """What to draw now."""
        run, width = self._run, self._out.width
        if run is None:
            return Text(
                f"evolver {words.one_line(self._loaded.name)}: checking the worktree", overflow="ellipsis", no_wrap=True
            )
        lines = [self._head(run, width), self._iteration_line(run), *self._step_lines(run), self._strip(run, width)]
        lines += [self._figures(run), self._limits(run)]
        lines += [Text(f"alert: {words.one_line(alert)}", "bold red") for alert in run.alerts[-2:]]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)

    def _elapsed(self, since: float) -> int:
        return int((time.monotonic() - since) * 1000)

    def _head(self, run: RunView, width: int) -> Text:
        branch = (run.branch or "detached").removeprefix("refs/heads/")
        left = f"evolver {words.one_line(run.loop)}  {run.mode} rollback on {words.one_line(branch)}"
        right = words.took(self._elapsed(self._began))
        room = max(1, width - len(right) - 1)
        return Text(left[: room - 1] if len(left) >= room else left, "bold").append(
            " " * max(1, width - min(len(left), room - 1) - len(right)) + right, "not bold"
        )

    def _current(self, run: RunView) -> IterationView | None:
        return run.iterations[-1] if run.iterations else None

    def _iteration_line(self, run: RunView) -> Text:
        current = self._current(run)
        if run.finished:
            return Text(f"finished: {run.reason}" + (f" ({words.one_line(run.detail)})" if run.detail else ""), "bold")
        if current is None:
            return Text("validating the baseline")
        text = Text(f"iteration {current.number} of {run.max_iterations}")
        expected = forecast.expected_ms(run)
        if current.outcome == RUNNING:
            text.append(f"  {words.took(self._elapsed(self._iteration_began))}")
            if expected:
                text.append(f" of about {words.took(expected)}", "dim")
        if expected and current.number < run.max_iterations:
            left = expected * (run.max_iterations - current.number)
            text.append(f"  then about {words.took(left)} more at most", "dim")
        return text

    def _step_lines(self, run: RunView) -> list[Text]:
        step = words.running_step(self._current(run)) or next((s for s in run.steps if s.judgement == RUNNING), None)
        if run.finished:
            return []
        if step is None:
            return [Text(self._between(run), "cyan"), Text("")]
        return [self._step(step), Text("  " + words.last_line(self._tail.decode(errors="replace")), "dim")]

    def _between(self, run: RunView) -> str:
        current = self._current(run)
        return "restoring" if current is not None and current.outcome == RUNNING and current.reason else "looking at the tree"

    def _step(self, step: StepView) -> Text:
        kind = "codegen" if step.step == "codegen" else f"{step.step} {words.one_line(step.name)}"
        text = Text(f"> {kind}", "cyan")
        if step.round:
            text.append(f" (round {step.round})")
        text.append(f"  {words.took(self._elapsed(self._step_began))}", "not bold")
        if step.timeout_ms:
            text.append(f" of {words.took(step.timeout_ms)} at most", "dim")
        return text

    def _strip(self, run: RunView, width: int) -> Text:
        return strip(run, glyphs(self._out.encoding), width)

    def _figures(self, run: RunView) -> Text:
        parts = [words.verdicts(run)]
        scores = [iteration for iteration in run.iterations if words.score_of(iteration)]
        if scores:
            best = run.best or next((i.score for i in reversed(run.iterations) if i.score is not None), None)
            parts.append(f"score {words.score_of(scores[-1])}" + (f", best {best}" if best else ""))
        budget = self._loaded.definition.budget
        if run.tokens:
            limit = f" of {words.count(budget.tokens)}" if budget.tokens else ""
            parts.append(f"{words.count(run.tokens)}{limit} tokens")
        if run.cost:
            limit = f" of ${budget.cost_usd}" if budget.cost_usd != "0" else ""
            parts.append(f"{words.money(run.cost)}{limit}")
        return Text(" · ".join(parts) if words.GLYPHS is glyphs(self._out.encoding) else " - ".join(parts))

    def _limits(self, run: RunView) -> Text:
        if run.finished:
            return Text("evolver log, evolver show N, evolver report", "dim")
        nearest = forecast.limits(run, self._loaded.definition, self._elapsed(self._began), breaker=self._breaker)[:2]
        return Text("next stop: " + "; ".join(f"{limit.name} ({limit.text})" for limit in nearest), "dim")
