"""Random trees of processes that do everything to stay alive; a step's end is the end of all of them."""

from __future__ import annotations

import os
import random
import sys
import uuid
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.process import run

from .conftest import Make

# argv: marker, seed, depth. Every process carries the marker in its command line, also when it has cleared its environment.
NODE = r"""
import os, random, signal, sys, time
marker, seed, depth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
if dice.random() < 0.5: signal.signal(signal.SIGTERM, signal.SIG_IGN)
if dice.random() < 0.5: signal.signal(signal.SIGHUP, signal.SIG_IGN)
if dice.random() < 0.4 and depth:
    try: os.setsid()
    except OSError: pass
if dice.random() < 0.3: os.chdir("/")
if dice.random() < 0.3: os.dup2(os.open(os.devnull, os.O_RDWR), 1)
if depth < 3:
    for number in range(dice.randint(1, 3)):
        env = {} if dice.random() < 0.3 else dict(os.environ)
        argv = [sys.executable, "-S", "-c", open("/proc/self/cmdline", "rb").read().split(b"\0")[3].decode(), marker,
                str(dice.randrange(1 << 30)), str(depth + 1)]
        if os.fork() == 0:
            if dice.random() < 0.5 and os.fork(): os._exit(0)
            os.execve(sys.executable, argv, env)
if dice.random() < 0.5: sys.exit(0)
while True:
    print("alive", flush=True) if dice.random() < 0.1 else None
    time.sleep(0.02)
"""


def living(marker: str) -> list[int]:
    found = []
    for item in os.listdir("/proc"):
        if item.isdigit() and int(item) != os.getpid():
            try:
                words = Path(f"/proc/{item}/cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(item))
    return found


def one_tree(make: Make, seed: int) -> int:
    """How many had to be killed."""
    marker = f"marker-{uuid.uuid4()}"
    dice = random.Random(seed)
    command = make(
        argv=(sys.executable, "-S", "-c", NODE, marker, str(seed), "0"), timeout_ms=dice.choice([150, 400, 900]), grace_ms=200
    )
    done = run(command, interrupts=Interrupts())
    left = living(marker)
    assert left == [] and done.survivors == (), f"seed {seed}: {left}"
    return done.killed


def test_random_trees(make: Make) -> None:
    killed = sum(one_tree(make, seed) for seed in range(7))
    assert killed > 7, f"only {killed} were left behind: the trees are too tame to show anything"


@pytest.mark.nightly
def test_many_random_trees(make: Make) -> None:
    assert sum(one_tree(make, seed) for seed in range(1000, 1300)) > 300
