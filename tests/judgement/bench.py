"""A real repository, the real command line, the stream as it stands on disk."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

Event = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Bench:
    """One worktree. `env` is laid over the test's own."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path, files: dict[str, str] | None = None, env: dict[str, str] | None = None) -> Self:
        root.mkdir(parents=True)
        bench = cls(root, env or {})
        bench.git("init", "-q")
        for name, text in (files or {"app.txt": "0\n"}).items():
            bench.write(name, text)
        bench.commit("start")
        return bench

    def git(self, *args: str, check: bool = True) -> str:
        command, env = ["git", "-C", str(self.root), *args], {**os.environ, **self.env}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, f"git {args}: {done.stderr}"
        return done.stdout.strip()

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else mode)
        return path

    def commit(self, message: str = "work") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def loop(self, text: str, name: str = "default") -> None:
        """A loop file, committed."""
        self.write(f"loops/{name}.toml", text)
        self.commit(f"loop {name}")

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "evolver", *args],
            cwd=self.root,
            env={**os.environ, **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def evolver(self, *args: str, exit: int | None = None, env: dict[str, str] | None = None) -> Ended:
        process = self.start(*args, env=env)
        out, err = process.communicate(timeout=240)
        ended = Ended(process.returncode, out, err)
        assert exit is None or ended.code == exit, f"evolver {args}: exit {ended.code}, not {exit}\n{out}\n{err}"
        return ended

    def run(self, codegen: str, *args: str, validate: str | None = None, exit: int | None = None, iters: int = 1) -> Ended:
        """`evolver run` with commands from flags."""
        words = ["--codegen", codegen, "--max-iters", str(iters)]
        if validate is not None:
            words += ["--validate", validate]
        return self.evolver("run", *words, *args, exit=exit)

    @property
    def stream(self) -> Path:
        return self.root / ".git/evolver/events.jsonl"

    def events(self, kind: str = "", iteration: int | None = None) -> list[Event]:
        found = [json.loads(line) for line in self.stream.read_text().splitlines()]
        return [
            e
            for e in found
            if (not kind or e["type"] == f"dev.evolver.{kind}") and (iteration is None or e.get("iteration") == iteration)
        ]

    def last(self, kind: str) -> Event:
        """`data` of the newest event of a kind."""
        found = self.events(kind)
        assert found, f"no {kind} among {[e['type'] for e in self.events()]}"
        data: Event = found[-1]["data"]
        return data

    def reasons(self) -> list[str]:
        """Why attempts were rejected, in order."""
        return [e["data"]["reason"] for e in self.events("rollback.finished")]

    def calls(self) -> int:
        """How often codegen was started."""
        return len([e for e in self.events("step.started") if e["data"]["step"] == "codegen"])

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Mode and bytes (link target) of everything but `.git`."""
        found: dict[str, tuple[int, bytes]] = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if name == ".git" or name.startswith(".git/"):
                continue
            st = path.lstat()
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[name] = (stat.S_IMODE(st.st_mode) | stat.S_IFMT(st.st_mode), content)
        return found
