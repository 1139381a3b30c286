"""The rollback mode selector, rule by rule, through the command line and with real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

CHANGE = "echo z >>src/a.py; echo new >new.txt; rm src/pkg/b.py"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def test_hard_is_the_default_and_leaves_nothing_of_the_attempt(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(CHANGE)
    assert done.code == 1, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.events("rollback.finished")[0]["data"]["rollback_mode"] == "hard"
    assert repo.sh("git stash list") == ""


def test_stash_keeps_the_attempt_for_review_and_entries_accumulate(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(CHANGE + "; date +%N >>new.txt", "false", "--rollback", "stash", "--max-iters", "2")
    assert done.code == 1, done.text
    after = Snapshot.of(repo.root)
    assert differences(before, after, stash=False) == []
    entries = repo.sh("git stash list --format=%H").split()
    assert len(entries) == 2
    names = repo.sh("git stash show -u --name-only stash@{0}").split()
    assert set(names) == {"src/a.py", "new.txt", "src/pkg/b.py"}
    assert [e["data"]["stash_ref"] for e in repo.events("rollback.finished")] == entries[::-1]


def test_none_leaves_the_tree_as_is_logs_and_aborts_the_loop(repo: Repo) -> None:
    done = repo.run(CHANGE, "false", "--rollback", "none", "--max-iters", "5")
    assert done.code == 3, done.text
    assert (repo.root / "new.txt").read_text() == "new\n"
    assert not (repo.root / "src/pkg/b.py").exists()
    assert [k for k in repo.kinds() if k.startswith("rollback.")] == ["rollback.skipped"]
    assert len(repo.events("iteration.started")) == 1


def test_the_mode_comes_from_the_environment_variable(repo: Repo) -> None:
    for mode, code in (("hard", 1), ("stash", 1), ("none", 3)):
        done = repo.run(CHANGE, env={"EVOLVER_ROLLBACK_MODE": mode})
        assert done.code == code, done.text
    assert repo.run(CHANGE, env={"EVOLVER_ROLLBACK_MODE": "soft"}).code == 2


def test_rule_record_the_pre_change_ref(repo: Repo) -> None:
    """An accepted iteration moves HEAD; the next one's target is the new HEAD, never the commit before."""
    count = "n=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) >../n; echo $n >>src/a.py; git commit -qam agent; echo dirt >>src/a.py"
    done = repo.run(count, "test $(cat ../n) != 2", "--max-iters", "2", "--no-breaker")
    assert done.code == 0, done.text
    first, second = repo.events("iteration.started")
    accepted = repo.events("iteration.accepted")[0]["data"]["commit"]
    assert second["data"]["pre_ref"] == accepted != first["data"]["pre_ref"]
    assert repo.head() == accepted
    assert repo.sh("git status --porcelain") == ""


def test_rule_include_untracked(repo: Repo) -> None:
    (repo.root / "mine.txt").write_text("mine")
    repo.run("mkdir -p deep/er; echo o >deep/er/orphan; echo changed >mine.txt")
    assert not (repo.root / "deep").exists()
    assert (repo.root / "mine.txt").read_text() == "mine"


def test_rule_clean_is_scoped_to_the_worktree(repo: Repo) -> None:
    beside = repo.root.parent / "beside.txt"
    repo.run(f"echo x >{beside}; echo z >>src/a.py")
    assert beside.read_text() == "x\n"


def test_rule_fail_loud_on_none(repo: Repo) -> None:
    """The loop refuses to go on until a person signals resume."""
    assert repo.run(CHANGE, "false", "--rollback", "none").code == 3
    held = Snapshot.of(repo.root)
    again = repo.run("touch ../started", "true")
    assert again.code == 3
    assert "resume" in again.err
    assert not (repo.root.parent / "started").exists()
    assert differences(held, Snapshot.of(repo.root)) == []
    assert repo.evolver("resume").code == 3
    assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert repo.run("true", "true").code == 1
    second = repo.evolver("resume")
    assert second.code == 0
    assert "nothing to resume" in second.out


def test_rule_never_push(repo: Repo, tmp_path: Path) -> None:
    """An attempt that was already pushed is rolled back here, stays there, and raises an alert."""
    repo.sh("git init -q --bare ../remote.git && git remote add origin ../remote.git && git push -q origin main")
    loop = repo.root / ".git" / "push.toml"
    loop.write_text(
        '[codegen]\ncommand = "echo z >>src/a.py; git commit -qam z; git push -q origin main"\n'
        '[[validator]]\nname = "no"\ncommand = "false"\n[guard]\npush = "allow"\n'
    )
    before = repo.head()
    done = repo.evolver("run", str(loop), "--max-iters", "1")
    assert done.code == 1, done.text
    assert repo.head() == before
    pushed = repo.sh("git -C ../remote.git rev-parse main").strip()
    assert pushed != before
    alerts = repo.events("alert.pushed_attempt")
    assert len(alerts) == 1
    assert pushed in alerts[0]["data"]["commits"]


@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_rule_tag_the_rollback_in_the_audit_log(repo: Repo, mode: str) -> None:
    before = repo.head()
    repo.run(CHANGE + "; git add -A; git commit -qm z", "false", "--rollback", mode)
    ended = [e for e in repo.events("rollback.") if not e["type"].endswith("started")]
    assert len(ended) == 1
    data = ended[0]["data"]
    assert data["rollback_mode"] == mode
    assert data["pre_ref"] == before
    assert data["post_ref"] not in (None, before)
    assert data["reason"]
    assert data["iteration_id"] == f"{ended[0]['runid']}/1"


def test_anti_pattern_checkout_dot_leaves_staged_deletions(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    repo.run("git rm -q src/pkg/b.py; echo s >staged; git add staged")
    assert differences(before, Snapshot.of(repo.root)) == []


def test_anti_pattern_stash_without_untracked(repo: Repo) -> None:
    repo.run("echo only >untracked-only", "false", "--rollback", "stash")
    assert repo.sh("git show 'stash@{0}^3:untracked-only'") == "only\n"
    assert not (repo.root / "untracked-only").exists()


def test_anti_pattern_rolling_back_over_two_pre_refs(repo: Repo) -> None:
    """Two accepted iterations, then a rejected one: only the last is undone."""
    step = "n=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) >../n; echo $n >>src/a.py"
    done = repo.run(step, "test $(cat ../n) != 3", "--max-iters", "3")
    assert done.code == 0, done.text
    commits = [e["data"]["commit"] for e in repo.events("iteration.accepted")]
    assert len(commits) == 2
    assert repo.sh("git log --format=%H -2").split() == commits[::-1]
    assert repo.events("rollback.finished")[0]["data"]["pre_ref"] == commits[1]


def test_stash_names_what_it_kept_of_an_attempt_that_left_nothing_to_commit(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("echo mine >notes.txt")
    assert repo.run("echo theirs >notes.txt", "true", "--rollback", "stash", "--dirty", "keep").code == 1
    (told,) = repo.events("iteration.no_change")
    assert told["data"]["stash_ref"] == repo.sh("git rev-parse stash@{0}").strip()
    assert (repo.root / "notes.txt").read_text() == "mine\n"
