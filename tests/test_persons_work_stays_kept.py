"""What a person made after a crash or during a hold is kept whole when it is rolled back, is named, and stays until it is dropped."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from oracle import Snapshot, differences
from support import Repo

LOOP = """\
[codegen]
command = "echo $EVOLVER_RUN_ID$EVOLVER_ITERATION >>src/a.py"
[[validator]]
name = "v"
command = "false"
[breaker]
same_failure = 0
[rollback]
keep_attempts = 1
"""
BESIDES = (
    "git stash -q && git stash apply -q && git notes add -m mine HEAD && git update-ref refs/custom/mine $(echo c | git commit-tree HEAD^{tree})"
    " && git branch topic $(echo t | git commit-tree HEAD^{tree}) && git remote add theirs /nowhere && git update-index --chmod=+x src/a.py"
    " && printf '#!/bin/sh\\necho hook\\n' >.git/hooks/pre-push && chmod +x .git/hooks/pre-push"
)
NOTES = " && git notes"
REFS = ("stash", "refs/notes/commits", "refs/custom/mine", "refs/heads/topic")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def with_loop(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(LOOP)
    repo.sh("git add loops && git commit -qm loop")


def hold(repo: Repo, codegen: str = "echo x >>src/a.py") -> None:
    assert repo.run(codegen, "false", "--rollback", "none").code == 3


def attempts(repo: Repo) -> list[dict[str, Any]]:
    return [json.loads(line) for line in repo.evolver("attempts", "list", "--json").out.splitlines()]


def reachable(repo: Repo, commit: str) -> bool:
    return "refs/evolver/attempts/" in repo.sh(f"git for-each-ref --contains {commit}")


def test_retention_by_number_passes_over_what_recovery_kept(repo: Repo) -> None:
    with_loop(repo)
    assert repo.evolver("run", "--max-iters", "1", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    repo.sh("git checkout -qb mine && echo person >>src/pkg/b.py && git commit -qam person && echo more >>src/pkg/b.py && echo i >p.log")
    made = repo.head()
    assert repo.evolver("run", "--max-iters", "3").code == 1
    kept = attempts(repo)
    assert [a["for_person"] for a in kept] == [False, True]  # of three failed attempts one is left, as asked for
    assert reachable(repo, made)
    assert repo.sh(f"git show {kept[1]['commit']}:src/pkg/b.py") == "b\nperson\nmore\n"
    assert repo.evolver("attempts", "list").out.count("may hold a person's work") == 1
    assert repo.evolver("attempts", "drop", kept[1]["commit"]).code == 0
    assert [a["for_person"] for a in attempts(repo)] == [False]
    assert not reachable(repo, made)


def test_retention_by_number_passes_over_what_resume_kept(repo: Repo) -> None:
    with_loop(repo)
    hold(repo)
    (repo.root / "src/pkg/b.py").write_text("person\n")
    assert repo.evolver("resume", "--rollback", "stash").code == 0
    before = [a["ref"] for a in attempts(repo)]
    assert len(before) == 2 and "stash" in before
    assert repo.evolver("run", "--max-iters", "2").code == 1
    kept = attempts(repo)
    assert before == [a["ref"] for a in kept if a["for_person"]] and len(kept) == len(before) + 1


def test_ignored_files_written_during_a_hold(repo: Repo) -> None:
    (repo.root / "secret.log").write_text("old\n")
    before = Snapshot.of(repo.root)
    hold(repo)
    big = b"\1" * 3_000_000
    repo.sh("echo person >secret.log; echo note >todo.log; mkdir -p build/deep; echo built >build/deep/n")
    (repo.root / "build/big").write_bytes(big)
    done = repo.evolver("resume", "--rollback", "stash")
    assert done.code == 0, done.text
    assert repo.sh("git stash show --name-only -u").split() == ["src/a.py"]
    repo.sh("git stash drop -q")
    assert differences(before, Snapshot.of(repo.root)) == []
    data = repo.events("rollback.finished")[-1]["data"]
    assert (Path(data["copies"]) / "worktree/build/big").read_bytes() == big
    assert data["copies"] in done.out
    command = next(line.strip() for line in done.out.splitlines() if line.strip().startswith("evolver attempts apply "))
    assert repo.evolver(*command.split()[1:]).code == 0  # as it is printed
    assert (repo.root / "secret.log").read_text() == "person\n"
    assert (repo.root / "todo.log").read_text() == "note\n"
    assert (repo.root / "build/deep/n").read_text() == "built\n"


@pytest.mark.parametrize("mode", ["hard", "stash"])
def test_nothing_but_refs_index_and_configuration_changed_during_a_hold(repo: Repo, mode: str) -> None:
    before = Snapshot.of(repo.root)
    hold(repo)
    held = Snapshot.of(repo.root)
    repo.sh(BESIDES)
    assert {k for k in held.facts if k.startswith("path ")} == {k for k in Snapshot.of(repo.root).facts if k.startswith("path ")}
    made = repo.sh(f"git rev-parse {' '.join(REFS)}").split()
    seen = repo.evolver("resume").out
    told = seen[seen.index("changed since the agent had finished") :]
    for name in ("refs/notes/commits", "refs/custom/mine", "refs/stash", "control file config", "control file hooks/pre-push", "the index"):
        assert name in told
    done = repo.evolver("resume", "--rollback", mode)
    assert done.code == 0, done.text
    if mode == "stash":
        repo.sh("git stash drop -q")
    assert differences(before, Snapshot.of(repo.root)) == []
    assert all(reachable(repo, commit) for commit in made)
    assert "/notes/commits" in done.out
    control = Path(repo.events("rollback.finished")[-1]["data"]["copies"]) / "control"
    bodies = [file.read_text() for file in control.iterdir()]
    assert any("/nowhere" in body for body in bodies) and any("echo hook" in body for body in bodies)


def test_every_ref_made_after_a_crash(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    assert repo.run("echo x >y", "true", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    repo.sh(f"git notes{BESIDES.partition(NOTES)[2]}; git replace --graft HEAD")
    made = repo.sh(f"git rev-parse {' '.join(REFS[1:])} $(git for-each-ref --format='%(refname)' refs/replace)").split()
    done = repo.evolver("resume")
    assert done.code == 0, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert all(reachable(repo, commit) for commit in made)
    below = repo.sh("git for-each-ref --format='%(refname)' 'refs/evolver/attempts/**/notes/commits'").strip()
    assert below.removesuffix("notes/commits") in done.out


def test_a_hold_that_nobody_touched_keeps_no_more_than_the_mode_says(repo: Repo) -> None:
    hold(
        repo,
        "echo x >>src/a.py; git add -A; git commit -qm agent; git config some.thing 1; git branch theirs; git notes add -m n; echo e >.git/hooks/e;"
        " echo y >>src/a.py; git add src/a.py; echo log >agent.log",
    )
    repo.sh("git status && git log -1 && git diff")  # a person looks
    assert "changed since" not in repo.evolver("resume").out
    done = repo.evolver("resume", "--rollback", "stash")
    assert done.code == 0 and "evolver attempts apply" not in done.out
    assert [a["ref"] for a in attempts(repo)] == ["stash"]


def test_copies_of_a_linked_worktree_are_found_from_every_worktree(repo: Repo) -> None:
    repo.sh("git worktree add -q ../wt -b w")
    linked = Repo(repo.root.parent / "wt")
    linked.sh("git init -q nest && cd nest && echo 1 >f && git add f && git commit -qm n1")
    assert linked.run("echo x >>src/a.py; cd nest; echo 2 >f; git commit -qam agent", "false", "--rollback", "stash").code == 1
    here, there = linked.evolver("attempts", "show", "last").out, repo.evolver("attempts", "show", "last").out
    assert here == there and "worktree/nest/f" in there
    folder = Path(next(line.rpartition(": ")[2] for line in there.splitlines() if line.startswith("# copies")))
    assert folder.is_dir()
    assert str(folder) in repo.evolver("attempts", "apply", "last").out
    assert repo.evolver("attempts", "drop", "last").code == 0
    assert not folder.exists()


def test_going_on_with_a_loop_that_has_no_file_is_refused_before_anything_is_restored(repo: Repo) -> None:
    hold(repo)
    before = Snapshot.of(repo.root)
    done = repo.evolver("resume", "--rollback", "stash", "--run")
    assert done.code == 2 and "--run" in done.err
    assert differences(before, Snapshot.of(repo.root)) == []
    assert (repo.root / ".git/evolver/resume.lock").exists()
    assert repo.evolver("resume", "--rollback", "stash").code == 0
