"""Standard output that cannot be written, a terminal that is closed: told, and never taken for something that happened to the tree."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import EVOLVER, Repo

FULL = Path("/dev/full")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help", "status", "status --json", "changes commands", "help modes"])
def test_a_full_disk_below_standard_output_is_told_as_that(repo: Repo, words: str, unbuffered: str) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*EVOLVER, *words.split()], cwd=repo.root, env=repo.environment({"PYTHONUNBUFFERED": unbuffered}),
            stdout=full, stderr=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "evolver: standard output: No space left on device",
        "  hint: What was asked for could not be printed to its end.",
    ]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [(), ("--json",), ("--quiet",)])
def test_a_run_goes_on_and_ends_as_it_would(repo: Repo, words: tuple[str, ...]) -> None:
    run = [*EVOLVER, "run", "--max-iters", "1", "--codegen", "echo x >>src/a.py", "--validate", "true", *words]
    with FULL.open("wb") as full:
        done = subprocess.run(run, cwd=repo.root, env=repo.environment(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("judge", "handler", "code"), [("true", signal.SIG_IGN, 0), ("false", signal.SIG_IGN, 1), ("false", signal.SIG_DFL, 129)]
)
def test_a_terminal_that_is_closed_changes_no_status(repo: Repo, judge: str, handler: signal.Handlers, code: int) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*EVOLVER, "run", "--max-iters", "2", "--codegen", "echo x >>src/a.py; touch .git/begun; sleep 1", "--validate", judge],
        cwd=repo.root, env=repo.environment({"TERM": "xterm"}), stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, handler),
    )  # fmt: skip
    os.close(slave)
    deadline = time.monotonic() + 20
    while not (repo.root / ".git/begun").exists() and time.monotonic() < deadline:
        os.read(master, 65536)
    os.close(master)
    if handler is signal.SIG_DFL:  # what the kernel sends to the session whose terminal it was
        process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == code
    assert repo.status() == ""
    assert repo.events("run.finished")[-1]["data"]["exit_code"] == code
