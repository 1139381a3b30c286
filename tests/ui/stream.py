"""A repository with a written event stream: runs of any length, without running any."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from evolver.events import types as ev
from evolver.events.ids import uuid7
from evolver.events.log import Bound, EventLog
from evolver.layout import Layout, locate

EVIL = "\x1b]0;pwned\x07\x1b[31m<script>alert(1)</script> | @everyone \x1b[2J"


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True)
class Recorded:
    """Where it is."""

    root: Path
    layout: Layout
    run_id: str


class Writer:
    """Writes one run's events."""

    def __init__(self, root: Path, *, loop: str = "tune", mode: str = "hard", iterations: int = 20) -> None:
        if not (root / ".git").exists():
            root.mkdir(exist_ok=True)
            git(root, "init", "-q")
            (root / "a.txt").write_text("0\n")
            git(root, "add", ".")
            git(root, "commit", "-qm", "start")
        self.root, self.layout, self.mode = root, locate(root, os.environ), mode
        self.run_id = uuid7()
        self.log = EventLog.open(self.layout.events(), source=f"evolver:{root}", mirror=None)
        self.bound: Bound = self.log.bind(self.run_id)
        self.head = git(root, "rev-parse", "HEAD")
        self.counts = {"accepted": 0, "no_change": 0, "rolled_back": 0, "held": 0}
        self.bound.emit(
            ev.RunStarted(
                from_="idle", to="running", loop=loop, definition_hash="d" * 64, validators_hash="v" * 64, version="0.1.0",
                rollback_mode=mode, pre_ref=self.head, branch="refs/heads/main", scope=".", max_iterations=iterations, pid=1,
                pid_started="1",
            )
        )  # fmt: skip
        self.bound.emit(ev.BaselineValidated(red=False, reason="green"))

    def step(
        self, number: int, name: str, judgement: str, reason: str, *, kind: str = "validate", cost: str | None = None
    ) -> None:
        iteration_id = f"{self.run_id}/{number}"
        log = self.layout.step_logs / self.run_id / str(number) / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"collected 3 items\n{EVIL}\nE   AssertionError: {reason}\n1 failed in 0.01s\n")
        self.bound.emit(ev.StepStarted(iteration_id=iteration_id, step=kind, name=name, timeout_ms=60_000), iteration=number)
        self.bound.emit(
            ev.StepFinished(
                iteration_id=iteration_id, step=kind, name=name, judgement=judgement, reason=reason,
                exit_code=0 if judgement == "pass" else 1, duration_ms=1234, log=str(log), log_bytes=log.stat().st_size,
                input_tokens=1000 if cost else None, output_tokens=200 if cost else None, cost_usd=cost,
            ),
            iteration=number,
        )  # fmt: skip

    def start(self, number: int) -> str:
        iteration_id = f"{self.run_id}/{number}"
        self.bound.emit(
            ev.IterationStarted(
                from_="idle", to="codegen", iteration_id=iteration_id, rollback_mode=self.mode, pre_ref=self.head,
                branch="refs/heads/main", baseline="f" * 64, files=3,
            ),
            iteration=number,
        )  # fmt: skip
        return iteration_id

    def _inspected(self, number: int, path: str) -> None:
        self.bound.emit(
            ev.IterationInspected(
                iteration_id=f"{self.run_id}/{number}", pre_ref=self.head, post_ref=self.head, added=0, modified=1, deleted=0,
                paths=(path,), commits=0, refs=(), control=(), committable=True,
            ),
            iteration=number,
        )  # fmt: skip

    def accepted(self, number: int, score: str | None = None, *, cost: str | None = None, commit: bool = True) -> str:
        iteration_id = self.start(number)
        self.step(number, "codegen", "pass", "exit 0", kind="codegen", cost=cost)
        self._inspected(number, "a.txt")
        self.step(number, "tests", "pass", "exit 0")
        pre_ref = self.head
        if commit:
            (self.root / "a.txt").write_text(f"{number}\n{EVIL}\n")
            git(self.root, "commit", "-qam", f"Improve {number} {EVIL}"[:60].replace("\x1b", ""))
            self.head = git(self.root, "rev-parse", "HEAD")
        self.bound.emit(
            ev.IterationAccepted(
                from_="accepting", to="accepted", iteration_id=iteration_id, pre_ref=pre_ref, commit=self.head,
                branch="refs/heads/main", paths=("a.txt",), paths_total=1, insertions=2, deletions=1, score=score,
            ),
            iteration=number,
        )  # fmt: skip
        self.counts["accepted"] += 1
        return self.head

    def rejected(self, number: int, reason: str, *, stash: str | None = None, verified: bool = True) -> None:
        iteration_id = self.start(number)
        self.step(number, "codegen", "pass", "exit 0", kind="codegen")
        self._inspected(number, "a.txt")
        self.step(number, "tests", "fail" if not reason.startswith("score") else "pass", reason)
        self.bound.emit(
            ev.RollbackStarted(
                from_="rejected", to="rolling_back", reason=reason, iteration_id=iteration_id, rollback_mode=self.mode,
                pre_ref=self.head, post_ref=self.head,
            ),
            iteration=number,
        )  # fmt: skip
        self.bound.emit(
            ev.RollbackFinished(
                from_="rolling_back", to="rolled_back", reason=reason, verified=verified, left=(), restored=1, deleted=0,
                rollback_ref=f"git:{self.head}", stash_ref=stash, duration_ms=12, iteration_id=iteration_id,
                rollback_mode=self.mode, pre_ref=self.head, post_ref=self.head,
            ),
            iteration=number,
        )  # fmt: skip
        self.counts["rolled_back"] += 1

    def no_change(self, number: int) -> None:
        iteration_id = self.start(number)
        self.step(number, "codegen", "pass", "exit 0", kind="codegen")
        self.bound.emit(
            ev.IterationNoChange(
                from_="inspected",
                to="no_change",
                iteration_id=iteration_id,
                pre_ref=self.head,
                reason="the attempt changed nothing",
            ),
            iteration=number,
        )
        self.counts["no_change"] += 1

    def held(self, number: int, reason: str) -> None:
        iteration_id = self.start(number)
        self.step(number, "tests", "fail", reason)
        common = {
            "iteration_id": iteration_id,
            "rollback_mode": "none",
            "pre_ref": self.head,
            "post_ref": self.head,
            "reason": reason,
        }
        self.bound.emit(ev.RollbackSkipped(from_="rejected", to="held", vault="/vault", **common), iteration=number)
        self.bound.emit(ev.RunHeld(from_="running", to="held", exit_code=3, **common))
        self.counts["held"] += 1

    def finish(self, reason: str = "max_iterations", code: int = 0, *, best: str | None = None, detail: str = "") -> Recorded:
        self.bound.emit(
            ev.RunFinished(
                from_="running", to="finished", reason=reason, detail=detail, exit_code=code, iterations=sum(self.counts.values()),
                accepted=self.counts["accepted"], no_change=self.counts["no_change"], rolled_back=self.counts["rolled_back"],
                held=self.counts["held"], head=self.head, duration_ms=1, best_score=best,
            )
        )  # fmt: skip
        return self.close()

    def close(self) -> Recorded:
        self.log.close()
        return Recorded(self.root, self.layout, self.run_id)


def mixed(root: Path, count: int = 12, *, commits: int = 60) -> Recorded:
    """A run of every kind of iteration: one in three accepted (the first `commits` of them as real commits)."""
    writer = Writer(root, iterations=count)
    made = 0
    for number in range(1, count + 1):
        match number % 6:
            case 1 | 4:
                made += 1
                writer.accepted(number, f"{90 + number / 100:.2f}", cost="0.0125", commit=made <= commits)
            case 2:
                writer.rejected(number, f"tests: exit 1 {EVIL}")
            case 3:
                writer.rejected(number, f"score: {80 + number % 7} against best 91 is no improvement")
            case 5:
                writer.no_change(number)
            case _:
                writer.rejected(number, "guard: protected path tests/test_a.py")
    writer.bound.emit(ev.AlertStalled(condition="breaker_same_failure", detail=f"3 in a row: {EVIL}"))
    return writer.finish(best=f"{90 + count / 100:.2f}", detail=f"{count} iterations")
