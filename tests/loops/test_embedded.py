"""The embedded default: `evolver demo` and `loops/mutate`, without a model and without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolver.loopfile import builtin_loops, candidates, load
from evolver.settings import read

EVOLVER = [sys.executable, "-m", "evolver"]


def evolver(*args: str, cwd: Path, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*EVOLVER, *args], cwd=cwd, capture_output=True, text=True, timeout=200, env={**os.environ, **(env or {})}
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def events(root: Path, *types: str) -> list[dict[str, object]]:
    arguments = [part for name in types for part in ("--type", name)]
    return [json.loads(line) for line in evolver("events", "-o", "json", *arguments, cwd=root).splitlines()]


def test_the_demo_runs_twenty_real_iterations_without_any_setup(tmp_path: Path, hermetic: Path) -> None:
    """No git identity, odd folder name, settings of the user's that would break it: some accepted, the others rolled back."""
    (hermetic / ".gitconfig").unlink()
    target = tmp_path / "a demo's folder"
    text = evolver("demo", str(target), cwd=tmp_path, env={"EVOLVER_ROLLBACK_MODE": "none", "EVOLVER_CODEGEN": "false"})
    for part in (
        "[20] ",
        "5 accepted, 15 rolled back",
        "best score 95.289",
        str(target / ".git/evolver/events.jsonl"),
        "evolver show 1\n",
    ):
        assert part in text
    assert git(target, "status", "--porcelain") == ""
    assert git(target, "rev-list", "--count", "HEAD") == "6"
    assert git(target, "log", "--format=%an", "-1") == "evolver demo"
    accepted = events(target, "iteration.accepted")
    assert len(accepted) == 5
    scores = [float(str(dict(event["data"])["score"])) for event in accepted]  # type: ignore[call-overload]
    assert scores == sorted(scores)
    assert "intact" in evolver("audit", "verify", cwd=target)
    assert "Evolver-Iteration:" in git(target, "log", "-1", "--format=%B")
    # Twice in the same folder: refused, nothing touched.
    head = git(target, "rev-parse", "HEAD")
    assert "not empty" in evolver("demo", str(target), cwd=tmp_path, code=2)
    assert git(target, "rev-parse", "HEAD") == head


def test_the_demo_refuses_what_is_no_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be used" in evolver("demo", "file", cwd=tmp_path, code=2)
    assert "cannot be used" in evolver("demo", "file/below", cwd=tmp_path, code=2)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package with a suite that notices some changes and not others."""
    root = tmp_path / "package"
    (root / "tests").mkdir(parents=True)
    (root / "sums.py").write_text(
        "def total(values):\n    result = 0\n    for v in values:\n        result += v\n    return result\n"
        "\n\ndef unused(a):\n    return a * 2\n"
    )
    (root / "tests/check.py").write_text("import sums\nassert sums.total([1, 2]) == 3\n")
    (root / ".gitignore").write_text("__pycache__/\n")
    git(root.parent, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


def test_mutate_runs_in_any_repository(package: Path) -> None:
    """What the tests catch is rolled back, what survives is committed; HEAD passes, the tree is clean, commits equal acceptances."""
    check = f"PYTHONPATH=. {sys.executable} tests/check.py"
    evolver("run", "mutate", "--max-iters", "8", "--validate", check, "--quiet", cwd=package)
    accepted, rolled_back = events(package, "iteration.accepted"), events(package, "rollback.finished")
    assert accepted
    assert rolled_back
    assert len(accepted) + len(rolled_back) == 8
    assert int(git(package, "rev-list", "--count", "HEAD")) == 1 + len(accepted)
    assert git(package, "status", "--porcelain", "--ignored") == ""
    assert subprocess.run(["sh", "-c", check], cwd=package).returncode == 0
    assert git(package, "diff", "--name-only", "HEAD~1") == "sums.py"


def test_every_shipped_loop_loads() -> None:
    found = candidates(builtin_loops())
    assert set(found) == {"default", "demo", "mutate"}
    for name in found:
        loaded = load(name, Path("/nonexistent"), read({}))
        assert loaded.definition.loop.goal
        assert loaded.definition.validator


def test_the_demos_own_tests_pass_on_its_first_commit() -> None:
    folder = builtin_loops() / "demo/repo"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=folder, check=True, capture_output=True, env=env)
    done = subprocess.run([sys.executable, "score.py"], cwd=folder, check=True, capture_output=True, text=True, env=env)
    assert done.stdout == "score: 93.126\n"
