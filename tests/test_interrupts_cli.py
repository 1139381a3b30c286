"""Ctrl-C, SIGTERM, a closed terminal, at any moment: children die, the attempt is undone by mode, the exit status tells."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from oracle import Snapshot, differences
from support import EVOLVER, Repo, ended

STUBBORN = "trap '' TERM INT HUP; echo z >>src/a.py; touch started; while :; do sleep 0.1; done"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def start(repo: Repo, codegen: str, *words: str, grace: str = "1s", validate: str = "true") -> subprocess.Popen[bytes]:
    process = repo.start(
        "run", "--max-iters", "3", "--codegen", codegen, "--validate", validate, *words, env={"EVOLVER_GRACE": grace}
    )
    repo.wait_for(lambda: (repo.root / "started").exists())
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_a_signal_ends_the_run_after_undoing_by_mode(repo: Repo, number: signal.Signals, code: int, mode: str) -> None:
    before = Snapshot.of(repo.root)
    process = start(repo, "echo z >>src/a.py; touch started; sleep 60", "--rollback", mode)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    done = ended(process, 20)
    assert done.code == code, done.text
    assert not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children)
    if mode == "none":
        assert (repo.root / "started").exists()
        assert repo.evolver("run", "--codegen", "true", "--validate", "true").code == 3
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert differences(before, Snapshot.of(repo.root), stash=mode != "stash") == []
    finished = repo.events("run.finished")[-1]["data"]
    assert finished["reason"] in ("interrupted", "held")
    assert finished["exit_code"] == code


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    process = start(repo, STUBBORN, grace="1s")
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    done = ended(process, 20)
    assert done.code == 143
    assert 0.9 < time.monotonic() - begun < 1 + 2 + 2  # grace, 2 s, and this machine's noise
    time.sleep(1)
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_second_ctrl_c_shortens_the_grace_never_the_rollback(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    process = start(repo, STUBBORN, grace="60s")
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    done = ended(process, 30)
    assert done.code == 130
    assert time.monotonic() - begun < 15
    assert differences(before, Snapshot.of(repo.root)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_without_end_do_not_cut_the_restore_short_nor_change_the_exit_status(repo: Repo, number: signal.Signals) -> None:
    """Also those that arrive while the interpreter is being left."""
    before = Snapshot.of(repo.root)
    process = start(repo, "for i in $(seq 300); do echo $i >f$i; done; touch started; sleep 60")
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(number)
        time.sleep(0.005)
    assert ended(process, 1).code == 128 + number
    assert differences(before, Snapshot.of(repo.root)) == []


def test_nohup_goes_on_after_a_hangup(repo: Repo) -> None:
    command = [
        "nohup",
        *EVOLVER,
        "run",
        "--max-iters",
        "1",
        "--codegen",
        "echo z >>src/a.py; touch started; sleep 1",
        "--validate",
        "true",
    ]
    process = subprocess.Popen(command, cwd=repo.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    repo.wait_for(lambda: (repo.root / "started").exists())
    os.kill(process.pid, signal.SIGHUP)
    assert ended(process, 20).code == 0
    assert len(repo.events("iteration.accepted")) == 1


def test_an_interrupt_while_a_validator_runs(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    judge = 'if [ -n "$EVOLVER_ITERATION" ] && [ $EVOLVER_ITERATION != 0 ]; then touch started; sleep 60; fi'
    process = start(repo, "echo z >>src/a.py", validate=judge)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, 20).code == 130
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_timeout_fires_on_a_silent_child(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    begun = time.monotonic()
    done = repo.run("echo z >>src/a.py; sleep 60", "true", env={"EVOLVER_CODEGEN_TIMEOUT": "1s", "EVOLVER_GRACE": "1s"})
    assert done.code == 1, done.text
    assert time.monotonic() - begun < 15
    assert "timed out" in repo.events("rollback.finished")[0]["data"]["reason"]
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_double_forked_daemon_does_not_write_after_the_step(repo: Repo) -> None:
    daemon = "echo z >>src/a.py; (setsid sh -c 'sleep 0.7; echo late >late' >/dev/null 2>&1 &)"
    before = Snapshot.of(repo.root)
    assert repo.run(daemon).code == 1
    time.sleep(1)
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.events("step.finished")[-2]["data"]["killed"] >= 1 or any(
        e["data"]["killed"] for e in repo.events("step.finished")
    )
