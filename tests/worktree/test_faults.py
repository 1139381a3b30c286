"""A full disk and a failing one: the old state or the restored state, never a truncated file, never a success that is none.

The full disk is a small tmpfs in a user and mount namespace of its own; the failing one is strace, which makes one syscall
answer EIO or ENOSPC.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evolver.errors import EvolverError
from evolver.worktree.workspace import Workspace
from oracle import Snapshot, differences
from support import EVOLVER, Repo, in_fork
from worktree.test_syscall_kills import AGENT, SETUP, Killed, traced


def half_done(before: Snapshot, left: Snapshot, now: Snapshot) -> list[str]:
    """The user's files that are neither as he had them nor as the attempt left them, nor missing: truncated, or made up."""
    odd = []
    for key, fact in now.facts.items():
        if not key.startswith("path ") or not isinstance(fact, tuple) or fact[0] != "file" or "/.git/" in key:
            continue
        if key not in before.facts:
            continue
        told = [s.facts.get(key) for s in (before, left)]
        bytes_of = [t[2] for t in told if isinstance(t, tuple) and t[0] == "file"]
        if fact[2] not in bytes_of:
            odd.append(f"{key}: {fact} is neither of {told}")
    return odd


# ------------------------------------------------------------ a full disk


def can_unshare() -> str:
    """Why not; empty when a tmpfs can be mounted in a namespace of our own."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    done = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"no user and mount namespace here: {done.stderr.decode()[:200]}"


WHY_NO_TMPFS = can_unshare()
full = pytest.mark.skipif(bool(WHY_NO_TMPFS), reason=WHY_NO_TMPFS or "a namespace can be made")

# Runs inside the namespace: arguments are the mount point, its size, the folder for state, the agent, the mode, KiB left free.
INSIDE = r"""
import hashlib, json, os, pathlib, subprocess, sys
mount, size, state, agent, mode, spare = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", mount], check=True)
from oracle import Snapshot, differences
from support import Repo
from worktree.test_faults import half_done
if state:
    os.environ["EVOLVER_STATE_DIR"] = state
else:
    os.environ["EVOLVER_STATE_DIR"] = mount + "/state"
top = pathlib.Path(mount)
repo = Repo.make(top / "r")
repo.sh("for i in 1 2 3 4 5 6; do head -c 200000 /dev/urandom >mine$i; done")
repo.sh("echo st >st; git add st; mkdir -p notes empty; echo n >notes/n")
before = Snapshot.of(repo.root)
fill = f"cat /dev/zero >'{mount}/fill' 2>/dev/null; truncate -s -{spare}K '{mount}/fill'" if int(spare) >= 0 else "true"
done = repo.run(f"{agent}; {fill}", "false", "--dirty", "keep", "--rollback", mode)
now = Snapshot.of(repo.root)
told = {"code": done.code, "text": done.text, "wrong": differences(before, now, stash=mode != "stash")}
edited = hashlib.sha256(b"z\n").hexdigest()  # what every agent here writes into st, if anything
told["odd"] = half_done(before, Snapshot({"path b'st'": ("file", "", edited)}), now)
for name in ("fill", "r/r-fill"):  # a person makes room
    (top / name).unlink(missing_ok=True)
