"""One situation, driven against `Workspace` directly: real git, a real agent script, and the oracle as judge."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolver.definition import RollbackSection
from evolver.layout import locate
from evolver.model import DirtyPolicy
from evolver.worktree.values import Attempt, Baseline, Preserved, Verified
from evolver.worktree.workspace import Workspace
from oracle import Snapshot, differences

DEFAULT = RollbackSection()
SITUATIONS = Path(__file__).parents[1] / "situations"
BASE = r"""
git init -q -b main . && mkdir -p src/pkg && echo a >src/a.py && echo b >src/pkg/b.py &&
printf '#!/bin/sh\n' >run.sh && chmod +x run.sh && printf '*.log\nbuild/\n.env\n' >.gitignore &&
ln -s src/a.py link && git add -A && git commit -qm base && echo c >>src/a.py && git commit -qam second &&
git branch other HEAD~1
"""


def situations(family: str, *, as_user: bool = False) -> list[dict[str, Any]]:
    """The cases of one file; those that need an ordinary user when `as_user`."""
    cases = tomllib.loads((SITUATIONS / f"{family}.toml").read_text())["case"]
    return [c for c in cases if bool(c.get("nonroot")) is as_user]


@dataclass
class Scene:
    """A repository in its own folder, so that agents may write beside it."""

    root: Path
    before: Snapshot = field(init=False, repr=False)
    section: RollbackSection = DEFAULT

    @classmethod
    def make(cls, tmp: Path, setup: str = "", section: RollbackSection = DEFAULT) -> Scene:
        root = tmp / "box" / "r"
        root.mkdir(parents=True)
        scene = cls(root, section)
        scene.sh(BASE)
        if setup:
            scene.sh(setup)
        scene.before = Snapshot.of(root)
        return scene

    def sh(self, command: str, *, check: bool = True) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.root, capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL
        )
        if check and done.returncode:
            raise AssertionError(f"{command}\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.stdout.decode(errors="replace")

    def git(self, *words: str) -> bytes:
        return subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *words], cwd=self.root, capture_output=True, check=True
        ).stdout

    def workspace(self) -> Workspace:
        """As a new process would have it."""
        return Workspace.open(locate(self.root), rollback=self.section)

    def attempt(self, agent: str, workspace: Workspace | None = None) -> Trial:
        """Baseline, agent, guard, inspect."""
        workspace = workspace or self.workspace()
        workspace.preflight(dirty=DirtyPolicy.KEEP)
        baseline = workspace.baseline("01900000-0000-7000-8000-000000000000/1")
        self.sh(agent, check=False)
        left, shown = Snapshot.of(self.root), self.committable_names()
        control = workspace.guard_control(baseline)
        return Trial(self, workspace, baseline, workspace.inspect(baseline, control), left, shown)

    def committable_names(self) -> frozenset[str]:
        """Files that are not ignored, by the rules as they are now (asked of git the way a person would)."""
        names = []
        for base, folders, files in os.walk(self.root):
            links = [f for f in folders if len(base) < 3000 and Path(base, f).is_symlink()]
            names += [os.path.relpath(Path(base, n), self.root) for n in (*files, *links)]
        names = [n for n in names if not n.startswith(".git/") and n != ".git" and "\n" not in n]
        given = "\0".join(names).encode(errors="surrogateescape")
        done = subprocess.run(
            ["git", "check-ignore", "-z", "--stdin"], cwd=self.root, input=given, capture_output=True, check=False
        )
        return frozenset(names) - frozenset(os.fsdecode(n) for n in done.stdout.split(b"\0"))

    def wrong(self, *, stash: bool = True) -> list[str]:
        return differences(self.before, Snapshot.of(self.root), stash=stash)


@dataclass
class Trial:
    """An attempt that was inspected."""

    scene: Scene
    workspace: Workspace
    baseline: Baseline
    attempt: Attempt
    left: Snapshot
    shown: frozenset[str]

    def reject(self) -> Verified:
        restored = self.workspace.restore(self.baseline, self.attempt)
        verified = self.workspace.verify(self.baseline)
        assert not restored.problems or not verified.equal, restored.problems
        return verified

    def preserve(self) -> Preserved:
        return self.workspace.preserve(
            self.baseline, self.attempt, message="evolver 01900000-0000-7000-8000-000000000000/1: test"
        )

    def missing_from(self, commit: str) -> list[str]:
        """Files of the attempt that the kept commit does not hold with the same bytes and mode."""
        held: dict[str, str] = {}
        for tree in (commit, f"{commit}^3"):
            done = subprocess.run(["git", "ls-tree", "-r", "-z", tree], cwd=self.scene.root, capture_output=True, check=False)
            for line in done.stdout.split(b"\0"):
                if line:
                    meta, path = line.split(b"\t", 1)
                    held[os.fsdecode(path)] = meta.split()[0].decode()
        nested = tuple(k[len("path b'") : -len("/.git'")] + "/" for k in self.left.facts if k.endswith("/.git'"))
        wrong = []
        for name in sorted(self.shown):
            key = f"path {os.fsencode(name)!r}"
            fact: Any = self.left.facts.get(key)
            if fact is None or fact == self.scene.before.facts.get(key) or fact[0] not in ("file", "link"):
                continue
            if name.startswith(nested):
                continue
            kind = "120000" if fact[0] == "link" else "100755" if int(fact[1], 8) & 0o100 else "100644"
            if held.get(name) != kind:
                wrong.append(f"{name}: {held.get(name)}")
        return wrong
