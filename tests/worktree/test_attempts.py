"""Kept attempts: `evolver attempts list|show|apply|drop`, black box. What `apply` brings back equals what the agent left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from oracle import Snapshot
from support import Repo

AGENT = r"""
printf '1\n' >>src/a.py; rm src/pkg/b.py; chmod -x run.sh; chmod +x src/a.py
ln -sfn run.sh link; ln -s src newlink; mkdir -p deep/er empty; echo n >deep/er/new
printf x >"$(printf 'a\nb')"; printf y >"$(printf 'bad\377')"; echo q >'"q"'; echo d >-dash; echo m >':(exclude)m'
git add -A; git commit -qm one; echo two >two; git add two; git commit -qm two; echo more >>two; rm deep/er/new
echo loose >loose
"""


def paths(snapshot: Snapshot) -> dict[str, object]:
    return {k: v for k, v in snapshot.facts.items() if k.startswith("path ")}


def without_folders(facts: dict[str, object]) -> dict[str, object]:
    """git itself knows no empty folders."""
    return {k: v for k, v in facts.items() if isinstance(v, tuple) and v[0] != "dir"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "box" / "r")


def agent(repo: Repo, script: str) -> str:
    """A codegen command whose last act is to copy what it leaves."""
    file = repo.root.parent / "agent.sh"
    left = repo.root.parent / "left"
    file.write_text(f"{script}\nrm -rf {left}; cp -a . {left}\nexit 0\n")
    return f"sh {file}"


def left_by_agent(repo: Repo) -> dict[str, object]:
    return paths(Snapshot.of(repo.root.parent / "left"))


def test_round_trip_of_everything_a_stash_can_hold(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(agent(repo, AGENT), "false", "--rollback", "stash")
    assert done.code == 1, done.text
    assert paths(before) == paths(Snapshot.of(repo.root))
    listed = repo.evolver("attempts", "list", "--json")
    kept = [json.loads(line) for line in listed.out.splitlines()]
    assert len(kept) == 1 and kept[0]["ref"] == "stash"
    assert kept[0]["commit"] == repo.sh("git rev-parse stash@{0}").strip()
    shown = repo.evolver("attempts", "show", "last")
    assert "+loose" in shown.out and "deleted file mode 100644" in shown.out and "+more" in shown.out
    applied = repo.evolver("attempts", "apply", "last")
    assert applied.code == 0, applied.text
    assert left_by_agent(repo) == paths(Snapshot.of(repo.root))
    assert repo.sh("git diff --cached --name-only -z HEAD -- two deep").split("\0")[:2] == ["deep/er/new", "two"]


def test_stash_apply_of_git_itself_brings_the_same_back(repo: Repo) -> None:
    repo.run(agent(repo, AGENT.replace("mkdir -p deep/er empty", "mkdir -p deep/er")), "false", "--rollback", "stash")
    shown = repo.sh("git stash show -u --name-only -z").split("\0")
    assert {"loose", "two", "src/pkg/b.py", "run.sh"} <= set(shown)
    repo.sh("git stash apply -q --index")
    assert without_folders(left_by_agent(repo)) == without_folders(paths(Snapshot.of(repo.root)))


def test_apply_with_the_users_untracked_file_in_the_way(repo: Repo) -> None:
    (repo.root / "notes.txt").write_text("mine\n")
    (repo.root / "gone.txt").write_text("mine too\n")
    done = repo.run(agent(repo, "echo agent >>notes.txt; rm gone.txt; echo z >>src/a.py"), "false", "--rollback", "stash")
    assert done.code == 1, done.text
    assert (repo.root / "notes.txt").read_text() == "mine\n"
    applied = repo.evolver("attempts", "apply", "last")
    assert applied.code == 0, applied.text
    assert left_by_agent(repo) == paths(Snapshot.of(repo.root))
    ref = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/replaced").strip()
    assert repo.sh(f"git show {ref}:notes.txt") == "mine\n"
    assert repo.sh(f"git show {ref}:gone.txt") == "mine too\n"
    assert ref in applied.out


def test_apply_when_the_agent_committed_the_users_untracked_file(repo: Repo) -> None:
    (repo.root / "notes.txt").write_text("mine\n")
    repo.run(agent(repo, "echo agent >>notes.txt; git add -A; git commit -qm all"), "false", "--rollback", "stash")
    assert repo.sh("git status --porcelain") == "?? notes.txt\n"
    assert repo.evolver("attempts", "apply", "last").code == 0
    assert (repo.root / "notes.txt").read_text() == "mine\nagent\n"
    assert repo.sh("git status --porcelain") == "A  notes.txt\n"


def test_apply_refuses_a_dirty_tree_and_changes_nothing(repo: Repo) -> None:
    repo.run(agent(repo, "echo z >>src/a.py"), "false", "--rollback", "stash")
    (repo.root / "run.sh").write_text("#!/bin/sh\n# mine\n")
    before = Snapshot.of(repo.root)
    refused = repo.evolver("attempts", "apply", "last")
    assert refused.code == 5 and "uncommitted changes" in refused.err
    assert before.facts == Snapshot.of(repo.root).facts


def test_apply_merges_onto_a_later_head_or_changes_nothing(repo: Repo) -> None:
    repo.run(agent(repo, "echo z >>src/a.py; echo n >new"), "false", "--rollback", "stash")
    repo.sh("echo 2 >>src/pkg/b.py; git commit -qam later")
    assert repo.evolver("attempts", "apply", "last").code == 0
    assert (repo.root / "src/a.py").read_text().endswith("z\n") and (repo.root / "new").exists()
    repo.sh("git reset -q --hard; rm new; echo other >>src/a.py; git commit -qam conflict; echo mine >new")
    before = Snapshot.of(repo.root)
    refused = repo.evolver("attempts", "apply", "last")
    assert refused.code == 2 and "does not merge" in refused.err
    assert before.facts == Snapshot.of(repo.root).facts


def test_drop_finds_the_entry_by_its_commit_and_spares_the_users(repo: Repo) -> None:
    repo.sh("echo u1 >>src/a.py; git stash push -q -m mine-below")
    repo.run(agent(repo, "echo z >>src/a.py"), "false", "--rollback", "stash")
    repo.sh("echo u2 >>src/a.py; git stash push -q -m 'evolver looks alike'")
    users = [line for line in repo.sh("git stash list --format='%H %s'").splitlines() if "evolver 0" not in line]
    assert repo.evolver("attempts", "drop", "last").code == 0
    assert repo.sh("git stash list --format='%H %s'").splitlines() == users
    assert repo.evolver("attempts", "drop", "last").code == 2


def test_keep_attempts_keeps_bounded_private_refs_in_hard(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(
        '[loop]\nmax_iters = 5\n[codegen]\ncommand = "echo $EVOLVER_ITERATION >>src/a.py"\n'
        '[[validator]]\nname = "no"\ncommand = "false"\n[rollback]\nkeep_attempts = 2\n'
    )
    repo.sh("git add -A; git commit -qm loop; git stash list; echo s >>run.sh; git stash -q")
    done = repo.evolver("run", "--no-breaker")
    assert done.code == 1, done.text
    kept = [json.loads(line) for line in repo.evolver("attempts", "list", "--json").out.splitlines()]
    assert [k["iteration_id"].rpartition("/")[2] for k in kept] == ["5", "4"]
    assert "+4" in repo.evolver("attempts", "show", "4").out
    assert len(repo.sh("git stash list").splitlines()) == 1  # the user's own
    assert repo.sh("git status --porcelain") == ""
    assert repo.evolver("attempts", "apply", "5").code == 0
    assert (repo.root / "src/a.py").read_text().endswith("5\n")


def test_hard_leaves_nothing_by_default(repo: Repo) -> None:
    repo.run(agent(repo, AGENT), "false")
    assert repo.evolver("attempts", "list").out.startswith("no attempts are kept")
    refs = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/attempts")
    assert refs == "" and subprocess.run(["git", "stash", "list"], cwd=repo.root, capture_output=True).stdout == b""
