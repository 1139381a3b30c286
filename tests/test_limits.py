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
    """Append `count` well-formed events to the stream, chained by the rule in the contract."""
    lines = repo.log.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    previous, sequence = last["hash"], last["sequence"]
    template = {k: v for k, v in last.items() if k != "hash"} | {
        "type": "dev.evolver.run.paused",
        "data": {"from": "a", "to": "b", "reason": ""},
    }
    with repo.log.open("ab") as log:
        for number in range(1, count + 1):
            template |= {"sequence": sequence + number, "prevhash": previous}
            body = json.dumps(template, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
            previous = hashlib.sha256(b"evolver.event.v1\0" + body).hexdigest()
            log.write(body + b',"hash":"' + previous.encode() + b'"}\n')
    (repo.log.parent / "events.jsonl.head").unlink(missing_ok=True)


def startup(repo: Repo, *words: str) -> float:
    times = []
    for _ in range(5):
        begun = time.monotonic()
        repo.evolver(*words)
        times.append(time.monotonic() - begun)
    return min(times)


def test_startup_does_not_grow_with_a_million_events(repo: Repo, tmp_path: Path) -> None:
    """`status` with a million events is as fast as with a dozen (best of 5, and a quarter of a second of slack for noise)."""
    repo.run("echo z >>src/a.py", "false")
    small = startup(repo, "status")
    begun = time.monotonic()
    outside = tmp_path / "events.jsonl"
    outside.write_bytes(repo.log.read_bytes())
    big = Repo(repo.root, {"EVOLVER_EVENTS": str(outside)})
    body = outside.read_bytes()
    with outside.open("wb") as file:
        block = body * 2000
        for _ in range(1_000_000 // (2000 * body.count(b"\n")) + 1):
            file.write(block)
        file.write(body)
    lines = outside.stat().st_size // len(body) * body.count(b"\n")
    print(f"{lines} events made in {time.monotonic() - begun:.1f} s")
    assert lines >= 1_000_000
    large = startup(big, "status")
    print(f"status: {small:.3f} s with few events, {large:.3f} s with {lines}")
    assert large < small + 0.25
