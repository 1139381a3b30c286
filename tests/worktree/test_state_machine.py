"""Random agent acts against random user states, in random order: every mode restores, and so does every crash.

Each example is a repository that lives through several iterations. A crash is a real SIGKILL of a forked child at a named
point; what comes after it has only what that child left on disk. The judge is the oracle.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from evolver.crash import CRASH_POINTS
from evolver.errors import PreflightError
from evolver.model import DirtyPolicy
from evolver.worktree.values import Baseline
from evolver.worktree.workspace import Workspace
from oracle import Snapshot
from support import in_fork
from worktree.scene import BASE, Scene, Trial

ITERATION = "01900000-0000-7000-8000-000000000000/1"

# Paths that both sides meet: tracked, ignored, untracked, odd, in folders that may or may not be there.
PATHS = [
    "src/a.py",
    "src/pkg/b.py",
    "run.sh",
    "link",
    ".gitignore",
    ".env",
    "x.log",
    "build/o",
    "build/deep/o",
    "notes/n",
    "new",
    "-n",
    "a b\nc",
    "src/pkg/deep/d",
    ":(top)x",
    "lib/l",
]
FILE_ACTS = [
    'mkdir -p -- "$(dirname -- "./$1")"; echo "$2" >>"./$1"',
    'mkdir -p -- "$(dirname -- "./$1")"; rm -rf -- "./$1"; printf %s "$2" >"./$1"',
    'rm -rf -- "./$1"',
    'mkdir -p "moved$2"; mv -- "./$1" "moved$2/"',
    'mv -- "./$1" "./$2.moved"',
    'chmod 600 -- "./$1"',
    'chmod 755 -- "./$1"',
    'rm -rf -- "./$1"; ln -s "src/$2" "./$1"',
    'rm -rf -- "./$1"; ln -s ../.. "./$1"',
    'rm -rf -- "./$1"; mkdir -p -- "./$1/e$2"',
    'rm -rf -- "./$1"; mkfifo -- "./$1"',
    'ln -f run.sh "./$1"',
    'touch -d "2001-02-03" -- "./$1"',
    'rm -rf -- "$(dirname -- "./$1")/pkg"',
    'truncate -s 70000 "./$1"',
]
SHARED_GIT = [
    'git add -- "./$1"',
    'git add -f -- "./$1"',
    'git add -N -- "./$1"',
    "git add -A",
    'git rm -rq --cached -- "./$1"',
    "git add -A; git commit -qm c$2",
    "git commit -q --allow-empty -m e$2",
    "git branch b$2",
    "git tag t$2",
    "git tag -am annotated a$2",
    "git checkout -q -b s$2",
    "git checkout -q --detach",
    "git stash -q",
    "git stash -qu",
    'git update-index --skip-worktree -- "./$1"',
    'git update-index --assume-unchanged -- "./$1"',
    "git pack-refs --all",
    'printf "%s\\n" "$1" >>.gitignore',
    'printf "%s\\n" "$1" >>.git/info/exclude',
    "git config user.tag v$2",
    'mkdir -p .git/hooks; echo "exit $2" >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit',
    "mkdir -p lib; cd lib; git init -q; echo l$2 >>l; git add l; git commit -qm l$2",
    "echo dirt >>lib/l",
    "mkdir -p empty/$2/in",
    "git sparse-checkout set --cone src",
]
USER_ACTS = [*FILE_ACTS, *SHARED_GIT]
AGENT_ACTS = [
    *FILE_ACTS,
    *SHARED_GIT,
    "git commit -q --amend --allow-empty -m amended",
    "git reset -q --hard",
    "git reset -q --soft HEAD~1",
    "git clean -fdxq",
    "git checkout -q other",
    "git checkout -q --orphan o$2",
    "git branch -D other; git branch other/one",
    "git branch -m r$2",
    "git merge -q --no-edit other; git merge -q --no-edit b$2",
    "git checkout -q -b m$2 HEAD~1; echo conflict$2 >>src/a.py; git commit -qam m; git merge -q main",
    "git rebase -q other",
    "git cherry-pick other; git revert --no-edit HEAD",
    "git bisect start -q HEAD HEAD~1",
    "git stash clear",
    "git stash pop -q",
    "git stash drop -q 'stash@{1}'",
    "git tag -d t$2; git tag -f t0 HEAD~1",
    "git reflog expire --expire=now --all; git gc -q --prune=now",
    "git update-ref refs/custom/x HEAD",
    "git replace -f HEAD HEAD~1",
    "git notes add -f -m note",
    "git config core.worktree /nowhere$2",
    "git config core.bare true",
    "git config core.fileMode false; git config core.autocrlf true",
    "git config filter.f.clean 'touch pwned; cat'; echo '* filter=f' >.git/info/attributes",
    "git config core.hooksPath h; mkdir -p h; printf '#!/bin/sh\\ntouch pwned; exit 1\\n' >h/reference-transaction; chmod +x h/*",
    ": >.git/index.lock",
    "mkdir -p .git/refs/heads/b; : >.git/refs/heads/main.lock; : >.git/config.lock",
    "rm -f .git/index",
    "echo garbage >.git/HEAD",
    "rm -rf .git",
    "mv .git .gone; git init -q",
    "git worktree add -q -b w$2 build/w$2",
    "mkdir -p n$2; git -C n$2 init -q; touch n$2/x; git -C n$2 add x; git -C n$2 commit -qm n; git add n$2",
    "rm -rf lib/.git; git -C lib tag x$2",
    "echo 'gitdir: /nowhere' >src/.git",
    "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +",
    "chmod -R a-w src; chmod 0 .env",
    "echo '[broken' >>.git/config",
    "rm -rf .git/evolver",
    "rm -f .git/refs/stash .git/packed-refs",
]
BASELINE_POINTS = [p for p in CRASH_POINTS if p.startswith("baseline.")]
UNDO_POINTS = [p for p in CRASH_POINTS if p.startswith(("guard.", "inspect.", "preserve.", "keep.", "restore."))]

paths, numbers = st.sampled_from(PATHS), st.integers(0, 2)
crashes = st.tuples(st.sampled_from(UNDO_POINTS), st.integers(1, 3))


class Rollbacks(RuleBasedStateMachine):
    """One repository; a user's rules, an agent's rules, and the ends an iteration can have."""

    template: ClassVar[Path]
    crashed: ClassVar[int] = 0
    ended: ClassVar[int] = 0
    refused: ClassVar[int] = 0

    @initialize()
    def start(self) -> None:
        self.box = Path(tempfile.mkdtemp(dir=self.template.parent))
        shutil.copytree(self.template, self.box / "r", symlinks=True)
        self.scene = Scene(self.box / "r")
        self.workspace: Workspace | None = None  # the run's; a crash loses it
        self.baseline: Baseline | None = None  # set: an iteration is under way
        self.over = False
        self.history: list[object] = []  # told on failure: what depends on timing cannot be replayed

    def act(self, script: str, path: str, number: int) -> None:
        self.history.append((round(time.monotonic(), 3), script, path, number))
        acting = subprocess.Popen(
            ["bash", "-c", script, "act", path, str(number)],
            cwd=self.scene.root,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(self.box)},  # an agent without .git finds no parent's
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            acting.wait(10)
        except subprocess.TimeoutExpired:  # it writes into a pipe that nobody reads
            os.killpg(acting.pid, signal.SIGKILL)
            acting.wait()

    # ------------------------------------------------------------ the user, between iterations

    @precondition(lambda self: not self.over and self.baseline is None)
    @rule(script=st.sampled_from(USER_ACTS), path=paths, number=numbers)
    def user(self, script: str, path: str, number: int) -> None:
        if "mkfifo" in script and path.rpartition("/")[2].startswith(".git"):
            return  # git itself waits on it for ever: refused before a run, see test_a_pipe_where_git_reads_is_refused
        self.act(script, path, number)

    # ------------------------------------------------------------ the agent

    @precondition(lambda self: not self.over)
    @rule(
        acts=st.lists(st.tuples(st.sampled_from(AGENT_ACTS), paths, numbers), min_size=1, max_size=4),
        crash=st.none() | st.none() | st.sampled_from(BASELINE_POINTS),
    )
    def agent(self, acts: list[tuple[str, str, int]], crash: str | None) -> None:
        if self.baseline is None:
            self.begin(crash)
        if not self.over:
            for act in acts:
                self.act(*act)

    def begin(self, crash: str | None) -> None:
        self.scene.before = Snapshot.of(self.scene.root)
        self.workspace = self.workspace or self.scene.workspace()
        try:
            self.workspace.preflight(dirty=DirtyPolicy.KEEP)
            if crash is not None:
                self.killed_at(crash, 1, lambda: self.scene.workspace().baseline(ITERATION))
                assert self.scene.wrong() == []
                self.workspace = self.scene.workspace()
            self.baseline = self.workspace.baseline(ITERATION)
            self.history.append((round(time.monotonic(), 3), "baseline"))
        except PreflightError:
            self.over = True
            Rollbacks.refused += 1
        assert self.scene.wrong() == []

    # ------------------------------------------------------------ the ends of an iteration

    @precondition(lambda self: self.baseline is not None)
    @rule()
    def hard(self) -> None:
        workspace, baseline = self.running()
        self.undo(workspace, baseline)
        self.finish()

    @precondition(lambda self: self.baseline is not None)
    @rule()
    def stash(self) -> None:
        workspace, baseline = self.running()
        left, shown = Snapshot.of(self.scene.root), self.scene.committable_names()
        intact = (self.scene.root / ".git/HEAD").is_file() and left.facts.get("git git dir") != "unreadable"
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        trial = Trial(self.scene, workspace, baseline, attempt, left, shown)
        kept = trial.preserve()
        assert trial.reject().differences == ()
        assert self.scene.wrong(stash=False) == []
        if kept.stash is not None:
            assert self.scene.git("rev-parse", "stash@{0}").decode().strip() == kept.stash
            self.scene.git("stash", "show", "-u", "--name-only", "stash@{0}")
            if intact and not attempt.control.changed:
                assert trial.missing_from(kept.stash) == []
            self.scene.git("stash", "drop", "-q")
        self.finish()

    @precondition(lambda self: self.baseline is not None)
    @rule()
    def none_and_resume_with_rollback(self) -> None:
        workspace, baseline = self.running()
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        if attempt.changed:  # else the loop does not hold it: what only git's own notes tell (ORIG_HEAD) is put back at once
            workspace.hold(baseline, attempt)
        later = self.workspace = self.scene.workspace()
        again = later.load_baseline(baseline.fingerprint)
        assert attempt.changed or later.fingerprint_now(again).equal
        self.undo(later, again)
        self.finish()

    @precondition(lambda self: self.baseline is not None)
    @rule(points=st.lists(crashes, min_size=1, max_size=3), preserve=st.booleans())
    def killed_and_recovered(self, points: list[tuple[str, int]], preserve: bool) -> None:
        workspace, baseline = self.running()
        stashes = "git stash" if preserve else ""
        for n, (point, count) in enumerate(points):
            mine = workspace if n == 0 else None
            self.killed_at(point, count, lambda mine=mine, n=n: self.recover(baseline, mine, preserve and n == 0))
        self.workspace = self.scene.workspace()
        self.recover(baseline, self.workspace, False)
        assert self.scene.wrong(stash=not stashes) == []
        if stashes:  # killed before or after the entry was stored
            now = str(Snapshot.of(self.scene.root).facts["git stash"])
            before = self.scene.before.facts["git stash"]
            if now != str(before):
                self.scene.git("stash", "drop", "-q")
        self.finish()

    # ------------------------------------------------------------ parts

    def running(self) -> tuple[Workspace, Baseline]:
        assert self.workspace is not None and self.baseline is not None
        return self.workspace, self.baseline

    def undo(self, workspace: Workspace, baseline: Baseline) -> None:
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        restored = workspace.restore(baseline, attempt)
        assert workspace.verify(baseline).differences == (), restored.problems

    def recover(self, baseline: Baseline, workspace: Workspace | None, preserve: bool) -> None:
        """What a run (`workspace` given) or the process after it does with an attempt."""
        fresh = workspace is None or workspace._snapshot is None
        workspace = workspace or self.scene.workspace()
        if fresh:
            baseline = workspace.load_baseline(baseline.fingerprint)
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        if preserve:
            workspace.preserve(baseline, attempt, message="evolver: test")
        elif fresh and attempt.changed:
            workspace.keep_attempt(baseline, attempt, ref=f"refs/evolver/attempts/{ITERATION}", message="evolver: test")
        workspace.restore(baseline, attempt)
        assert workspace.verify(baseline).differences == ()

    def killed_at(self, point: str, count: int, act: object) -> None:
        """A child does `act` and is killed at `point`, or gets through when it does not pass there."""

        def child() -> None:
            os.environ["EVOLVER_CRASH_AT"] = f"{point}:{count}"
            assert callable(act)
            act()

        self.history.append((point, count))
        _, status = os.waitpid(in_fork(child), 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL), f"{point}: the child ended with {code}"
        Rollbacks.crashed += code != 0

    def finish(self) -> None:
        assert self.scene.wrong() == [], self.history
        self.history.append((round(time.monotonic(), 3), "restored"))
        self.baseline = None
        Rollbacks.ended += 1

    def teardown(self) -> None:
        if not hasattr(self, "box"):
            return
        try:
            if self.baseline is not None:
                self.hard()
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", self.box], check=False, capture_output=True)
            shutil.rmtree(self.box, ignore_errors=True)


def drive(tmp_path: Path, *, examples: int, steps: int, seeded: bool) -> None:
    template = tmp_path / "template"
    template.mkdir()
    scene = Scene(template)
    scene.sh(BASE + "echo s >.env && mkdir -p build/deep notes && echo o >build/o && echo n >notes/n")

    class Machine(Rollbacks):
        pass

    Machine.template = template
    Rollbacks.crashed = Rollbacks.ended = Rollbacks.refused = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=seeded,
            print_blob=True,
            report_multiple_bugs=False,
            phases=(Phase.generate,) if os.environ.get("STATE_MACHINE_NO_SHRINK") else (Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{Rollbacks.ended} iterations ended, {Rollbacks.crashed} children killed, {Rollbacks.refused} refused")
    assert Rollbacks.ended >= examples // 2, "too few iterations were ended to show anything"
    assert Rollbacks.crashed >= examples // 10, "too few children were killed to show anything"


def test_every_mode_restores_random_acts_upon_random_states(tmp_path: Path) -> None:
    """100 examples, the same ones each time."""
    drive(tmp_path, examples=100, steps=6, seeded=True)


@pytest.mark.nightly
@pytest.mark.timeout(6 * 3600)
def test_every_mode_restores_2000_random_histories(tmp_path: Path) -> None:
    drive(tmp_path, examples=2000, steps=12, seeded=False)


# ------------------------------------------------------------ what the machine found, as cases of their own


def test_what_a_killed_baseline_stored_in_one_place_is_in_both_after_the_next(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "echo mine >notes")

    def child() -> None:
        os.environ["EVOLVER_CRASH_AT"] = "baseline.vault"
        scene.workspace().baseline(ITERATION)

    assert os.waitstatus_to_exitcode(os.waitpid(in_fork(child), 0)[1]) == -signal.SIGKILL
    trial = scene.attempt("echo z >notes; rm -rf .git/evolver")
    assert trial.reject().differences == ()
    assert scene.wrong() == []


@pytest.mark.parametrize("made", ["mkdir -p .gitignore/e; echo x >.gitignore/e/f", "mkdir .gitignore", "ln -s src .gitignore"])
def test_an_ignore_file_that_became_something_else(tmp_path: Path, made: str) -> None:
    scene = Scene.make(tmp_path)
    trial = scene.attempt(f"rm .gitignore; {made}; echo z >>src/a.py")
    assert trial.preserve().stash is not None
    assert trial.reject().differences == ()
    assert scene.wrong(stash=False) == []
