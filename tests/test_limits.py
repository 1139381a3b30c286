"""Many at once, very much output, a very long log."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from support import EVOLVER, Repo, ended

ROUNDS = int(os.environ.get("TEST_LOCK_ROUNDS", "5"))


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def race(repo: Repo) -> None:
    go = repo.root.parent / "go"
    go.unlink(missing_ok=True)
    words = ["run", "--max-iters", "1", "--codegen", "echo z >>src/a.py; sleep 3", "--validate", "false"]
    script = f'while [ ! -e {go} ]; do :; done; exec "$@"'
    racers = [
        subprocess.Popen(
            ["sh", "-c", script, "sh", *EVOLVER, *words],
            cwd=repo.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **repo.env},
        )
        for _ in range(8)
    ]
    go.touch()
    codes = sorted(ended(p, 60).code for p in racers)
    assert codes == [1] + [6] * 7


def test_of_8_runs_started_at_once_exactly_one_holds_the_worktree(repo: Repo) -> None:
    for _ in range(ROUNDS):
        race(repo)


@pytest.mark.nightly
def test_of_8_runs_started_at_once_exactly_one_holds_the_worktree_50_times(repo: Repo) -> None:
    for _ in range(50):
        race(repo)


def test_a_1_gib_line_without_newline_costs_under_150_mb(repo: Repo) -> None:
    process = repo.start(
        "run", "--max-iters", "1", "--codegen", "echo z >>src/a.py; head -c 1073741824 /dev/zero", "--validate", "true"
    )
    peak = 0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    done = ended(process)
    assert done.code == 0, done.text
    finished = next(e["data"] for e in repo.events("step.finished") if e["data"]["name"] == "codegen")
    assert finished["log_bytes"] == 1 << 30
    print(f"peak {peak / 1e6:.0f} MB")
    assert peak < 150e6


def long_log(repo: Repo, count: int) -> None:
    """Append `count` well-formed events, two a run, to the stream, chained by the rule in the contract."""
    lines = repo.log.read_bytes().splitlines(keepends=True)
    started = next(json.loads(line) for line in lines if b".run.started" in line)
    last = json.loads(lines[-1])
    assert last["type"].endswith(".run.finished")
    previous, sequence = last["hash"], last["sequence"]
    with repo.log.open("ab") as log:
        for number in range(1, count + 1):
            template = {k: v for k, v in (started if number % 2 else last).items() if k != "hash"}
            template |= {"sequence": sequence + number, "prevhash": previous}
            template["runid"] = template["subject"] = f"00000000-0000-7000-8000-{(number - 1) // 2:012d}"
            body = json.dumps(template, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
            previous = hashlib.sha256(b"evolver.event.v1\0" + body).hexdigest()
            log.write(body + b',"hash":"' + previous.encode() + b'"}\n')
    # As if this evolver had written them: what it remembers of the end is gone, and it reads the end itself.
    for folder in (repo.log.parent, *(Path(os.environ["XDG_STATE_HOME"]) / "evolver").glob("*")):
        for name in ("head", "events.jsonl.head", "events.jsonl"):
            if folder / name != repo.log:
                (folder / name).unlink(missing_ok=True)
    repo.sh("git for-each-ref --format='delete %(refname)' refs/evolver/audit | git update-ref --stdin")


def best_of_three(repo: Repo, *words: str) -> float:
    times = []
    for _ in range(3):
        begun = time.monotonic()
        repo.evolver(*words)
        times.append(time.monotonic() - begun)
    return min(times)


def test_run_and_status_start_as_fast_with_a_million_events_as_with_few(repo: Repo) -> None:
    """Best of three, and half a second of slack for the machine's noise; a reader that scanned the log would need seconds."""
    attempt = ("run", "--max-iters", "1", "--codegen", "echo z >>src/a.py", "--validate", "false")
    repo.evolver(*attempt)
    small = [best_of_three(repo, "status"), best_of_three(repo, *attempt)]
    long_log(repo, 1_000_000)
    large = [best_of_three(repo, "status"), best_of_three(repo, *attempt)]
    print(f"status {small[0]:.2f} s, run {small[1]:.2f} s; with a million events {large[0]:.2f} s, {large[1]:.2f} s")
    assert large[0] < small[0] + 0.5
    assert large[1] < small[1] + 0.5
    assert repo.evolver("audit", "verify").code == 0
