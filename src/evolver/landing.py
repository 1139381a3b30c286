"""`evolver land` put together: the locks, the loop that was in force, and judging a rebased branch in the clone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evolver import clone as clones
from evolver import judges, rebasing
from evolver.clone import Unlanded
from evolver.cloning import git_of
from evolver.context import RunContext
from evolver.definition import LoadedLoop, RollbackSection
from evolver.errors import NotRestoredError, PreflightError
from evolver.git import Git
from evolver.interrupts import Interrupts
from evolver.keeping import stored_definition
from evolver.land import Landed, Refused, exists, land
from evolver.layout import Layout
from evolver.model import Judgement, StepContext, StepResult, Verdict
from evolver.opening import Opened, opened
from evolver.outside import temporary_base
from evolver.pushes import push_block_env
from evolver.redact import Redactor
from evolver.sandbox import for_loop
from evolver.settings import read as read_settings
from evolver.sinks.registry import secret_variables
from evolver.steps.registry import build_validators
from evolver.steps.runner import StepRunner
from evolver.validating import Validation
from evolver.worktree.values import Baseline
from evolver.worktree.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Failed:
    """The rebased work was judged, or could not be rebased; everything is as it was."""

    reason: str


class _Nobody:
    """Nothing is generated while landing."""

    def generate(self, context: StepContext) -> StepResult:
        raise NotImplementedError


@dataclass(frozen=True)
class Site:
    """A person's worktree and its clone, both locked."""

    person: Layout
    clone: Layout
    found: Opened
    env: Mapping[str, str]
    interrupts: Interrupts
    scratch: Path

    @property
    def waiting(self) -> tuple[Unlanded, ...]:
        return clones.unlanded(self.clone)

    def land(self, record: Unlanded, *, squash: bool, rebase: bool) -> Landed | Refused | Failed | None:
        if rebase and record.onto is not None and exists(self.person, record.onto):
            done = self._rebase(record)
            if not done.verdict.passed:
                what = "git cannot rebase the work" if done.verdict.step == "rebase" else "the rebased work does not pass"
                return Failed(f"{what}: {done.verdict.reason}")
            record = done.record
        return land(self.person, self.clone, record, self.found.log.bind(record.run_id), squash=squash, rebased=rebase)

    def _rebase(self, record: Unlanded) -> rebasing.Rebased:
        definition = stored_definition(self.clone, record.definition)
        if definition is None:
            raise PreflightError(
                "the loop that made this work is not known any more, so it cannot be validated again",
                "Land without --rebase, or merge the commits by hand.",
            )
        loaded = LoadedLoop(
            name=record.loop, definition=definition, source=None, directory=Path(record.directory), digest=record.definition
        )
        workspace = Workspace.open(
            self.clone, rollback=definition.rollback, max_vault=self.found.settings.max_vault, env=self.env
        )
        redactor = Redactor.for_loop(self.env, definition)
        git = Git.at(self.clone.root, self.clone.git_dir)
        extra = push_block_env(git, self.env) if definition.guard.push == "block" else {}
        runner = StepRunner(self.interrupts, redactor, self.env, extra, secret_variables(definition))
        run = RunContext(
            run_id=record.run_id,
            loaded=loaded,
            layout=self.clone,
            person=self.person,
            workspace=workspace,
            events=self.found.log.bind(record.run_id),
            interrupts=self.interrupts,
            codegen=_Nobody(),
            validators=build_validators(loaded, runner, sandbox=for_loop(loaded, self.clone, self.env)),
            scratch=self.scratch,
            protected=judges.protected_globs(loaded, self.clone.root, self.clone.prefix),
            restore_log=self.found.log.ensure_present,
        )

        def judge(baseline: Baseline, commit: str) -> tuple[Verdict, bool]:
            return self._judge(run, baseline, commit)

        return rebasing.rebase(self.person, self.clone, workspace, record, judge)

    def _judge(self, run: RunContext, baseline: Baseline, commit: str) -> tuple[Verdict, bool]:
        """Every validator on the rebased tree. The caller puts the clone back afterwards, whatever they dropped."""
        step_dir = self.scratch / "land"
        step_dir.mkdir(exist_ok=True)
        failure = self.scratch / "last-failure.txt"
        failure.write_bytes(b"")
        logs = run.home.step_logs / run.run_id / "land"
        context = StepContext(run.run_id, 0, commit, run.workdir, step_dir, logs, failure)

        def guarded() -> None:
            run.workspace.guard_control(baseline)
            run.restore_log()

        validation = Validation(run, context, None, kind="land-validate", guard=guarded)
        verdict, survivors = validation.judge(None)
        if verdict.passed and validation.tree_changed:
            # They passed what a formatter made of it; what is landed is what was committed.
            changed = git_of(self.clone).run("diff", "--name-only", "-z", commit, "--").fields()
            if changed:
                names = ", ".join(os.fsdecode(name) for name in changed[:5])
                verdict = Verdict(Judgement.FAIL, f"a formatter changes the rebased work: {names}", "land")
        return verdict, survivors


@contextmanager
def opened_for_landing(person: Layout, env: Mapping[str, str], interrupts: Interrupts) -> Iterator[Site]:
    """Raise `PreflightError` when there is no clone, and what `opened` raises: a dead run is recovered before its work lands."""
    if clones.find(person, env) is None:
        raise PreflightError(f"no isolated run has worked for {person.root}", "`evolver run --isolation clone` makes a clone.")
    settings = read_settings(env, person.root / ".env")
    with ExitStack() as stack:
        redactor = Redactor.from_environment(env)
        opening = opened(person, settings, env=env, rollback=RollbackSection(), redactor=redactor, note="land")
        found = stack.enter_context(opening)
        scratch = Path(tempfile.mkdtemp(prefix="evolver-land-", dir=temporary_base(person)))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        if found.clone is None:
            raise NotRestoredError(f"the clone of {person.root} went away", "Run `evolver run --isolation clone` again.")
        yield Site(person, found.clone, found, env, interrupts, scratch)
