"""Stale caches after a rollback: what runs afterwards is the restored code, not the failed attempt's (hazard 45).

A tool's cache is trusted by mtime and size. Here the attempt changes a source without changing either, or within the same
second, and fills the cache; then the rollback happens, and the tool itself is asked what it runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo
from worktree.scene import Scene

TIMES = 20
IMPORT = "import sys; sys.dont_write_bytecode = False; import mod; print(mod.X)"


def imported(root: Path) -> str:
    """What a fresh Python gets from `import mod`; it writes bytecode, as anyone's would."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=root, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# The attempt's source has the same size, and its bytecode is there: written in the same second, or with the mtime forged.
ATTEMPTS = {
    "same-second": "printf 'X = 2\\n' >mod.py; {python} -c 'import mod'",
    "same-mtime": "touch -r mod.py ../ref; printf 'X = 2\\n' >mod.py; touch -r ../ref mod.py; rm -rf __pycache__; {python} -c 'import mod'",
    "mtime-ahead": "printf 'X = 2\\n' >mod.py; touch -d '+3 seconds' mod.py; {python} -c 'import mod'",
    "committed": "printf 'X = 2\\n' >mod.py; {python} -c 'import mod'; git commit -qam two",
}


@pytest.mark.parametrize("ignored", [True, False], ids=["pycache-ignored", "pycache-not-ignored"])
def test_python_imports_the_restored_code_20_times_of_20(tmp_path: Path, ignored: bool) -> None:
    scene = Scene.make(tmp_path, "printf 'X = 1\n' >mod.py; git add mod.py; git commit -qm mod")
    if ignored:
        scene.sh("echo '__pycache__/' >>.gitignore; git commit -qam ignore")
    python = f"env -u PYTHONDONTWRITEBYTECODE {sys.executable}"
    attempts = [a.format(python=python) for a in ATTEMPTS.values()]
    workspace, got = scene.workspace(), []
    for n in range(TIMES):
        shutil.rmtree(scene.root / "__pycache__", ignore_errors=True)
        (scene.root / "mod.py").write_text("X = 1\n")
        if n % 2:  # the user has bytecode of his own
            assert imported(scene.root) == "1"
        baseline = workspace.baseline(f"01900000-0000-7000-8000-000000000000/{n}")
        scene.sh(attempts[n // 2 % len(attempts)])
        assert (scene.root / "__pycache__").is_dir(), "the attempt left no bytecode, so nothing is shown"
        attempt = workspace.inspect(baseline, workspace.guard_control(baseline))
        workspace.restore(baseline, attempt)
        assert workspace.verify(baseline).differences == ()
        assert (scene.root / "__pycache__").is_dir() == bool(n % 2)
        got.append(imported(scene.root))
    assert got == ["1"] * TIMES


def test_python_after_a_rollback_by_the_command_line(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("echo '__pycache__/' >>.gitignore; printf 'X = 1\\n' >mod.py; git add -A; git commit -qm mod")
    assert imported(repo.root) == "1"
    python = f"env -u PYTHONDONTWRITEBYTECODE {sys.executable}"
    for attempt in ATTEMPTS.values():
        before = Snapshot.of(repo.root)
        done = repo.run(attempt.format(python=python), "grep -q 3 mod.py", "--no-breaker")
        assert done.code == 1, done.text
        assert differences(before, Snapshot.of(repo.root)) == []
        assert imported(repo.root) == "1"


def test_every_attempt_of_a_run_starts_from_the_restored_code(tmp_path: Path) -> None:
    """Five attempts in one run, the next one right after the rollback: each imports the baseline's code first."""
    repo = Repo.make(tmp_path / "r")
    repo.sh("printf 'X = 0\n' >mod.py; git add -A; git commit -qm mod")
    python = f"env -u PYTHONDONTWRITEBYTECODE {sys.executable}"
    seen = tmp_path / "seen"
    agent = (
        f"{python} -c 'import mod; print(mod.X)' >>{seen}; printf 'X = %s\n' $EVOLVER_ITERATION >mod.py; rm -rf __pycache__; "
        f"{python} -c 'import mod; print(mod.X)' >>{seen}"
    )
    done = repo.run(agent, "false", "--max-iters", "5", "--no-breaker")
    assert done.code == 1, done.text
    assert seen.read_text().split() == [x for n in range(1, 6) for x in ("0", str(n))]


MAKEFILE = "out: in\n\\t@cp in out\n"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("ignored", [True, False], ids=["object-ignored", "object-not-ignored"])
@pytest.mark.parametrize("built", [True, False], ids=["user-had-built", "never-built"])
def test_make_does_not_keep_a_stale_object(tmp_path: Path, ignored: bool, built: bool) -> None:
    """The restored source must be newer than any object made from the attempt's."""
    scene = Scene.make(tmp_path, f"printf '{MAKEFILE}' >Makefile; echo one >in; git add -A; git commit -qm make")
    if ignored:
        scene.sh("echo out >>.gitignore; git commit -qam ignore")
    for agent in (
        "echo two >in; make -s",
        "sleep 0.02; echo two >in; touch -d '+2 seconds' in; make -s",
        "rm -f out; echo two >in; touch -r Makefile in; make -s; git commit -qam two",
    ):
        scene.sh("rm -f out")
        if built:
            scene.sh("make -s")
        scene.before = Snapshot.of(scene.root)
        trial = scene.attempt(agent)
        assert "path b'out'" in trial.left.facts
        assert trial.reject().differences == ()
        assert scene.wrong() == []
        assert scene.sh("make -s 2>/dev/null; cat out") == "one\n"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_object_left_out_of_the_baseline_is_made_again(tmp_path: Path) -> None:
    """`leave` keeps an object of the attempt's: the restored source's mtime must be later than the attempt's was."""
    repo = Repo.make(tmp_path / "r")
    repo.sh(f"printf '{MAKEFILE}' >Makefile; echo one >in; echo out >>.gitignore; git add -A; git commit -qm make; make -s")
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(
        '[codegen]\ncommand = "echo two >in; make -s"\n[rollback]\nleave = ["out"]\n[[validator]]\nname = "no"\ncommand = "false"\n'
    )
    repo.sh("git add loops; git commit -qm loop")
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1, done.text
    assert (repo.root / "in").read_text() == "one\n"
    assert (repo.root / "out").read_text() == "two\n", "the object was not left, so nothing is shown"
    assert repo.sh("sleep 1.1; make -s 2>/dev/null; cat out") == "one\n"
