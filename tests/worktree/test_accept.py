"""Acceptance: one commit whose tree is what was validated; everything else as the user had it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from evolver.worktree.values import Accepted
from evolver.worktree.workspace import AcceptRefused
from worktree.scene import Scene, Trial

MESSAGE = "accepted\n\nEvolver-Run: r\nEvolver-Iteration: 01900000-0000-7000-8000-000000000000/1\n"


def accept(trial: Trial, how: str = "squash", *, hooks: bool = False) -> Accepted:
    trial.workspace.settle(trial.baseline, trial.attempt)
    return trial.workspace.accept(
        trial.baseline, trial.attempt, message=MESSAGE, commits="keep" if how == "keep" else "squash", hooks=hooks
    )


def listed(scene: Scene, commit: str = "HEAD") -> set[str]:
    return set(scene.sh(f"git ls-tree -r --name-only {commit}").splitlines())


def test_edits_additions_deletions_modes_and_links_are_one_commit(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path)
    pre = scene.sh("git rev-parse HEAD").strip()
    trial = scene.attempt(
        "echo z >>src/a.py; rm src/pkg/b.py; chmod -x run.sh; ln -sfn run.sh link; mkdir -p n/m; echo n >n/m/n; "
        "echo q >\"$(printf 'a\\nb')\"; echo i >x.log; ln -s n newlink"
    )
    done = accept(trial)
    assert scene.sh("git rev-parse HEAD HEAD~1").split() == [done.commit, pre]
    assert scene.sh("git status --porcelain --untracked-files=all") == ""
    assert scene.sh("git show -s --format=%B").startswith("accepted") and "Evolver-Iteration" in scene.sh("git show -s --format=%B")
    assert "src/pkg/b.py" not in listed(scene) and {"n/m/n", "newlink"} <= listed(scene) and "x.log" not in listed(scene)
    assert scene.sh("git ls-tree HEAD run.sh link").split()[0::4] == ["120000", "100644"]
    assert (scene.root / "x.log").exists()


def test_the_agents_commits_are_squashed_or_kept_below(tmp_path: Path) -> None:
    agent = "echo 1 >one; git add one; git commit -qm one; git checkout -q -b side; echo 2 >two; git add two; git commit -qm two; echo 3 >three"
    for how, count in (("squash", 1), ("keep", 3)):
        scene = Scene.make(tmp_path / how)
        trial = scene.attempt(agent)
        assert trial.attempt.commit_subjects == ("one", "two")
        done = accept(trial, how)
        assert scene.sh("git symbolic-ref HEAD").strip() == "refs/heads/main"
        assert len(scene.sh(f"git rev-list {trial.baseline.pre_ref}..HEAD").split()) == count
        assert {"one", "two", "three"} <= listed(scene) and scene.sh("git status --porcelain") == ""
        assert scene.sh("git for-each-ref --format='%(refname)' refs/heads").split() == ["refs/heads/main", "refs/heads/other"]
        assert done.squashed == (trial.attempt.commits if how == "squash" else ())


def test_the_users_untracked_files_stay_untracked_and_their_bytes_are_kept(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "echo mine >notes; echo d >drop")
    trial = scene.attempt("echo agent >>notes; rm drop; git add -A; git commit -qm all; echo z >>src/a.py")
    done = accept(trial)
    assert scene.sh("git status --porcelain") == "?? notes\n"
    assert done.user_files == (b"drop", b"notes") and (scene.root / "notes").read_text() == "mine\nagent\n"
    trial.workspace.release()
    vault = scene.root / ".git/evolver/vault"
    kept = vault.joinpath("kept.jsonl").read_text()
    assert '"path":"notes"' in kept
    bodies = {p.read_bytes() for p in vault.glob("objects/*/*")}
    assert bodies == {b"mine\n", b"d\n"}


def test_the_target_of_the_users_untracked_link_is_kept(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "ln -s src/foo mine; ln -s - dash")
    trial = scene.attempt("ln -sfn other mine; rm dash; ln -s - new; echo z >>src/a.py")
    done = accept(trial)
    assert done.user_files == (b"dash", b"mine") and done.paths == (b"new", b"src/a.py")
    trial.workspace.release()
    bodies = {p.read_bytes() for p in (scene.root / ".git/evolver/vault").glob("objects/*/*")}
    assert bodies == {b"src/foo", b"-"}


@pytest.mark.parametrize(
    ("setup", "agent"),
    [
        ("echo draft >>src/a.py", "echo z >>src/pkg/b.py; git add -A; git commit -qm all; git reset -q --soft HEAD~; git commit -qm again"),
        ("echo mine >notes", "echo z >>src/a.py; git add -A; git commit -qm all; git rm -q --cached notes; git commit -qm less"),
    ],
    ids=["edits", "untracked"],
)
def test_commits_that_hold_the_users_uncommitted_work_are_not_kept(tmp_path: Path, setup: str, agent: str) -> None:
    scene = Scene.make(tmp_path, setup)
    trial = scene.attempt(agent)
    with pytest.raises(AcceptRefused) as refused:
        accept(trial, "keep")
    assert "uncommitted work of yours" in refused.value.reason
    assert trial.reject().equal and scene.wrong() == []
    accept(scene.attempt("echo z >>src/pkg/b.py; git add src/pkg/b.py; git commit -qm only"), "keep")
    assert scene.sh("git log -2 --format=%s").split() == ["accepted", "only"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_what_git_log_shows_the_user_does_not_get_into_a_message(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "git config log.showSignature true; git config gpg.format ssh; git config format.pretty oneline")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    trial = scene.attempt(f"echo 1 >one; git add one; git -c user.signingKey='{key}.pub' commit -q -S -m 'one: a subject'")
    assert trial.attempt.commit_subjects == ("one: a subject",)
    assert trial.attempt.commits == (scene.sh("git rev-parse HEAD").strip(),)


def test_uncommitted_work_of_the_user_stays_and_is_not_committed(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "echo st >st; git add st; echo w >>st; echo e >>run.sh; git update-index --skip-worktree src/pkg/b.py")
    before = scene.sh("git status --porcelain; git diff; git diff --cached; git ls-files -v")
    accept(scene.attempt("echo z >>src/a.py; echo n >n"))
    assert scene.sh("git status --porcelain; git diff; git diff --cached; git ls-files -v | grep -v ' n$'") == before
    assert scene.sh("git show --name-only --format= HEAD").split() == ["n", "src/a.py"]


@pytest.mark.parametrize("touch", ["echo z >>run.sh", "rm st", "git checkout -q -- run.sh", "echo z >>src/pkg/b.py"])
def test_an_attempt_that_touches_the_users_uncommitted_work_is_refused(tmp_path: Path, touch: str) -> None:
    scene = Scene.make(
        tmp_path, "echo st >st; git add st; echo e >>run.sh; git update-index --assume-unchanged src/pkg/b.py; echo u >>src/pkg/b.py"
    )
    trial = scene.attempt(f"{touch}; echo z >>src/a.py")
    with pytest.raises(AcceptRefused) as refused:
        accept(trial)
    assert "uncommitted changes of yours" in refused.value.reason
    assert trial.reject().equal and scene.wrong() == []


def test_droppings_of_validators_go_and_what_they_altered_comes_back(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "echo mine >notes")
    trial = scene.attempt("echo z >>src/a.py; mkdir new; echo n >new/n")
    scene.sh("echo junk >report.xml; mkdir -p out/deep; echo o >out/deep/o; echo cover >.coverage.log; echo bad >>src/a.py; "
             "rm new/n; echo bad >>src/pkg/b.py; echo bad >>notes; chmod 600 run.sh")
    trial.workspace.guard_control(trial.baseline)
    named = trial.workspace.settle(trial.baseline, trial.attempt)
    assert {"report.xml", "out", "src/a.py", "new/n", "src/pkg/b.py", "notes", "run.sh"} <= set(named)
    accept(trial)
    assert scene.sh("git status --porcelain --untracked-files=all") == "?? notes\n"
    assert (scene.root / "notes").read_text() == "mine\n" and (scene.root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (scene.root / "src/a.py").read_text() == "a\nc\nz\n" and (scene.root / ".coverage.log").exists()
    assert (scene.root / "new/n").read_text() == "n\n" and (scene.root / "src/pkg/b.py").read_text() == "b\n"


def test_other_refs_config_hooks_and_stashes_are_put_back(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "git tag v1; echo s >>run.sh; git stash -q")
    trial = scene.attempt("git tag -d v1; git branch x; git branch -D other; git stash drop -q; git config a.b c; echo z >>src/a.py")
    accept(trial)
    wrong = [w for w in scene.wrong() if not any(k in w for k in ("HEAD commit", "src/a.py", "git index", "worktrees"))]
    assert len(wrong) == 1 and wrong[0].startswith("git refs")  # main moved; nothing else did
    assert scene.sh("git for-each-ref --format='%(refname:short)' refs/heads refs/tags").split() == ["main", "other", "v1"]


def test_a_forced_ignored_file_and_a_file_taken_out_of_the_index(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path)
    accept(scene.attempt("mkdir build; echo k >build/keep; git add -f build/keep; git rm -q --cached run.sh; echo run.sh >>.gitignore"))
    assert "build/keep" in listed(scene) and "run.sh" not in listed(scene) and (scene.root / "run.sh").exists()
    assert scene.sh("git status --porcelain") == ""


def test_filters_and_line_ends_of_the_user_apply(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "printf '*.txt text eol=crlf\\n' >.gitattributes; printf 'a\\r\\n' >t.txt; git add -A; git commit -qm t")
    accept(scene.attempt("printf 'a\\r\\nb\\r\\n' >t.txt; printf 'n\\r\\n' >n.txt"))
    assert scene.sh("git show HEAD:t.txt") == "a\nb\n" and scene.sh("git show HEAD:n.txt") == "n\n"
    assert scene.sh("git status --porcelain") == "" and (scene.root / "t.txt").read_bytes() == b"a\r\nb\r\n"


def test_a_branch_that_moved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path)
    trial = scene.attempt("echo z >>src/a.py")
    scene.sh("git commit -q --allow-empty -m somebody-elses")
    theirs = scene.sh("git rev-parse HEAD").strip()
    with pytest.raises(AcceptRefused):
        accept(trial)
    assert scene.sh("git rev-parse refs/heads/main").strip() == theirs


def test_detached_head_moves_alone(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "git checkout -q --detach")
    done = accept(scene.attempt("git checkout -q main; echo z >>src/a.py; git commit -qam z"))
    assert scene.sh("git symbolic-ref -q HEAD", check=False) == ""
    assert scene.sh("git rev-parse HEAD").strip() == done.commit != scene.sh("git rev-parse main").strip()


def test_hooks_run_only_when_asked_for(tmp_path: Path) -> None:
    hook = "printf '#!/bin/sh\\ntouch ../hooked\\n%s\\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
    scene = Scene.make(tmp_path / "a", hook % "exit 1")
    accept(scene.attempt("echo z >>src/a.py"))
    assert not (scene.root.parent / "hooked").exists()
    with pytest.raises(AcceptRefused) as refused:
        accept(scene.attempt("echo y >>src/a.py"), hooks=True)
    assert "pre-commit" in refused.value.reason and (scene.root.parent / "hooked").exists()
    fine = Scene.make(tmp_path / "b", hook % "exit 0")
    accept(fine.attempt("echo z >>src/a.py"), hooks=True)
    assert (fine.root.parent / "hooked").exists() and fine.sh("git status --porcelain") == ""


def test_a_dozen_iterations_on_one_workspace(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path)
    workspace = scene.workspace()
    for number in range(12):
        trial = scene.attempt(f"echo {number} >>src/a.py; echo {number} >n{number}", workspace)
        if number % 3 == 2:
            assert trial.reject().equal
        else:
            accept(trial)
        assert scene.sh("git status --porcelain") == ""
    assert len(scene.sh("git rev-list HEAD").split()) == 2 + 8
    assert subprocess.run(["git", "fsck", "--strict"], cwd=scene.root, capture_output=True, check=False).returncode == 0
