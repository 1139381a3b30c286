"""Arguments and loop files nobody would write by hand: told as usage errors, never as a bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


@pytest.mark.parametrize(
    "words", [("show", "9" * 5000), ("run", "--max-iters", "9" * 24, "--codegen", "true", "--validate", "true", "--dry-run")]
)
def test_a_huge_number_is_a_usage_error(repo: Repo, words: tuple[str, ...]) -> None:
    assert repo.evolver(*words).code == 2


@pytest.mark.parametrize(
    "make", ["mkfifo loops/e.toml", "mkdir loops/e.toml", "printf 'a = %05000d' 0 | tr 0 '[' > loops/e.toml"]
)
def test_a_loop_file_that_is_none_is_a_usage_error(repo: Repo, make: str) -> None:
    repo.sh(f"mkdir -p loops; {make}")
    assert repo.evolver("run", "e", timeout=20).code == 2
