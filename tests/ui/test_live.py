"""The live view in a real terminal, `pause` and `stop` from another one, and what a pipe gets instead."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .stream import git
from .terminal import TMUX, Terminal

EVOLVER = [sys.executable, "-m", "evolver"]
# Alternates between an attempt that passes and one that fails; prints what a terminal must not be given.
AGENT = r"""
printf 'working on %s \033]0;title\007\033[31mred\033[0m\n' "$EVOLVER_ITERATION"; sleep 0.7
if [ $((EVOLVER_ITERATION % 2)) = 1 ]; then echo "$EVOLVER_ITERATION" > value; else echo broken > value; fi
"""
LOOP = f"""
[loop]
goal = "Count"
max_iters = 6
max_time = "1h"
[codegen]
command = '''{AGENT}'''
[[validator]]
name = "number"
command = "grep -q '^[0-9]' value && sleep 0.3 && echo score: $(cat value)"
[score]
validator = "number"
pattern = '^score: (\\d+)'
[budget]
tokens = 1000
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "loops").mkdir(parents=True)
    (root / "loops/count.toml").write_text(LOOP)
    (root / "value").write_text("0\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


@pytest.mark.skipif(TMUX is None, reason="no tmux (apt-get install tmux)")
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_the_live_view_stays_readable(columns: int, lines: int, repository: Path, tmp_path: Path) -> None:
    """tmux at 80x24 and 200x50: run, iteration k of n, step with its last line, strip, score, next stop."""
    with Terminal(tmp_path / "tmux", columns, lines, [*EVOLVER, "run"], repository, {}) as terminal:
        terminal.until("iteration 4 of 6")
        screen = terminal.until("working on 4 red")
        text = "\n".join(screen)
        assert re.search(r"^evolver count  hard rollback on main +\d", text, re.M), text
        assert re.search(r"iteration 4 of 6  \d+(\.\d)? m?s of about \d+(\.\d)? m?s", text), text
        assert re.search(r"^> codegen  \S+ m?s of 30m00s at most$", text, re.M), text
        assert "\n●×●…\n" in text, text
        assert "2 accepted, 1 rolled back" in text
        assert "best 3" in text
        assert re.search(r"^next stop: max_iterations \(3 iterations left\); ", text, re.M), text
        assert "title" not in text
        assert max(map(len, screen)) <= columns
        assert "\x1b[" in terminal.colours()
        end = terminal.until("ended:0", 60)
        text = "\n".join(end)
        assert "finished: max_iterations" in text
        assert "●×●×●×" in text
        assert "6 iterations: 3 accepted, 3 rolled back" in text
        if "SCREENSHOTS" in os.environ and columns == 80:
            (Path(os.environ["SCREENSHOTS"]) / "pane.txt").write_text("\n".join(screen) + "\n")


@pytest.mark.skipif(TMUX is None, reason="no tmux (apt-get install tmux)")
def test_ctrl_c_in_the_live_view_rolls_back_and_leaves_the_terminal_usable(repository: Path, tmp_path: Path) -> None:
    with Terminal(tmp_path / "tmux", 80, 24, [*EVOLVER, "run"], repository, {}) as terminal:
        terminal.until("working on 2 red")
        terminal.keys("C-c")
        text = "\n".join(terminal.until("ended:130"))
        assert "interrupted" in text
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("extra", [{}, {"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}], ids=str)
def test_a_pipe_gets_plain_lines(extra: dict[str, str], repository: Path) -> None:
    env = {**os.environ, "TERM": "xterm-256color", **extra}
    done = subprocess.run([*EVOLVER, "run", "--max-iters", "2"], cwd=repository, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "[1] accepted as" in done.stdout
    assert "[2] rolled back and verified" in done.stdout


@pytest.mark.skipif(TMUX is None, reason="no tmux (apt-get install tmux)")
@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_without_colour(extra: dict[str, str], repository: Path, tmp_path: Path) -> None:
    command = ["env", *(f"{k}={v}" for k, v in extra.items()), *EVOLVER, "run", "--max-iters", "1"]
    with Terminal(tmp_path / "tmux", 80, 24, command, repository, {}) as terminal:
        terminal.until("ended:0")
        assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", terminal.colours())


def test_quiet_says_nothing_and_json_only_envelopes(repository: Path) -> None:
    done = subprocess.run([*EVOLVER, "run", "--max-iters", "1", "--quiet"], cwd=repository, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_reader_that_goes_away_does_not_end_the_run(repository: Path) -> None:
    """`evolver run | head -1`: the telling ends, the work goes on."""
    code = f"{sys.executable} -m evolver run --max-iters 3 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", code], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (
        "2 accepted, 1 rolled back" in subprocess.run([*EVOLVER, "log"], cwd=repository, capture_output=True, text=True).stdout
    )


def started(repository: Path, *args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*EVOLVER, "run", *args], cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("[1] accepted"):
            break
    return process


def test_pause_ends_the_loop_after_its_iteration(repository: Path) -> None:
    process = started(repository)
    time.sleep(0.3)  # into the second iteration
    done = subprocess.run([*EVOLVER, "pause", "--wait"], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "[2] rolled back and verified: " in out
    assert "paused" in out
    assert "[3]" not in out
    again = subprocess.run([*EVOLVER, "run", "--max-iters", "1"], cwd=repository, capture_output=True, text=True)
    assert "max iterations" in again.stdout  # what was asked of the earlier run does not end the next


def test_stop_ends_the_loop_now_and_rolls_back(repository: Path) -> None:
    process = started(
        repository, "--codegen", f"{AGENT.strip()}; [ $EVOLVER_ITERATION = 1 ] || sleep 600", "--validate", "true"
    )
    time.sleep(0.5)
    began = time.monotonic()
    done = subprocess.run([*EVOLVER, "stop", "--wait"], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 15
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, (out, err)  # the first attempt was accepted
    assert "stopped" in out
    assert git(repository, "status", "--porcelain") == ""


def test_pause_and_stop_without_a_loop(repository: Path) -> None:
    for command in ("pause", "stop"):
        done = subprocess.run([*EVOLVER, command], cwd=repository, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "no loop is running here\n")


@pytest.mark.skipif(TMUX is None, reason="no tmux (apt-get install tmux)")
def test_status_w_shows_a_running_loop_from_another_terminal(repository: Path, tmp_path: Path) -> None:
    process = started(repository)
    try:
        with Terminal(tmp_path / "tmux", 80, 24, [*EVOLVER, "status", "-w"], repository, {}) as terminal:
            text = "\n".join(terminal.until("running"))
            assert "count" in text
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
