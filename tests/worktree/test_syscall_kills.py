"""SIGKILL at every syscall of a restore: restoring again gives the baseline.

strace kills the process at the N-th call of one syscall, so the places are the kernel's, not ours. In CI some of them, in the
nightly run all; besides, every named crash point of a restore, and random instants.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evolver.crash import CRASH_POINTS
from evolver.worktree.values import Baseline
from evolver.worktree.workspace import Workspace
from oracle import Snapshot, differences
from support import EVOLVER, Repo, in_fork
from worktree.scene import Scene

ITERATION = "01900000-0000-7000-8000-000000000000/1"
SETUP = (
    "echo dirt >>src/pkg/b.py; echo s1 >staged; git add staged; echo s2 >>staged; mkdir -p notes build/deep empty/in; "
    "for i in 1 2 3; do echo $i >notes/$i; done; echo o >build/deep/o; echo s >.env; chmod 600 .env; "
    "echo st >>src/a.py; git stash -q -- src/a.py; git tag t0"
)
AGENT = (
    "echo z >>src/a.py; git commit -qam z; git checkout -q -b agents; rm -rf notes build empty; echo x >staged; chmod 644 .env; "
    "git add -A; git commit -qm all; git stash clear; git tag -d t0; git branch -D other; git config a.b c; "
    "rm link; mkdir link; echo l >link/l; mkdir -p new/deep; echo n >new/deep/n; rm -rf src/pkg; ln -s /nowhere src/pkg; "
    "echo 'exit 1' >.git/hooks/pre-commit; : >.git/index.lock"
)
# Whatever changes what is on disk, or is about to. Some exist on some architectures only.
SYSCALLS = (
    "openat", "write", "pwrite64", "close", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir",
    "mkdir", "mkdirat", "symlink", "symlinkat", "link", "linkat", "chmod", "fchmod", "fchmodat", "chown", "fchownat", "utimensat",
    "ftruncate", "flock", "clone", "vfork", "wait4", "getdents64", "newfstatat",
)  # fmt: skip


def can_trace() -> str:
    """Why not; empty when strace works here."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"strace is not permitted here: {done.stderr.decode()[:200]}"


WHY_NOT = can_trace()
traced = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "strace works")


