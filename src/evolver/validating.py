"""Judging one attempt: validators in order, formatters first, stop at the first that fails; then the score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from evolver import score as scoring
from evolver.context import RunContext
from evolver.definition import ValidatorSection
from evolver.model import Judgement, StepContext, StepResult, Validator, Verdict
from evolver.stepping import run_step
from evolver.steps.judge import judge
from evolver.telling import text_path
from evolver.worktree.values import Attempt


class Validation:
    """The validators of one attempt and what they came to."""

    def __init__(
        self,
        run: RunContext,
        context: StepContext,
        best: Decimal | None,
        *,
        guard: Callable[[], None],
        kind: str = "validate",
    ) -> None:
        self.run, self.context, self.best, self.guard, self.kind = run, context, best, guard, kind
        self.failing: StepResult | None = None
        self.score: Decimal | None = None
        self.tree_changed = False  # a formatter ran: the attempt must be looked at again

    def judge(self, attempt: Attempt | None) -> tuple[Verdict, bool]:
        """The verdict, and whether a writer survived. `attempt` None: the baseline is being judged, every validator runs."""
        self.failing, self.score, self.tree_changed = None, None, False
        sections = {s.name: s for s in self.run.loaded.definition.validator}
        ordered = sorted(self.run.validators, key=lambda v: not (v.name in sections and sections[v.name].writes))
        verdict = Verdict(Judgement.PASS, "no validators" if not ordered else "all validators passed")
        for validator in ordered:
            section = sections.get(validator.name)
            if self.run.interrupts.signal is not None:
                return Verdict(Judgement.INCONCLUSIVE, "interrupted", validator.name), False
            if section is not None and not _wanted(section, attempt):
                continue
            result, verdict = self._step(validator, section)
            if section is not None and section.writes:
                self.tree_changed = True
            if result.survivors or not verdict.passed:
                self.failing = result
                return verdict, bool(result.survivors)
            measured = self._measure(validator, section, result)
            if measured is not None and not measured.passed:
                self.failing = result
                return measured, False
        return replace_reason(verdict, "all validators passed" if ordered else "no validators"), False

    def _step(self, validator: Validator, section: ValidatorSection | None, attempt: int = 0) -> tuple[StepResult, Verdict]:
        return run_step(
            self.run,
            replace(self.context, repair_round=attempt),
            kind=self.kind,
            name=validator.name,
            call=validator.validate,
            judge=judge,
            guard=self.guard,
            timeout_ms=section.timeout if section is not None else None,
        )

    def _measure(self, validator: Validator, section: ValidatorSection | None, result: StepResult) -> Verdict | None:
        """The score's verdict, when this validator is the one that gives it."""
        wanted = self.run.loaded.definition.score
        if wanted is None or wanted.validator != validator.name:
            return None
        values, runs = [], 0
        while True:
            value = scoring.read(wanted, result, self.run.workdir, self.context.step_dir)
            if value is not None:
                values.append(value)
            runs += 1
            if runs >= max(1, wanted.noise) or self.run.interrupts.signal is not None:
                break
            result, verdict = self._step(validator, section, attempt=runs)
            if not verdict.passed:
                return verdict
        measured = scoring.Measured.of(values) if values else None
        self.score = measured.value if measured is not None else None
        if self.kind != "validate":
            return None
        reason = scoring.judge(wanted, measured, self.best)
        return Verdict(Judgement.FAIL, reason, validator.name) if reason is not None else None


def replace_reason(verdict: Verdict, reason: str) -> Verdict:
    return Verdict(verdict.judgement, reason, verdict.step)


def _wanted(section: ValidatorSection, attempt: Attempt | None) -> bool:
    """`when` globs: run only when a changed path matches."""
    if not section.when or attempt is None:
        return True
    import pathspec

    spec = pathspec.GitIgnoreSpec.from_lines(section.when)
    return any(spec.match_file(text_path(change.path)) for change in attempt.changes)
