"""A night alone: a scripted agent that mixes every failure, and afterwards nothing has grown, leaked or been lost."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from judgement.bench import Bench

# What an iteration does, by its number modulo the length: each is one way an attempt may go.
AGENT = """#!/bin/sh
n=$EVOLVER_ITERATION
case $((n % 10)) in
0) echo $n > good-$((n % 7)).txt ;;                                      # accepted
1) echo $n > app.txt; echo bad > verdict.txt ;;                          # a validator fails
2) ;;                                                                    # nothing changes
3) echo $n >> app.txt; git add -A; git commit -qm "mine $n" ;;           # commits by itself: accepted
4) echo $n > junk; mkdir -p deep/er; touch deep/er/x; exit 7 ;;          # codegen fails
5) echo $n > app.txt; (setsid sh -c 'sleep 300' >/dev/null 2>&1 &) ; echo bad > verdict.txt ;;  # leaves a daemon
6) git config core.editor evil; git branch side-$n; echo $n > x ;;       # control files and refs
7) echo $n > app.txt; echo 125 > verdict.txt ;;                          # inconclusive
8) rm -f app.txt; echo $n > ignored.log; kill -9 $$ ;;                   # dies by a signal
9) echo $n > link-target; ln -sf link-target link; git stash -qu; echo bad > verdict.txt ;;     # plays with the stash
esac
"""
JUDGE = """#!/bin/sh
[ -e verdict.txt ] || exit 0
[ "$(cat verdict.txt)" = 125 ] && exit 125
echo "verdict: $(cat verdict.txt)"
exit 1
"""
EXPECTED = {0: "accepted", 2: "no_change", 3: "accepted"}


class Vitals(threading.Thread):
    """Memory (anonymous, so that mapped files do not count), open files and zombies of a process, at each iteration."""

    def __init__(self, pid: int, bench: Bench) -> None:
        super().__init__(daemon=True)
        self.pid, self.bench, self.over = pid, bench, threading.Event()
        self.samples: dict[int, tuple[int, int]] = {}
        self.zombies: dict[str, float] = {}  # pid: since when
        self.unreaped: list[str] = []

    def run(self) -> None:
        while not self.over.wait(0.1):
            try:
                self.samples[self._iteration()] = (self._anonymous_kib(), len(os.listdir(f"/proc/{self.pid}/fd")))
                self._look_for_zombies()
            except OSError:
                continue

    def _look_for_zombies(self) -> None:
        """A child that stays unreaped for ten seconds, that is longer than any step here takes, stays so for ever."""
        now, found = time.monotonic(), {}
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found[pid] = self.zombies.get(pid, now)
        self.zombies = found
        self.unreaped += [pid for pid, since in found.items() if now - since > 10]

    def _iteration(self) -> int:
        stream = self.bench.stream
        with stream.open("rb") as file:
            file.seek(max(0, stream.stat().st_size - 20_000))
            tail = file.read().decode(errors="replace")
        return max((int(part.split(",")[0]) for part in tail.split('"iteration":')[1:] if part[:1].isdigit()), default=0)

    def _anonymous_kib(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        return 0


def night(bench: Bench, iterations: int, *args: str) -> tuple[dict[int, tuple[int, int]], str]:
    bench.write(".gitignore", "*.log\n")
    bench.write("judge.sh", JUDGE)
    agent = bench.root.parent / "agent.sh"
    agent.write_text(AGENT)
    bench.loop(
        f"""[loop]
max_iters = {iterations}
[codegen]
command = ["sh", "{agent}"]
grace = "1s"
[[validator]]
name = "judge"
command = "./judge.sh"
[breaker]
rejections = 0
same_failure = 0
no_change = 0
inconclusive = 0
"""
    )
    process = bench.start("run", "--quiet", *args)
    vitals = Vitals(process.pid, bench)
    vitals.start()
    out, err = process.communicate(timeout=3600)
    vitals.over.set()
    vitals.join()
    assert process.returncode == 0, out + err
    assert not vitals.unreaped
    return vitals.samples, out + err


def check(bench: Bench, iterations: int) -> None:
    """Counts, outcomes, repository and what still lives."""
    outcomes = Counter(EXPECTED.get(n % 10, "rolled_back") for n in range(1, iterations + 1))
    finished = bench.last("run.finished")
    counts = {key: finished[key] for key in ("accepted", "no_change", "rolled_back")}
    assert counts == {key: outcomes[key] for key in counts}
    assert finished["iterations"] == iterations
    rejected = [e["data"] for e in bench.events("rollback.finished")]
    assert len(rejected) == outcomes["rolled_back"]
    assert all(r["verified"] for r in rejected)
    commits = bench.git("log", "--format=%(trailers:key=Evolver-Iteration,valueonly)").split()
    accepted = [e["data"]["iteration_id"] for e in bench.events("iteration.accepted")]
    assert commits == accepted[::-1]
    assert len(accepted) == outcomes["accepted"]

    told = json.loads(bench.evolver("status", "--json", exit=0).out)["counts"]
    assert told == {key: count for key, count in counts.items() if count}

    assert bench.git("status", "--porcelain") == ""
    assert bench.git("branch", "--format=%(refname)") == "refs/heads/main"
    assert bench.git("stash", "list") == ""
    assert bench.git("config", "--get", "core.editor", check=False) == ""
    assert "missing" not in bench.git("fsck", "--full", "--no-progress")
    bench.git("gc", "-q", "--prune=now")  # what is needed does not hang on anything git takes for garbage
    assert "missing" not in bench.git("fsck", "--full", "--no-progress")
    assert bench.git("count-objects", "-v").startswith("count: 0")
    assert bench.evolver("audit", "verify", exit=0)
    left = subprocess.run(["pgrep", "-f", "sleep 300"], capture_output=True, text=True, check=False).stdout.split()
    assert not [pid for pid in left if str(bench.root.parent) in _cwd(pid)]


def _cwd(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def flat(samples: dict[int, tuple[int, int]], early: int) -> None:
    """Anonymous memory within 5 MiB between iteration 50 and the last, and no more open files."""
    first = [samples[n] for n in sorted(samples) if early <= n < early + 25]
    last = [samples[n] for n in sorted(samples)[-26:-1]]  # without the very last: the process ends while it is looked at
    before, after = (median(memory for memory, _ in part) for part in (first, last))
    assert abs(after - before) < 5 * 1024, f"memory in KiB: {before} then {after}"
    assert max(files for _, files in last) <= max(files for _, files in first) + 2


def test_forty_iterations_of_every_failure(bench: Bench) -> None:
    samples, _ = night(bench, 40)
    check(bench, 40)
    assert samples


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_night_in_a_clone(bench: Bench) -> None:
    night(bench, 100, "--isolation", "clone")
    check(bench, 100)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_night_of_five_hundred_iterations(bench: Bench) -> None:
    began = time.monotonic()
    samples, _ = night(bench, 500)
    check(bench, 500)
    flat(samples, early=50)
    print(f"{time.monotonic() - began:.0f} s; KiB and open files near 50: {samples[min(samples, key=lambda n: abs(n - 50))]}")
