"""Every command block of README.md, executed: in a fresh clone, in a reader's project, and the session compared with its capture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from readme import README, ROOT, blocks, commands, environment, normal, play

TEXT = README.read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
CLAUDE = r"""#!/bin/sh
# Stands in for the real command line: mends the project in its second call, and says so as Claude Code does.
[ "$1" = --version ] && { echo "2.1.197 (Claude Code)"; exit 0; }
cat > /dev/null
n=$(cat "$HOME/calls" 2>/dev/null || echo 0); echo $((n + 1)) > "$HOME/calls"
if [ "$n" -ge 1 ]; then printf 'def add(a, b):\n    return a + b\n' > app.py; else echo 'def add(a, b): return 0' > app.py; fi
cat <<END
{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1,"session_id":"s","total_cost_usd":0.01,\
"usage":{"input_tokens":10,"output_tokens":5}}
END
"""
PROJECT = {
    "app.py": "def add(a, b):\n    return a - b\n",
    "test_app.py": (
        "import unittest\nfrom app import add\n\n\nclass Add(unittest.TestCase):\n    def test_add(self):\n"
        "        self.assertEqual(add(2, 3), 5)\n"
    ),
}


def shell(script: str, cwd: Path, env: dict[str, str], timeout: int = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_every_block_is_run_by_one_of_these_tests() -> None:
    marks = [block.mark for block in BLOCKS if block.language in ("sh", "bash", "console")]
    assert set(marks) == {"demo", "tests", "run: project", "session"}
    assert marks.count("demo") == marks.count("tests") == 1


def test_the_order_of_the_readme() -> None:
    wanted = [
        "<!-- session -->",
        "## Two commands",
        "## With a real agent",
        "## Modes",
        "## Resume",
        "## Events",
        "## Exit codes",
    ]
    places = [TEXT.index(part) for part in wanted]
    assert places == sorted(places)
    introduction = TEXT.split("\n\n")[1]
    assert len(re.findall(r"\.(?=\s|$)", introduction)) == 3  # what it is, in three sentences


def test_the_session_is_what_the_program_prints(tmp_path: Path, home: Path) -> None:
    """Typed again, with ids, times and folders left out of the comparison."""
    env = environment(home, Path(sys.executable).parent)
    folder = tmp_path / "work"
    folder.mkdir()
    for block in BLOCKS:
        if block.mark == "session":
            shown = ""
            for command, output, code in play(commands(block.text), folder, env):
                assert code == 0, (command, output)
                shown += f"$ {command}\n{output}"
            assert normal(shown) == normal(block.text), "captured anew by: python tests/readme.py"


def test_the_blocks_in_the_readers_project_run_in_one_shell(tmp_path: Path, home: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "claude").write_text(CLAUDE)
    (binaries / "claude").chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    for name, text in PROJECT.items():
        (project / name).write_text(text)
    (project / ".gitignore").write_text("__pycache__/\n")
    env = environment(home, binaries, Path(sys.executable).parent)
    setup = "git init -q && git config user.name Me && git config user.email me@example.invalid && git add . && git commit -qm start"
    assert shell(setup, project, env).returncode == 0
    script = "\n".join(f"echo '## block {n}'\n{b.text}" for n, b in enumerate(BLOCKS) if b.mark == "run: project")
    done = shell(script, project, env)
    assert done.returncode == 0, done.stdout + done.stderr
    sections = re.split(r"^## block \d+\n", done.stdout, flags=re.M)[1:]
    assert "ready: evolver run" in sections[0]
    assert "rolled back and verified" in sections[0]
    assert "accepted as" in sections[0]
    assert sections[1].count("accepted as") == 2
    assert "stash@{0}" in sections[2]
    assert "held" in sections[2]
    assert "nothing to resume" in sections[3]
    assert "intact" in sections[4]
    assert (project / "report.html").stat().st_size > 10_000


@pytest.mark.timeout(600)
def test_both_commands_pass_in_a_fresh_clone_with_an_empty_home(tmp_path: Path, home: Path) -> None:
    """The demo as it stands; the test command with a selection, since these tests are part of what it runs."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    env = environment(home)
    env["PATH"] = os.pathsep.join(p for p in env["PATH"].split(os.pathsep) if Path(p) != Path(sys.executable).parent)
    (demo,) = (block.text for block in BLOCKS if block.mark == "demo")
    done = shell(demo, clone, env, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 accepted, 15 rolled back" in done.stdout
    (tests,) = (block.text for block in BLOCKS if block.mark == "tests")
    done = shell(tests, clone, env | {"PYTEST_ADDOPTS": "tests/test_machine.py tests/test_stop.py"}, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout or "100%" in done.stdout
    assert subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True).stdout == ""