class Killed:
    """One repository in which the same attempt is made and its restore killed, over and over."""

    def __init__(self, tmp_path: Path) -> None:
        self.scene = Scene.make(tmp_path, SETUP)
        self.trace = tmp_path / "trace"

    def attempt(self) -> tuple[Workspace, Baseline]:
        workspace = self.scene.workspace()
        baseline = workspace.baseline(ITERATION)
        self.scene.sh(AGENT, check=False)
        return workspace, baseline

    def again(self, baseline: Baseline) -> None:
        """As the next process does."""
        undo(self.scene.workspace(), baseline.fingerprint)
        assert self.scene.wrong() == []

    def traced(self, *options: str) -> int:
        """The restore in a child under strace; its exit code."""
        workspace, baseline = self.attempt()
        fingerprint = baseline.fingerprint

        def child() -> None:
            os.kill(os.getpid(), signal.SIGSTOP)
            undo(workspace, fingerprint)

        pid = in_fork(child)
        os.waitpid(pid, os.WUNTRACED)
        tracer = subprocess.Popen(
            ["strace", "-o", str(self.trace), *options, "-p", str(pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert tracer.stderr is not None
        told = tracer.stderr.readline()
        assert "attached" in told, told
        os.kill(pid, signal.SIGCONT)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tracer.communicate()
        self.again(baseline)
        return code

    def calls(self) -> dict[str, int]:
        """How often each syscall is made in one whole restore."""
        assert self.traced("-e", "trace=all") == 0
        counts: dict[str, int] = {}
        for line in self.trace.read_text(errors="replace").splitlines():
            if found := re.match(r"(\w+)\(", line):
                counts[found[1]] = counts.get(found[1], 0) + 1
        return {name: counts[name] for name in SYSCALLS if name in counts}

    def kill_at(self, syscall: str, nth: int) -> bool:
        code = self.traced("-e", f"trace={syscall}", "-e", f"inject={syscall}:signal=KILL:when={nth}")
        assert code in (0, -signal.SIGKILL), f"{syscall} {nth}: {code}"
        return code != 0


def undo(workspace: Workspace, fingerprint: str) -> None:
    """Restore and verify, from what is on disk when the workspace knows nothing yet."""
    baseline = workspace.load_baseline(fingerprint)
    attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
    workspace.restore(baseline, attempt)
    assert workspace.verify(baseline).differences == ()


@traced
def test_kill_9_at_syscalls_of_a_restore(tmp_path: Path) -> None:
    """The first, a middle and the last call of the syscalls that change what is on disk."""
    killed = Killed(tmp_path)
    counts = killed.calls()
    assert counts.get("openat", 0) > 20 and counts.get("unlinkat", 0) + counts.get("unlink", 0) > 2, counts
    changing = [n for n in counts if n not in ("close", "getdents64", "newfstatat", "wait4", "flock", "clone", "vfork")]
    places = {(name, nth) for name in changing for nth in (1, (counts[name] + 1) // 2, counts[name])}
    chosen = sorted(places)[:: max(1, len(places) // 30)]
    died = sum(killed.kill_at(name, nth) for name, nth in chosen)
    assert died >= len(chosen) * 0.8, f"only {died} of {len(chosen)} were killed"


@traced
@pytest.mark.nightly
@pytest.mark.timeout(6 * 3600)
def test_kill_9_at_every_syscall_of_a_restore(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    counts = killed.calls()
    died = sum(killed.kill_at(name, nth) for name, count in counts.items() for nth in range(1, count + 1))
    print(f"killed at {died} of {sum(counts.values())} syscalls: {counts}")
    assert died >= sum(counts.values()) * 0.9


@pytest.mark.parametrize("point", [p for p in CRASH_POINTS if p.startswith(("restore.", "guard."))])
def test_kill_9_at_every_named_point_of_a_restore_each_time_it_is_passed(tmp_path: Path, point: str) -> None:
    killed = Killed(tmp_path)
    for nth in range(1, 4):
        workspace, baseline = killed.attempt()

        def child(workspace: Workspace = workspace, baseline: Baseline = baseline, nth: int = nth) -> None:
            os.environ["EVOLVER_CRASH_AT"] = f"{point}:{nth}"
            undo(workspace, baseline.fingerprint)

        code = os.waitstatus_to_exitcode(os.waitpid(in_fork(child), 0)[1])
        assert code in (0, -signal.SIGKILL)
        killed.again(baseline)
        if code == 0:
            assert nth > 1 or point in ("guard.git_rebuilt", "restore.moved"), f"{point} was not passed"
            return


def at_random(killed: Killed, rng: random.Random, seconds: float) -> bool:
    workspace, baseline = killed.attempt()
    pid = in_fork(lambda: undo(workspace, baseline.fingerprint))
    time.sleep(rng.uniform(0, seconds))
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    killed.again(baseline)
    return code != 0


def seconds_of(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def kill_at_random_instants(tmp_path: Path, times: int, seed: int) -> None:
    killed, rng = Killed(tmp_path), random.Random(seed)
    workspace, baseline = killed.attempt()
    whole = seconds_of(lambda: undo(workspace, baseline.fingerprint))
    died = sum(at_random(killed, rng, whole) for _ in range(times))
    assert died >= times // 4, f"only {died} of {times} were killed in time"


def test_kill_9_at_random_instants_of_a_restore(tmp_path: Path) -> None:
    kill_at_random_instants(tmp_path, 10, 1)


@pytest.mark.nightly
@pytest.mark.timeout(2 * 3600)
def test_kill_9_at_500_random_instants_of_a_restore(tmp_path: Path) -> None:
    kill_at_random_instants(tmp_path, 500, 2)


# ------------------------------------------------------------ through the command line


def resume_killed(tmp_path: Path, syscall: str, part: float) -> None:
    """`evolver resume --rollback hard`, git children included, killed at one call of its last third; then once more."""
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other HEAD~1;" + SETUP)
    before = Snapshot.of(repo.root)
    trace = tmp_path / "trace"
    resume = [*EVOLVER, "resume", "--rollback", "hard"]
    counts: list[int] = []
    for inject in ((), ("-e", "inject={}:signal=KILL:when={}")):
        assert repo.run(AGENT, "false", "--dirty", "keep", "--rollback", "none").code == 3
        options = [o.format(syscall, max(1, round(counts[0] * part))) if counts else o for o in inject]
        done = subprocess.run(
            ["strace", "-o", str(trace), "-e", f"trace={syscall}", *options, *resume],
            cwd=repo.root, env=repo.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        counts.append(len(re.findall(rf"^{syscall}\(", trace.read_text(errors="replace"), re.M)))
    assert done.returncode == -signal.SIGKILL, (done, counts)
    again = repo.evolver("resume", "--rollback", "hard")
    assert again.code == 0, again.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.evolver("audit", "verify").code == 0


@traced
@pytest.mark.parametrize(("syscall", "part"), [("openat", 0.75), ("rename", 0.95), ("write", 0.9), ("unlink", 0.725)])
def test_resume_killed_at_a_syscall_and_run_again(tmp_path: Path, syscall: str, part: float) -> None:
    resume_killed(tmp_path, syscall, part)


@traced
@pytest.mark.nightly
@pytest.mark.parametrize("part", [n / 40 for n in range(20, 41)])
@pytest.mark.parametrize("syscall", ["openat", "rename", "write", "unlink", "fsync", "mkdir", "fchmod"])
def test_resume_killed_at_many_syscalls_and_run_again(tmp_path: Path, syscall: str, part: float) -> None:
    resume_killed(tmp_path, syscall, part)
