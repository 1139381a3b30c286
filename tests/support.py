"""Black-box helpers: a scratch repository, evolver as a real process, its stream as plain JSON.

Shares no code with evolver beyond starting it.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVOLVER = (sys.executable, "-m", "evolver")
COVERAGE: dict[str, str] = {}  # what makes a child measure its coverage, when the tests are asked to (see conftest.py)
EACH = 5  # one call of so many is measured: measuring makes a call slower by half, and all of them tell little more
_calls = itertools.count()


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Repo:
    """A throw-away git repository below `root`, and evolver runs in it."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path) -> Repo:
        """A repository with two commits, a subfolder, an executable, a symlink and ignore rules."""
        root.mkdir(parents=True)
        repo = cls(root)
        repo.sh(
            "git init -q -b main . && mkdir -p src/pkg && echo a >src/a.py && echo b >src/pkg/b.py && "
            "printf '#!/bin/sh\\n' >run.sh && chmod +x run.sh && printf '*.log\\nbuild/\\n' >.gitignore && "
            "ln -s src/a.py link && git add -A && git commit -qm base && echo c >>src/a.py && git commit -qam second"
        )
        return repo

    def environment(self, env: Mapping[str, str] = {}) -> dict[str, str]:
        return {**os.environ, **self.env, **env}

    def sh(self, command: str, check: bool = True) -> str:
        done = subprocess.run(["bash", "-c", command], cwd=self.root, env=self.environment(), capture_output=True, timeout=120)
        if check and done.returncode:
            raise AssertionError(f"{command}\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.stdout.decode(errors="replace")

    def evolver(self, *words: str, env: Mapping[str, str] = {}, timeout: float = 120, cwd: str = ".") -> Done:
        done = subprocess.run(
            [*EVOLVER, *words],
            cwd=self.root / cwd,
            env=self.environment(env) if next(_calls) % EACH else COVERAGE | self.environment(env),
            capture_output=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def run(self, codegen: str, validate: str | Sequence[str] = "false", *words: str, **options: Any) -> Done:
        """`evolver run` with one iteration unless `words` say otherwise."""
        judges = [validate] if isinstance(validate, str) else list(validate)
        iters = () if "--max-iters" in words else ("--max-iters", "1")
        flags = [w for judge in judges for w in ("--validate", judge)]
        return self.evolver("run", *iters, "--codegen", codegen, *flags, *words, **options)

    def start(self, *words: str, env: Mapping[str, str] = {}, **options: Any) -> subprocess.Popen[bytes]:
        """evolver in the background, in a session of its own."""
        return subprocess.Popen(
            [*EVOLVER, *words],
            cwd=self.root,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    @property
    def log(self) -> Path:
        return self.root / ".git/evolver/events.jsonl"

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The stream's envelopes, those whose type (without prefix) starts with `kind`."""
        if not self.log.exists():
            return []
        found = [json.loads(line) for line in self.log.read_bytes().splitlines()]
        return [e for e in found if e["type"].removeprefix("dev.evolver.").startswith(kind)]

    def kinds(self) -> list[str]:
        return [e["type"].removeprefix("dev.evolver.") for e in self.events()]

    def head(self) -> str:
        return self.sh("git rev-parse HEAD").strip()

    def status(self) -> str:
        return self.sh("git status --porcelain --untracked-files=all --ignored")

    def wait_for(self, predicate: Any, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > deadline:
                raise AssertionError("waited in vain")
            time.sleep(0.02)


def ended(process: subprocess.Popen[bytes], seconds: float = 60) -> Done:
    """Wait for a background run; kill it (by its own id) when it takes too long."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"did not end in {seconds} s\n{out.decode()}{err.decode()}") from None
    return Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def quote(*words: str) -> str:
    return shlex.join(words)


def in_fork(act: Callable[[], object]) -> int:
    """Do `act` in a forked child; its pid. The child always ends here: an exception in it may not go on with our tests."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(99)
