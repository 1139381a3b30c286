"""Judging one attempt: validators in order, formatters first, stop at the first that fails; then the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from evolver import score as scoring
from evolver.context import RunContext
from evolver.definition import ValidatorSection
from evolver.model import Judgement, StepContext, StepResult, Validator, Verdict
from evolver.score import Stamp, stamp
from evolver.stepping import run_step
from evolver.steps.judge import judge
from evolver.telling import text_path
from evolver.worktree.values import Attempt

BASELINE = "baseline-validate"


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
        reds: frozenset[str] | None = None,
    ) -> None:
        self.run, self.context, self.best, self.guard, self.kind = run, context, best, guard, kind
        self.reds = reds  # validators that did not pass before the attempt; None: not known
        self.failed: list[str] = []
        self._stamp: tuple[Stamp | None, ...] = ()
        self.failing: StepResult | None = None
        self.score: Decimal | None = None
        self.tree_changed = False  # a formatter ran: the attempt must be looked at again
        self.passed: set[str] = set()
        self.skipped: set[str] = set()  # their `when` did not match: nothing is known of them
        self._sections = {s.name: s for s in run.loaded.definition.validator}
        self._formatters = tuple(v for v in run.validators if self._writes(v))
        self._judges = tuple(v for v in run.validators if not self._writes(v))

    def _writes(self, validator: Validator) -> bool:
        return validator.name in self._sections and self._sections[validator.name].writes

    def format(self, attempt: Attempt) -> tuple[Verdict, bool]:
        """Run the validators that may change the tree. When one ran (`tree_changed`), the attempt must be looked at again before
        it is judged: what the others are asked about is what will be committed, and nothing that they drop."""
        self._begin()
        return self._run(self._formatters, attempt)

    def judge(self, attempt: Attempt | None) -> tuple[Verdict, bool]:
        """The verdict, and whether a writer survived. `attempt` as it is after `format`.

        `attempt` None: the baseline is being judged, formatters first. Every validator runs then, also after one failed: which
        of them were red already is what later reasons tell (`failed`).
        """
        if attempt is not None:
            return self._run(self._judges, attempt)
        self._begin()
        return self._run((*self._formatters, *self._judges), None)

    def _begin(self) -> None:
        self.failing, self.score, self.tree_changed, self.failed = None, None, False, []
        self.passed, self.skipped = set(), set()

    def _run(self, validators: Sequence[Validator], attempt: Attempt | None) -> tuple[Verdict, bool]:
        first: Verdict | None = None
        verdict = Verdict(Judgement.PASS, "no validators")
        for validator in validators:
            section = self._sections.get(validator.name)
            if self.run.interrupts.signal is not None:
                return Verdict(Judgement.INCONCLUSIVE, "interrupted", validator.name), False
            if section is not None and not _wanted(section, attempt):
                self.skipped.add(validator.name)
                continue
            result, verdict = self._step(validator, section)
            if section is not None and section.writes:
                self.tree_changed = True
            if result.survivors or not verdict.passed:
                self.failed.append(validator.name)
                if self.failing is None:
                    self.failing, first = result, self._compared(verdict)
                if attempt is not None or result.survivors or self.kind != BASELINE:
                    return first or verdict, bool(result.survivors)
                continue
            self.passed.add(validator.name)
            measured = self._measure(validator, section, result)
            if measured is not None and not measured.passed:
                self.failing = result
                return measured, False
        if first is not None:
            return first, False
        words = "all validators passed" if self.run.validators else "no validators"
        return Verdict(Judgement.PASS, words, verdict.step), False

    def _compared(self, verdict: Verdict) -> Verdict:
        """The reason says whether the attempt broke it, or found it broken."""
        if self.reds is None or verdict.step not in {v.name for v in self.run.validators}:
            return verdict
        if verdict.step in self.reds:
            known = "already red before the attempt"
        elif verdict.judgement is Judgement.FAIL:
            known = "green before, broken by the attempt"
        else:
            known = "green before the attempt"
        return Verdict(verdict.judgement, f"{verdict.reason} ({known})", verdict.step)

    @property
    def _score_file(self) -> tuple[Path, ...]:
        """Where the score's file may be, first choice first."""
        wanted = self.run.loaded.definition.score
        if wanted is None or not wanted.file:
            return ()
        return self.context.step_dir / wanted.file, self.run.workdir / wanted.file

    def _step(self, validator: Validator, section: ValidatorSection | None, attempt: int = 0) -> tuple[StepResult, Verdict]:
        self._stamp = tuple(stamp(path) for path in self._score_file)
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
            value = scoring.read(wanted, result, self._score_file, self._stamp)
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
        if self.kind == BASELINE:
            return None
        reason = scoring.judge(wanted, measured, self.best)
        return Verdict(Judgement.FAIL, reason, validator.name) if reason is not None else None


def _wanted(section: ValidatorSection, attempt: Attempt | None) -> bool:
    """`when` globs: run only when a changed path matches. All are asked about a promise that comes without a change."""
    if not section.when or attempt is None or not attempt.committable:
        return True
    import pathspec

    spec = pathspec.GitIgnoreSpec.from_lines(section.when)
    return any(spec.match_file(text_path(change.path)) for change in attempt.changes)
