"""Odd callers and odd machines: closed descriptors, tiny limits, no git, settings that refuse ordinary files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

RUN = '"$PY" -m evolver run --max-iters 1 --codegen "echo bad > src/a.py; echo \\$EVOLVER_ITERATION" --validate "echo judged; false"'


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


def shell(repo: Repo, command: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command],
        cwd=repo.root,
        env=repo.environment({"PY": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", **env}),
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_descriptor_never_becomes_one_of_our_files(repo: Repo, closed: str) -> None:
    before = Snapshot.of(repo.root)
    done = shell(repo, f"exec {RUN} {closed}")
    assert done.returncode == 1, done.stderr
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.evolver("audit", "verify").code == 0


def test_a_file_size_limit_is_told_before_anything_begins(repo: Repo) -> None:
    (repo.root / "mine.bin").write_bytes(os.urandom(4000))
    before = Snapshot.of(repo.root)
    done = shell(repo, f"ulimit -f 1; exec {RUN}")
    assert done.returncode == 5, done.stderr
    assert b"File too large" in done.stderr and b"Traceback" not in done.stderr
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_bug_without_room_for_its_report_is_still_one_line(repo: Repo) -> None:
    code = "import evolver.cli.app as a; from evolver.cli import main; a.build = None; main(['log'])"
    done = shell(repo, f'ulimit -f 0; "$PY" -c "{code}"')
    assert done.returncode == 70
    assert b"a bug in evolver" in done.stderr and b"No crash report" in done.stderr
    assert b"Traceback" not in done.stderr


def test_no_git_is_refused_before_anything_begins(repo: Repo) -> None:
    done = repo.evolver("run", "--codegen", "true", "--validate", "true", env={"PATH": "/nonexistent"})
    assert done.code == 5 and "git is not installed" in done.err


@pytest.mark.parametrize("verdict", ["true", "false"])
def test_safecrlf_does_not_stop_the_loop(repo: Repo, verdict: str) -> None:
    repo.sh("git config core.autocrlf true; git config core.safecrlf true")
    before = Snapshot.of(repo.root)
    done = repo.run("printf 'a\\r\\nb\\n' > mixed", verdict)
    assert done.code == (0 if verdict == "true" else 1), done.text
    if verdict == "false":
        assert differences(before, Snapshot.of(repo.root)) == []


@pytest.mark.parametrize("name", [".gitignore", "src/.gitattributes", "new/deep/.gitignore"])
def test_a_pipe_where_git_reads_is_refused(repo: Repo, name: str) -> None:
    repo.sh(f"mkdir -p new/deep; rm -f {name}; mkfifo {name}")
    done = repo.evolver("run", "--max-iters", "1", "--codegen", "true", "--validate", "true", "--dirty", "keep", timeout=30)
    assert done.code == 5 and name in done.err, done.text
