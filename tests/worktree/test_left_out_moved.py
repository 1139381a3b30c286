"""An ignored folder that is no part of the baseline is moved by an attempt or a validator: it is the user's only copy, and comes back.

Shows: over the budget and left by choice, in every mode, after a kill, with something else in its place, below a folder that goes, and when
the attempt passes. What was deleted is named; an inode that is used again is no move.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from support import Repo

LOOP = "[codegen]\ncommand = 'sh ../agent'\n[[validator]]\nname = 'v'\ncommand = 'sh ../judge'\n[rollback]\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("mkdir -p build/data src/pkg/build loops; for i in 1 2 3; do echo precious $i | tee build/data/$i src/pkg/build/$i >build/$i; done")
    repo.sh("echo log >x.log")
    (repo.root / "loops/default.toml").write_text(f"{LOOP}ignored = 'leave'\n")
    repo.sh("git add loops; git commit -qm loop")
    return repo


def run(repo: Repo, agent: str, judge: str = "false", *words: str, **env: str) -> int:
    (repo.root.parent / "agent").write_text(agent)
    (repo.root.parent / "judge").write_text(judge)
    return repo.evolver("run", *(() if "--max-iters" in words else ("--max-iters", "1")), *words, env=env).code


def listing(repo: Repo) -> str:
    names = repo.sh("find . -path ./.git -prune -o -printf '%y %m %p\\n' | sort")
    return names + repo.sh("find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum")


MOVES = [
    "mv build archive",
    "mv build src/archive; echo new >src/archive/more; rm src/archive/1",
    "mv build src/pkg/build x; mkdir x; mv build src/pkg/build x.log x/; echo z >>src/a.py",
    "mv build old; mkdir -p build/data; echo new >build/data/1",
    "mv build old; ln -s src build; git add -fA; git commit -qm z",
    "mv src/pkg/build kept; rm -rf src; mv build src",
    "git mv src lib; git commit -qm z",
    "mv x.log a.txt; mv -f src/pkg/build run.sh.d; rm run.sh; mv run.sh.d run.sh",
    "mv build t; mv src/pkg/build build; mv t src/pkg/build; echo z >>src/a.py",
    "mkdir -p a/b; mv build a/b/; chmod 000 a/b; echo z >>src/a.py",
    "mv src/pkg/build build/; mv build b2",
]


@pytest.mark.parametrize("agent", MOVES)
def test_what_was_moved_comes_back(repo: Repo, agent: str) -> None:
    before = listing(repo)
    with_loss = "rm src/archive/1" in agent
    assert run(repo, agent) == 1
    if with_loss:  # what an attempt does in there stays
        assert (repo.root / "build/2").read_text() == "precious 2\n" and not (repo.root / "src/archive").exists()
    else:
        assert listing(repo) == before
    assert repo.events("rollback.finished")[-1]["data"]["left"] == ["build", "src/pkg/build", "x.log"]


@pytest.mark.parametrize("mode", ["stash", "none"])
def test_in_the_other_modes(repo: Repo, mode: str) -> None:
    before = listing(repo)
    code = run(repo, "mv build archive; echo z >>src/a.py", "false", "--rollback", mode)
    if mode == "none":
        assert code == 3 and (repo.root / "archive/1").exists()
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert listing(repo) == before


@pytest.mark.parametrize("point", ["iteration.codegen_done", "restore.before", "restore.moved", "restore.deleted", "restore.after"])
def test_after_a_kill(repo: Repo, point: str) -> None:
    before = listing(repo)
    agent = "mv build archive; cp archive/1 t; mv t archive/1; mkdir build; echo n >build/n; rm src/a.py"
    assert run(repo, agent, EVOLVER_CRASH_AT=point) == -signal.SIGKILL
    assert run(repo, "true") == 1
    assert listing(repo) == before


def test_over_the_budget_and_twice(repo: Repo) -> None:
    (repo.root / "loops/default.toml").write_text(f"{LOOP}ignored_files = 4\n")
    repo.sh("git commit -qam budget")
    before = listing(repo)
    assert run(repo, "mv build archive$EVOLVER_ITERATION; echo z >>src/a.py", "false", "--max-iters", "3") == 1
    assert listing(repo) == before


def test_a_validator_moves_it(repo: Repo) -> None:
    before = listing(repo)
    assert run(repo, "true", "mv build moved") == 1  # on the baseline
    assert listing(repo) == before
    assert run(repo, "mkdir new; echo n >new/n", "mkdir -p new; mv build src/pkg/build new/; false") == 1
    assert listing(repo) == before
    assert run(repo, "echo z >>src/a.py", "mv build moved; mkdir d; mv src/pkg/build d/; rm x.log; ln -s a x.log") == 0
    assert repo.sh("git status --porcelain; git show --format= --name-only") == "src/a.py\n"
    assert (repo.root / "build/data/1").exists() and (repo.root / "src/pkg/build/1").exists() and not (repo.root / "d").exists()


def test_a_passing_attempt_that_would_commit_it_is_rejected(repo: Repo) -> None:
    before, head = listing(repo), repo.head()
    assert run(repo, "mv build archive; echo z >>src/a.py", "true") == 1
    assert listing(repo) == before and repo.head() == head
    assert "'build', which is ignored" in repo.events("rollback.finished")[-1]["data"]["reason"]
    assert run(repo, "mv build src/build; echo z >>src/a.py", "true") == 0  # ignored there as well
    assert (repo.root / "src/build/1").exists() and repo.sh("git status --porcelain") == ""


def test_what_is_gone_is_named(repo: Repo) -> None:
    shutil.copytree(repo.root / "src/pkg/build", repo.root.parent / "copy")
    agent = "rm -rf build x.log src/pkg/build; ln -s src build; mkdir new; echo 1 >new/1; echo y >y.txt; cp -a ../copy src/pkg/build"
    (repo.root.parent / "agent").write_text(agent)
    (repo.root.parent / "judge").write_text("false")
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1 and "gone, as it was left out of the baseline: build, x.log" in done.text
    assert not (repo.root / "build").is_symlink() and not (repo.root / "new").exists() and not (repo.root / "y.txt").exists()
    left = repo.events("rollback.finished")[-1]["data"]["left"]
    assert {"build (gone)", "x.log (gone)"} < set(left) and left[1].startswith("src/pkg/build")
    before = listing(repo)
    assert run(repo, "mkdir build; echo o >build/o; mv src/pkg/build z", "false", "--max-iters", "2") == 1
    assert listing(repo) == before


def test_a_new_one_in_its_place_is_known_from_then_on(repo: Repo) -> None:
    """An accepted attempt built anew; the next one moves that."""
    agent = "if [ $EVOLVER_ITERATION = 1 ]; then mkdir b; echo new >b/1; rm -rf build; mv b build; echo z >>src/a.py; else mv build archive; fi"
    assert run(repo, agent, "test -e build", "--max-iters", "2") == 0
    assert (repo.root / "build/1").read_text() == "new\n" and not (repo.root / "archive").exists()


def test_a_link_in_its_place_that_is_accepted(repo: Repo) -> None:
    assert run(repo, "rm -rf build; ln -s src build", "true") == 0
    assert repo.sh("git show --format= --name-only; git status --porcelain") == "build\n"
    before = listing(repo)
    assert run(repo, "rm build; echo z >build") == 1
    assert listing(repo) == before