again = repo.evolver("resume", "--rollback", "hard")
told["again"], told["again_text"] = again.code, again.text
told["again_wrong"] = differences(before, Snapshot.of(repo.root), stash=mode != "stash")
later = repo.evolver("run", "--max-iters", "1", "--codegen", "echo fine >>src/a.py", "--validate", "true", "--dirty", "keep")
told["later"], told["later_text"] = later.code, later.text
print("TOLD" + json.dumps(told))
"""


def on_a_full_disk(tmp_path: Path, agent: str, mode: str, spare: int, *, outside: bool = False) -> dict[str, Any]:
    """`spare`: KiB left free on a disk that something else filled; negative: only the agent fills it."""
    mount, state = tmp_path / "mount", tmp_path / "state"
    mount.mkdir()
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", INSIDE, mount, "16m", str(state) if outside else "", agent, mode, str(spare)],
        env=env, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    found = re.search(r"^TOLD(.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    told = json.loads(found[1])
    assert "Traceback" not in told["text"] + told["again_text"], told
    assert told["odd"] == [], told
    if told["code"] in (0, 1):
        assert told["wrong"] == [], told
    else:
        assert told["code"] in (3, 4, 8), told
        assert "evolver" in told["text"] or "Error" in told["text"], told
    assert told["again"] == 0, told
    assert told["again_wrong"] == [], told
    assert told["later"] == 0, told
    return dict(told)


WRECK = "rm -rf mine* notes empty src; echo z >st; git add -A; git commit -qm wreck; echo new >new"


@full
@pytest.mark.parametrize(("mode", "spare"), [("hard", 0), ("hard", 64), ("hard", 600), ("stash", 0), ("none", 0)])
def test_the_disk_is_full_when_the_attempt_is_rejected(tmp_path: Path, mode: str, spare: int) -> None:
    on_a_full_disk(tmp_path, WRECK, mode, spare)


@full
@pytest.mark.nightly
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("spare", [0, 4, 8, 16, 32, 100, 200, 300, 400, 800, 1200, 2000])
@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_the_disk_is_nearly_full_when_the_attempt_is_rejected(tmp_path: Path, mode: str, spare: int, outside: bool) -> None:
    on_a_full_disk(tmp_path, WRECK, mode, spare, outside=outside)


FILLING = ("cat /dev/zero >r-fill 2>/dev/null; true", "cat /dev/urandom >r-fill 2>/dev/null; true", "mkdir b; cat /dev/zero >b/x.log; true")


@full
@pytest.mark.parametrize("fill", FILLING)
def test_an_attempt_that_fills_the_disk_is_undone_and_the_run_goes_on(tmp_path: Path, fill: str) -> None:
    told = on_a_full_disk(tmp_path, f"rm mine1 mine2; echo z >st; {fill}", "hard", -1)
    assert told["code"] == 1, told
    assert ".log" in fill or "the disk is full" in told["text"], told  # an ignored file is never looked into


@full
@pytest.mark.parametrize("mode", ["stash", "none"])
def test_an_attempt_that_fills_the_disk_and_may_not_be_thrown_away_is_held(tmp_path: Path, mode: str) -> None:
    told = on_a_full_disk(tmp_path, f"rm mine1 mine2; {FILLING[0]}", mode, -1)
    assert told["code"] == {"stash": 4, "none": 3}[mode], told


@full
def test_a_disk_that_something_else_filled_too_is_told_and_restored_once_there_is_room(tmp_path: Path) -> None:
    on_a_full_disk(tmp_path, "rm mine1 mine2; cat /dev/zero >r-fill 2>/dev/null; true", "hard", 0)


# ------------------------------------------------------------ a failing disk

CHANGING = (
    "write", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink",
    "symlinkat", "link", "linkat", "chmod", "fchmod", "fchmodat", "ftruncate",
)  # fmt: skip


class Failing(Killed):
    """The same repository and attempt, with one syscall of the restore failing."""

    def fail_at(self, syscall: str, when: str, error: str) -> bool:
        """Whether the restore said that it was not done; afterwards it is done once more, on a disk that works."""
        workspace, baseline = self.attempt()
        left, fingerprint = Snapshot.of(self.scene.root), baseline.fingerprint

        def child() -> None:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0 if restored(workspace, fingerprint) else 4)

        pid = in_fork(child)
        os.waitpid(pid, os.WUNTRACED)
        options = ["-e", f"trace={syscall}", "-e", f"inject={syscall}:error={error}:when={when}"]
        tracer = subprocess.Popen(
            ["strace", "-o", str(self.trace), *options, "-p", str(pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        os.kill(pid, signal.SIGCONT)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tracer.communicate()
        place = f"{error} at {syscall} {when}"
        assert code in (0, 4), f"{place}: {code}"
        if code == 0:
            assert self.scene.wrong() == [], place
        assert half_done(self.scene.before, left, Snapshot.of(self.scene.root)) == [], place
        self.again(baseline)
        return code != 0


def restored(workspace: Workspace, fingerprint: str) -> bool:
    """What a run does with the faults of a rejection: they are said, never passed over."""
    try:
        baseline = workspace.load_baseline(fingerprint)
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        workspace.restore(baseline, attempt)
        return workspace.verify(baseline).equal
    except (EvolverError, OSError):
        return False


@traced
def test_one_failing_syscall_of_a_restore_is_stood_or_told(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    counts = {name: n for name, n in failing.calls().items() if name in CHANGING}
    places = [(name, str(nth)) for name, count in counts.items() for nth in sorted({1, (count + 1) // 2, count})]
    chosen = places[:: max(1, len(places) // 14)]
    # From somewhere on every write fails: what was being written must not stand under its name.
    chosen += [("write", f"{max(1, counts['write'] * part // 8)}+") for part in range(8)]
    for n, (name, when) in enumerate(chosen):
        failing.fail_at(name, when, "EIO" if n % 2 else "ENOSPC")


@traced
@pytest.mark.nightly
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EROFS"])
def test_every_failing_syscall_of_a_restore_is_stood_or_told(tmp_path: Path, error: str) -> None:
    failing = Failing(tmp_path)
    counts = {name: n for name, n in failing.calls().items() if name in CHANGING}
    for name, count in counts.items():
        for when in (*map(str, range(1, count + 1)), *(f"{nth}+" for nth in range(1, count + 1))):
            failing.fail_at(name, when, error)


def resume_on_a_failing_disk(tmp_path: Path, syscall: str, error: str = "", when: str = "") -> int:
    """`evolver resume --rollback hard`, with a syscall that fails, git children included: done, or exit 4 or 8 and a message.
    Returns how often our own process made the syscall (of several: the one it made most often)."""
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other HEAD~1;" + SETUP)
    before = Snapshot.of(repo.root)
    held = repo.run(AGENT, "false", "--dirty", "keep", "--rollback", "none")
    assert held.code == 3, held.text
    left = Snapshot.of(repo.root)
    inject = ["-e", f"inject={syscall}:error={error}:when={when}"] if error else []
    done = subprocess.run(
        ["strace", "-f", "-o", str(tmp_path / "trace"), "-e", f"trace={syscall}", *inject, *EVOLVER, "resume", "--rollback", "hard"],
        cwd=repo.root, env=repo.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    trace = (tmp_path / "trace").read_text(errors="replace")
    assert not error or "INJECTED" in trace, "nothing failed, so nothing is shown"
    assert "Traceback" not in text, text
    assert done.returncode in ((0, 4, 8) if error else (0,)), (done.returncode, text)
    now = Snapshot.of(repo.root)
    assert half_done(before, left, now) == []
    if done.returncode and syscall != "write":  # then its words could not be written either
        assert text.strip(), "it failed without a word"
    again = repo.evolver("resume", "--rollback", "hard")
    assert again.code == 0, again.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.evolver("audit", "verify").code == 0
    own = trace.splitlines()[-1].split()[0]  # the last to exit
    names = [line.split()[1].partition("(")[0] for line in trace.splitlines() if line.startswith(f"{own} ") and "(" in line]
    return max(map(names.count, syscall.split(",")))  # strace counts each name apart


@traced
@pytest.mark.parametrize(
    ("syscall", "error", "when"),
    [("write", "EIO", "1+"), ("fdatasync", "EIO", "1"), ("rename", "EIO", "5+"), ("unlink,unlinkat", "EIO", "1+"), ("mkdir,mkdirat", "ENOSPC", "2+")],
)
def test_resume_on_a_failing_disk(tmp_path: Path, syscall: str, error: str, when: str) -> None:
    resume_on_a_failing_disk(tmp_path, syscall, error, when)


@traced
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "syscall",
    ["write", "fsync", "fdatasync", "rename,renameat", "unlink,unlinkat", "mkdir,mkdirat", "fchmod,fchmodat,chmod", "symlinkat"],
)
def test_resume_on_a_disk_that_fails_in_many_places(tmp_path: Path, syscall: str) -> None:
    calls = resume_on_a_failing_disk(tmp_path / "count", syscall)
    assert calls > 0
    last = max(1, calls - 3)  # what it does once all is over is not the same number of calls each time
    for number in sorted({1, 2, 3, *range(1, last + 1, max(1, calls // 10)), last}):
        if number <= last:
            for when in (f"{number}", f"{number}+"):
                resume_on_a_failing_disk(tmp_path / when, syscall, "EIO", when)
