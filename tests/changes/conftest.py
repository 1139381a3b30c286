"""A real repository, real changes logs, evolver as a real process; a snapshot that sees every byte."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

EVOLVER = (sys.executable, "-m", "evolver")
LOG: dict[str, Any] = {
    "phase": "bug-fixing",
    "timestamp": "2025-10-18T14:30:00Z",
    "files_modified": [],
    "files_created": [],
    "commands_executed": [],
    "git_commits": [],
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The report on standard output, times set to what the document's examples are compared without."""
        value = json.loads(self.out)
        assert isinstance(value["duration_ms"], int) and 0 <= value["duration_ms"] < 60_000
        assert len(value["timestamp"]) == 20 and value["timestamp"].endswith("Z")
        assert "Traceback" not in self.err
        found: dict[str, Any] = {k: v for k, v in value.items() if k not in ("duration_ms", "timestamp")}
        return found


@dataclass
class Place:
    """A folder to roll back in, a git repository or not."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def git(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(["git", *args], cwd=self.root, capture_output=True, text=True)
        if check and done.returncode:
            raise AssertionError(f"git {args}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def sh(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", command], cwd=self.root, capture_output=True, text=True, env={**os.environ, **self.env}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, path: str, text: str, mode: int | None = None) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if mode is not None:
            target.chmod(mode)
        return target

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def log(self, name: str = ".bug-changes.json", **fields: Any) -> str:
        (self.root / name).write_text(json.dumps({**LOG, **fields}))
        return name

    def evolver(self, *words: str, env: Mapping[str, str] | None = None, cwd: str = ".") -> Done:
        done = subprocess.run(
            [*EVOLVER, *words],
            cwd=self.root / cwd,
            env={**os.environ, **self.env, **(env or {})},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        return Done(
            done.returncode, done.stdout.decode(errors="backslashreplace"), done.stderr.decode(errors="backslashreplace")
        )

    def rollback(self, log: str = ".bug-changes.json", *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """`changes rollback --yes --json`: its report; the exit status must agree with it."""
        done = self.evolver("changes", "rollback", log, "--yes", "--json", *words, env=env)
        assert done.out, done.err
        assert done.code == (0 if done.report["success"] else 1), done.err
        return done.report

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        return self.git("rev-parse", "HEAD")


def snapshot(top: Path, *, skip: tuple[str, ...] = (".git",)) -> dict[str, tuple[object, ...]]:
    """Everything below `top`, links not followed: type, permissions, bytes or target. `skip`: paths left out, from `top`."""
    found: dict[str, tuple[object, ...]] = {}
    pending = [top]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            key = str(path.relative_to(top))
            if key in skip:
                continue
            status = path.lstat()
            kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[key] = (kind, str(path.readlink()))
            elif stat.S_ISREG(status.st_mode):
                found[key] = (kind, mode, path.read_bytes())
            else:
                found[key] = (kind, mode)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
    return found


@pytest.fixture
def plain(tmp_path: Path) -> Place:
    """A folder without git. Beside it lies what nothing may touch."""
    root = tmp_path / "root"
    root.mkdir()
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "secret").write_text("secret\n")
    (outside / "sub" / "inner").write_text("inner\n")
    return Place(root)


@pytest.fixture
def repo(plain: Place) -> Place:
    """The same with a repository of one commit."""
    plain.git("init", "-q", "-b", "main", ".")
    plain.write("src/app.ts", "let bug = 1\n")
    plain.write("src/utils.ts", "export {}\n")
    plain.write(".gitignore", ".rollback/\n.*-changes.json\ndist/\n")
    plain.commit("Start")
    return plain


def stand_in(folder: Path, name: str, script: str = "") -> Path:
    """A program on a PATH of its own that writes down how it was called."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\nprintf "%s|" "{name}" "$@" >>"{folder}/calls"\necho >>"{folder}/calls"\n{script}\n')
    program.chmod(0o755)
    return program
