"""Every row of the exit-code table, produced for real and compared with the documentation: one line, then a hint, no traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evolver.errors import ExitStatus
from evolver.ui import topics

from .stream import Writer, git

EVOLVER = [sys.executable, "-m", "evolver"]
Done = subprocess.CompletedProcess[str]


def run(root: Path, *args: str, env: dict[str, str] | None = None) -> Done:
    return subprocess.run(
        [*EVOLVER, *args],
        cwd=root, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a").write_text("1\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


def accepted(root: Path) -> Done:
    return run(root, "run", "--max-iters", "1", "--codegen", "echo 2 > a", "--validate", "true")


def nothing_accepted(root: Path) -> Done:
    return run(root, "run", "--max-iters", "1", "--codegen", "echo 2 > a", "--validate", "false")


def usage(root: Path) -> Done:
    return run(root, "run", "nosuch")


def held(root: Path) -> Done:
    run(root, "run", "--rollback", "none", "--codegen", "echo 2 > a", "--validate", "false")
    return run(root, "run", "--codegen", "true", "--validate", "true")


def preflight(root: Path) -> Done:
    (root / "a").write_text("edited\n")
    return run(root, "run", "--codegen", "true", "--validate", "true")


def _running(root: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*EVOLVER, "run", "--codegen", "echo 2 > a; sleep 60", "--validate", "true", *more],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while (root / "a").read_text() != "2\n":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def busy(root: Path) -> Done:
    process = _running(root)
    try:
        return run(root, "run", "--codegen", "true", "--validate", "true")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def log_broken(root: Path) -> Done:
    writer = Writer(root)
    writer.no_change(1)
    writer.finish(code=1)
    events = writer.layout.events()
    events.write_bytes(events.read_bytes().replace(b'"exit 0"', b'"exit 7"', 1))
    return run(root, "audit", "verify")


def cannot_tell(root: Path) -> Done:
    return run(root, "audit", "verify", "nosuch.jsonl")


def bug(root: Path) -> Done:
    """A function that `status` needs is taken away: a NameError is nobody's fault but ours."""
    code = "import sys; from evolver.ui import status; del status.look; from evolver.cli import main; main(['status'])"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "API_TOKEN": "sk-0123456789abcdef0123"},
    )


def _interrupted(root: Path, number: signal.Signals) -> Done:
    process = _running(root)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert git(root, "status", "--porcelain") == ""
    return Done(process.args, process.returncode, out, err)


SITUATIONS: dict[ExitStatus, Callable[[Path], Done]] = {
    ExitStatus.ACCEPTED: accepted,
    ExitStatus.NOTHING_ACCEPTED: nothing_accepted,
    ExitStatus.USAGE: usage,
    ExitStatus.HELD: held,
    ExitStatus.PREFLIGHT: preflight,
    ExitStatus.BUSY: busy,
    ExitStatus.LOG_BROKEN: log_broken,
    ExitStatus.CANNOT_TELL: cannot_tell,
    ExitStatus.BUG: bug,
    ExitStatus.HANGUP: lambda root: _interrupted(root, signal.SIGHUP),
    ExitStatus.INTERRUPTED: lambda root: _interrupted(root, signal.SIGINT),
    ExitStatus.TERMINATED: lambda root: _interrupted(root, signal.SIGTERM),
}


@pytest.mark.parametrize("status", SITUATIONS, ids=lambda status: f"{int(status)}-{status.name}")
def test_each_exit_code_of_the_table(status: ExitStatus, repository: Path) -> None:
    done = SITUATIONS[status](repository)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search(rf"^\| (?:[\d, ]*\b)?{int(status)}\b", topics.text("exit-codes"), re.M)
    if status in (ExitStatus.USAGE, ExitStatus.HELD, ExitStatus.PREFLIGHT, ExitStatus.BUSY, ExitStatus.BUG):
        first, second, *rest = done.stderr.splitlines()
        assert first.startswith("evolver: "), done.stderr
        assert second.startswith("  hint: "), done.stderr
        assert rest == []


def test_exit_4_is_shown_where_a_tree_cannot_be_restored() -> None:
    """It takes a file that nobody may write; tests/worktree and the crash tests produce it. Here: the table has it."""
    assert "| 4 |" in topics.text("exit-codes")


def test_the_advice_of_the_table_names_commands_that_exist(tmp_path: Path) -> None:
    listed = run(tmp_path, "--help").stdout
    for command in set(re.findall(r"`evolver (\w+)", "".join(map(topics.text, topics.names())))):
        assert re.search(rf"^  {command} ", listed, re.M), command


def test_a_bug_leaves_a_crash_report_without_secrets(repository: Path) -> None:
    done = bug(repository)
    (path,) = re.findall(r"(/\S+evolver-crash-\S+\.txt)", done.stderr)
    text = Path(path).read_text()
    Path(path).unlink()
    assert "NameError" in text
    assert "sk-0123456789abcdef0123" not in text


def test_debug_shows_the_traceback(repository: Path) -> None:
    assert "Traceback" in run(repository, "run", "nosuch", env={"EVOLVER_DEBUG": "1"}).stderr
