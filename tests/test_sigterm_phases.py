"""SIGTERM while a child that ignores it runs, in every phase that has a child."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from oracle import Snapshot, differences
from support import Repo, ended

DEAF = "trap '' TERM INT HUP; echo dropped >>src/a.py; touch {marker}; while :; do sleep 0.1; done"
PHASES = {"codegen": 1, "baseline": 5, "validate": 5, "before_validate": 10, "after_validate": 10}  # the grace, in seconds


@pytest.mark.parametrize("phase", PHASES)
def test_sigterm_with_a_deaf_child(tmp_path: Path, phase: str) -> None:
    repo = Repo.make(tmp_path / "r")
    marker = tmp_path / "started"
    deaf = DEAF.format(marker=marker)
    judge = "true"
    if phase in ("baseline", "validate"):
        here = "=" if phase == "baseline" else "!="
        judge = f"if [ $EVOLVER_ITERATION {here} 0 ]; then {deaf}; fi"
    text = '[codegen]\ngrace = "1s"\ncommand = """' + (deaf if phase == "codegen" else "echo z >>src/a.py") + '"""\n'
    text += f'[[validator]]\nname = "judge"\ncommand = """{judge}"""\n'
    if phase.endswith("_validate"):
        text += f'[effects]\napprove = "listed"\n[[effect]]\nname = "deaf"\nwhen = "{phase}"\nrun = """{deaf}"""\nundo = "true"\n'
    loop = tmp_path / "loop.toml"
    loop.write_text(text)
    before = Snapshot.of(repo.root)
    process = repo.start("run", str(loop), "--max-iters", "1")
    repo.wait_for(marker.exists)
    family = psutil.Process(process.pid).children(recursive=True)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    done = ended(process, 40)
    took = time.monotonic() - begun
    assert done.code == 143, done.text
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in family)
    assert took < PHASES[phase] + 2 + 2, f"{took:.1f} s"  # 2 s are promised, 2 s are this machine's noise
    time.sleep(1)
    assert differences(before, Snapshot.of(repo.root)) == []
