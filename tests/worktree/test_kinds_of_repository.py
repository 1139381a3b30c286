"""Every kind of repository, with a user's dirty work in it, through the command line: restored, or refused before the agent starts.

Shows: subdirectory, linked worktree, submodule, nested repository, sparse, shallow and partial clone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Done, Repo

# What a user has open: an edit, something staged and edited again, intent to add, untracked, ignored, an empty folder, a stash.
DIRTY = (
    "echo stashed >>src/a.py; git stash -q; echo edit >>src/pkg/b.py; echo s1 >staged; git add staged; echo s2 >>staged; "
    "echo later >later; git add -N later; echo mine >notes; echo l >x.log; mkdir -p build/deep empty/in; echo o >build/deep/o; "
    "chmod 600 x.log; rm -f link"
)
AGENT = (
    "echo z >>src/a.py; git commit -qam z; rm -rf src/pkg build notes empty; echo x >staged; git add -A; git commit -qm all; "
    "git branch agents; git tag agents; git stash clear; git config a.b c; mkdir -p n/m; echo n >n/m/n; chmod 644 x.log; "
    "git checkout -q -b off; echo tail >>run.sh"
)
MODES = ["hard", "stash", "none"]


def roll_back(repo: Repo, mode: str, agent: str, *words: str, cwd: str = ".", code: int = 1) -> Done:
    """One failing iteration in `mode`; in none a person then rolls it back."""
    started = repo.root.parent / f"started-{mode}"
    done = repo.run(f"touch '{started}'; {agent}", "false", "--dirty", "keep", "--rollback", mode, *words, cwd=cwd)
    assert started.exists(), done.text
    started.unlink()
    if mode != "none":
        assert done.code == code, done.text
        return done
    assert done.code == 3, done.text
    resumed = repo.evolver("resume", "--rollback", "hard", *words, cwd=cwd)
    assert resumed.code == 0, resumed.text
    return resumed


def check(repo: Repo, before: Snapshot, mode: str, *others: tuple[Path, Snapshot]) -> None:
    if mode == "stash":
        assert "evolver" in repo.sh("git stash list -1")
        repo.sh("git stash drop -q")
    assert differences(before, Snapshot.of(repo.root)) == []
    for folder, was in others:
        assert differences(was, Snapshot.of(folder)) == [], folder


def modes(agents: list[str], agent: str) -> list[str]:
    """One mode for each of several agents in turn: all three agents times all three modes would take minutes."""
    return [MODES[agents.index(agent) % len(MODES)]]


def every_mode(repo: Repo, agent: str, *words: str, cwd: str = ".", others: tuple[Path, ...] = ()) -> None:
    before, beside = Snapshot.of(repo.root), tuple((f, Snapshot.of(f)) for f in others)
    for mode in MODES:
        roll_back(repo, mode, agent, *words, cwd=cwd)
        check(repo, before, mode, *beside)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other HEAD~1")
    return repo


def test_a_plain_repository_with_dirty_work(repo: Repo) -> None:
    repo.sh(DIRTY)
    every_mode(repo, AGENT)


# ------------------------------------------------------------ subdirectory

PACKAGES = (
    "mkdir -p packages/api/in packages/web; echo api >packages/api/api.py; echo web >packages/web/web.py; git add packages; "
    "git commit -qm packages"
)
OUTSIDE = (
    "rm -f ../web/mine; echo z >>../web/web.py; echo z >>api.py; echo new >../new; rm -rf ../../src; git add -A ../..; "
    "git commit -qm outside; echo more >>../../run.sh; rm -rf in"
)


def test_in_a_subdirectory_what_the_attempt_did_outside_is_restored_too(repo: Repo) -> None:
    repo.sh(PACKAGES)
    repo.sh(DIRTY + "; echo mine >packages/web/mine; echo mine >packages/api/mine; echo e >>packages/web/web.py")
    before = Snapshot.of(repo.root)
    for mode in MODES:
        roll_back(repo, mode, f"cd packages/api 2>/dev/null; {OUTSIDE}", "-C", "packages/api")
        check(repo, before, mode)


def test_started_from_inside_a_subdirectory(repo: Repo) -> None:
    repo.sh(PACKAGES)
    repo.sh(DIRTY + "; echo mine >packages/web/mine")
    before = Snapshot.of(repo.root)
    for mode in MODES:
        roll_back(repo, mode, f'cd "$(git rev-parse --show-toplevel)/packages/api"; {OUTSIDE}', cwd="packages/api")
        check(repo, before, mode)


def test_loop_scope(repo: Repo) -> None:
    repo.sh(PACKAGES)
    repo.sh("mkdir -p loops")
    (repo.root / "loops/default.toml").write_text(
        '[loop]\nscope = "packages/api"\n[codegen]\ncommand = '
        + json.dumps(f'cd "$(git rev-parse --show-toplevel)/packages/api"; {OUTSIDE}')
        + '\n[[validator]]\nname = "no"\ncommand = "false"\n'
    )
    repo.sh("git add loops; git commit -qm loop")
    repo.sh(DIRTY + "; echo mine >packages/web/mine")
    before = Snapshot.of(repo.root)
    for mode in MODES:
        done = repo.evolver("run", "--max-iters", "1", "--dirty", "keep", "--rollback", mode)
        assert done.code == (3 if mode == "none" else 1), done.text
        if mode == "none":
            assert repo.evolver("resume", "--rollback", "hard").code == 0
        check(repo, before, mode)


# ------------------------------------------------------------ linked worktree


def test_a_linked_worktree_leaves_the_main_one_alone(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git worktree add -q -b side ../side")
    repo.sh("echo main-dirt >>src/a.py; echo main-untracked >m; echo st >st; git add st")
    side = Repo(tmp_path / "side")
    side.sh(DIRTY)
    every_mode(side, AGENT, others=(repo.root,))


def test_the_main_worktree_leaves_a_linked_one_alone(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git worktree add -q -b side ../side")
    side = Repo(tmp_path / "side")
    side.sh("echo dirt >>src/a.py; echo u >u; git stash -q; echo st >st; git add st")
    repo.sh(DIRTY)
    agent = AGENT + "; git worktree add -q -b theirs ../theirs; git worktree remove --force ../theirs"
    every_mode(repo, agent, others=(side.root,))


def test_a_linked_worktree_inside_the_main_one(repo: Repo) -> None:
    repo.sh("git worktree add -q -b side build/side; echo dirt >>build/side/src/a.py; echo u >build/side/u")
    repo.sh("echo edit >>src/pkg/b.py; echo mine >notes")
    side, before = repo.root / "build/side", Snapshot.of(repo.root)
    every_mode(repo, "rm -rf build; echo z >>src/a.py; git commit -qam z", others=(side,))
    # One that stands is somebody else's, whoever wrote in it (test_other_worktrees.py): what changed there is not put back.
    repo.sh(f"cp -a {side} ../copy")
    roll_back(repo, "hard", "echo z >>build/side/src/a.py; rm build/side/u; echo z >>src/a.py; git commit -qam z")
    assert "z" in (side / "src/a.py").read_text()
    repo.sh(f"cp -a ../copy/u ../copy/src {side}")
    assert differences(before, Snapshot.of(repo.root)) == []


# ------------------------------------------------------------ submodule, nested repository

INNER = "echo s >s; git add .; git commit -qm s; echo t >>s; git commit -qam t"


def test_a_submodule_with_dirt_inside(repo: Repo) -> None:
    repo.sh(f"git init -q ../sub; (cd ../sub; {INNER})")
    repo.sh("git -c protocol.file.allow=always submodule --quiet add ../sub sm; git commit -qm sm")
    repo.sh("cd sm; echo dirt >>s; echo st >st; git add st; echo u >u; git tag mine; mkdir e; git config user.x y")
    repo.sh(DIRTY)
    agents = [
        "cd sm; git commit -qam agents; git tag -d mine; git checkout -q HEAD~2; rm -f u; git config user.x z; cd ..; git add sm",
        "git submodule --quiet deinit -f sm; rm -rf .git/modules; echo z >>src/a.py; git commit -qam z",
        "rm -rf sm; git rm -q --cached sm; git commit -qm gone",
        "git submodule --quiet foreach 'git reset -q --hard; git clean -fdxq'; git submodule --quiet update --force; echo z >>src/a.py",
    ]
    before, inner = Snapshot.of(repo.root), Snapshot.of(repo.root / "sm")
    for agent in agents:
        for mode in modes(agents, agent):
            roll_back(repo, mode, agent)
            check(repo, before, mode, (repo.root / "sm", inner))


def test_inside_a_submodule(repo: Repo) -> None:
    repo.sh(
        f"git init -q ../sub; (cd ../sub; {INNER}; mkdir -p src/pkg; echo a >src/a.py; echo b >src/pkg/b.py; echo r >run.sh; "
        "printf '*.log\\nbuild/\\n' >.gitignore; ln -s s link; git add .; git commit -qm u; git branch other HEAD~1)"
    )
    repo.sh("git -c protocol.file.allow=always submodule --quiet add ../sub sm; git commit -qm sm; echo outer >>src/a.py")
    sub = Repo(repo.root / "sm")
    sub.sh(DIRTY)
    before, outer = Snapshot.of(sub.root), Snapshot.of(repo.root)
    for mode in MODES:
        roll_back(sub, mode, AGENT)
        check(sub, before, mode, (repo.root, outer))


def test_a_nested_repository_with_its_own_refs_index_and_hooks(repo: Repo) -> None:
    repo.sh(
        f"mkdir -p deep/lib; cd deep/lib; git init -q; {INNER}; git tag mine; echo dirt >>s; echo st >st; git add st; "
        "echo u >u; printf '#!/bin/sh\\n' >.git/hooks/pre-push; chmod 700 .git/hooks/pre-push; echo stash >>s; git stash -q; "
        "echo dirt >>s; mkdir e"
    )
    repo.sh("mkdir -p build/ign; cd build/ign; git init -q; echo i >i; git add i; git commit -qm i; echo d >>i")
    repo.sh(DIRTY)
    agents = [
        "cd deep/lib; git add -A; git commit -qm agents; git tag -d mine; git checkout -q -b x; git stash clear; "
        "rm .git/hooks/pre-push; git config a.b c; cd ../..; echo z >>src/a.py",
        "rm -rf deep/lib/.git; git add -A; git commit -qm swallowed",
        "rm -rf deep build; echo z >>src/a.py",
        "cd build/ign; git reset -q --hard; git reflog expire --expire=now --all; git gc -q --prune=now; git tag t; cd ../..; "
        "cd deep/lib; git reset -q --hard; git gc -q --prune=now; touch .git/index.lock; echo z >../../z",
    ]
    nested = [repo.root / "deep/lib", repo.root / "build/ign"]
    before, inner = Snapshot.of(repo.root), [(f, Snapshot.of(f)) for f in nested]
    for agent in agents:
        for mode in modes(agents, agent):
            roll_back(repo, mode, agent)
            check(repo, before, mode, *inner)


# ------------------------------------------------------------ sparse, shallow, partial


@pytest.mark.parametrize("how", ["--cone", pytest.param("--cone --sparse-index", marks=pytest.mark.nightly), "--no-cone"])
def test_a_sparse_checkout(repo: Repo, how: str) -> None:
    repo.sh("mkdir -p docs/in; echo d >docs/d; echo e >docs/in/e; git add .; git commit -qm docs")
    repo.sh(f"git sparse-checkout set {how} src")
    repo.sh(
        "echo edit >>src/pkg/b.py; echo st >src/st; git add src/st; echo u >u; mkdir -p docs; echo mine >docs/mine; mkdir empty"
    )
    agents = [
        "git sparse-checkout disable; echo z >>src/a.py; echo z >>docs/d; git commit -qam z",
        "git sparse-checkout set docs; echo z >>docs/d; git add -A; git commit -qm z; rm -f u",
        "git add -A --sparse; git commit -qm swallowed; git checkout -q other; git clean -fdxq",
    ]
    before = Snapshot.of(repo.root)
    for agent in agents:
        for mode in modes(agents, agent):
            roll_back(repo, mode, agent)
            check(repo, before, mode)


def cloned(repo: Repo, tmp_path: Path, *flags: str) -> Repo:
    repo.sh("for i in 1 2 3; do echo $i >>src/a.py; git commit -qam $i; done; git config uploadpack.allowFilter true")
    repo.sh(f"git clone -q {' '.join(flags)} file://{repo.root} ../clone")
    clone = Repo(tmp_path / "clone")
    clone.sh("git branch other HEAD~1")
    clone.sh(DIRTY)
    return clone


def test_a_shallow_clone(repo: Repo, tmp_path: Path) -> None:
    clone = cloned(repo, tmp_path, "--depth", "2")
    every_mode(clone, AGENT)
    deepening = [
        "git fetch -q --unshallow; echo z >>src/a.py; git commit -qam z; git gc -q --prune=now",
        "git fetch -q --depth 1; echo z >>src/a.py; rm -rf src/pkg",
    ]
    before = Snapshot.of(clone.root)
    for agent in deepening:
        for mode in modes(deepening, agent):
            roll_back(clone, mode, agent)
            check(clone, before, mode)


@pytest.mark.parametrize("what", ["blob:none", pytest.param("tree:0", marks=pytest.mark.nightly)])
def test_a_partial_clone(repo: Repo, tmp_path: Path, what: str) -> None:
    clone = cloned(repo, tmp_path, f"--filter={what}")
    every_mode(clone, AGENT)
    before = Snapshot.of(clone.root)
    roll_back(clone, "hard", "git log -p -3 >log.txt; git checkout -q HEAD~2; echo z >>src/a.py; git gc -q")
    check(clone, before, "hard")


def test_a_partial_clone_whose_promisor_is_gone_is_restored_or_refused(repo: Repo, tmp_path: Path) -> None:
    clone = cloned(repo, tmp_path, "--filter=blob:none")
    repo.root.rename(tmp_path / "moved-away")
    before = Snapshot.of(clone.root)
    started = tmp_path / "started"
    agent = f"touch '{started}'; rm -rf src; echo z >>run.sh; git add -A; git commit -qm z; rm -f notes"
    done = clone.run(agent, "false", "--dirty", "keep")
    assert done.code in (1, 5), done.text
    if done.code == 5:
        assert not started.exists()
    assert differences(before, Snapshot.of(clone.root)) == []


def test_dirty_work_is_refused_by_default_before_the_agent_starts(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git worktree add -q -b side ../side")
    repo.sh(f"git init -q ../sub; (cd ../sub; {INNER})")
    repo.sh("git -c protocol.file.allow=always submodule --quiet add ../sub sm; git commit -qm sm")
    for place in (repo.root, tmp_path / "side"):
        (place / "src/a.py").write_text("edited\n")
        here, before = Repo(place), Snapshot.of(place)
        done = here.run(f"touch {tmp_path / 'started'}", "true")
        assert done.code == 5, done.text
        assert not (tmp_path / "started").exists()
        assert differences(before, Snapshot.of(place)) == []
