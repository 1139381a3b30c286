"""A person's checkout beside which an isolated run works."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from judgement.bench import Bench, Ended


class Person(Bench):
    """Their repository, and the clone that belongs to it."""

    def isolated(self, codegen: str, *args: str, validate: str | None = None, exit: int | None = None, iters: int = 1) -> Ended:
        return self.run(codegen, "--isolation", "clone", *args, validate=validate, exit=exit, iters=iters)

    @property
    def clone(self) -> Path:
        return Path(os.fsdecode((self.root / ".git/evolver/clone").read_bytes()).strip())

    def inside(self, *args: str) -> str:
        done = subprocess.run(["git", "-C", str(self.clone), *args], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def refs(self) -> str:
        """All but evolver's own, such as the one that remembers where the stream ends."""
        found = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return "\n".join(line for line in found if not line.startswith("refs/evolver/audit/"))

    def state(self) -> tuple[object, ...]:
        """Everything of theirs that a run could disturb: files, index, refs, config, stash, HEAD and its log."""
        git = self.root / ".git"
        return (
            self.tree(),
            (git / "index").read_bytes(),
            self.refs(),
            (git / "config").read_bytes(),
            (git / "HEAD").read_bytes(),
            (git / "logs/HEAD").read_bytes(),
            sorted(p.name for p in (git / "info").glob("*")) if (git / "info").exists() else [],
            sorted(p.name for p in git.iterdir()),
        )

    def wait_for(self, kind: str, count: int = 1, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.stream.exists() and len([e for e in self.stream.read_text().splitlines() if f'"dev.evolver.{kind}"' in e]) >= count:
                return
            time.sleep(0.02)
        raise AssertionError(f"no {count} {kind} within {seconds} s")
