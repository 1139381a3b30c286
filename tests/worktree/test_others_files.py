"""Files that belong to somebody else: an attempt (or a daemon beside it) leaves one that may not be read; the user has a FIFO of another's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import EVOLVER, Done, Repo

# Root without the right to read what is not his: as an ordinary user, but for the Python below /root that it may still start.
ORDINARY = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner,-chown", "--inh-caps", "-all")
OTHER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs files of another user")


def beside(repo: Repo, mode: str, then: str = "true") -> Done:
    """One iteration; while the agent is at work, another user's file appears that nobody else may read."""
    started, go = repo.root.parent / "started", repo.root.parent / "go"
    for mark in (started, go):
        mark.unlink(missing_ok=True)
    agent = f"echo z >>src/a.py; touch '{started}'; while ! [ -e '{go}' ]; do sleep 0.05; done; {then}"
    words = ["run", "--max-iters", "1", "--quiet", "--rollback", mode, "--codegen", agent, "--validate", "true"]
    running = subprocess.Popen(
        [*ORDINARY, sys.executable, *EVOLVER[1:], *words],
        cwd=repo.root, env=repo.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    secret = repo.root / "src" / "secret"
    secret.write_text("not yours")
    secret.chmod(0o600)
    os.chown(secret, OTHER, OTHER)
    go.touch()
    out, err = running.communicate(timeout=60)
    return Done(running.returncode, out.decode(), err.decode())


def test_it_is_named_the_attempt_is_rejected_and_the_next_run_starts(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    before = Snapshot.of(repo.root)
    done = beside(repo, "hard")
    assert done.code == 1 and "Traceback" not in done.text, done.text
    assert "src/secret" in repo.evolver("events", "-o", "json").out
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.run("echo fine >>src/a.py", "true").code == 0


def test_what_cannot_be_kept_is_not_removed(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    before = Snapshot.of(repo.root)
    done = beside(repo, "stash")
    assert done.code == 4 and "src/secret" in done.text and "Traceback" not in done.text, done.text
    assert (repo.root / "src/secret").read_text() == "not yours"
    resumed = repo.evolver("resume", "--rollback", "hard")
    assert resumed.code == 0, resumed.text
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_fifo_gets_its_owner_back(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    os.mkfifo(repo.root / "pipe")
    os.chown(repo.root / "pipe", OTHER, OTHER)
    done = repo.run("rm pipe", "false", "--dirty", "keep")
    assert done.code == 1, done.text
    info = (repo.root / "pipe").lstat()
    assert (info.st_uid, info.st_gid) == (OTHER, OTHER)
