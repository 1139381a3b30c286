"""The order of acts where the document contradicts itself, and what is never touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.changes.rollback import rollback_changes

from .conftest import Place, snapshot


def test_git_adds_are_undone_before_commits_are_reverted(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.write("src/app.ts", "let bug = 3\n")
    repo.git("add", "src/app.ts")  # staged: `git revert` would refuse
    repo.write(".rollback/app", "let bug = 1\n")
    report = repo.rollback(
        repo.log(
            files_modified=[{"path": "src/app.ts", "backup": ".rollback/app"}],
            commands_executed=["git add src/app.ts", "git commit -m Fix"],
            git_commits=[sha],
        )
    )
    assert report["errors"] == [] and report["warnings"] == []
    assert report["actions_taken"] == [
        "Restored src/app.ts from .rollback/app",
        "Unstaged src/app.ts",
        f"Reverted git commit {sha}",
    ]
    assert repo.git("status", "--porcelain") == ""
    assert repo.git("log", "-1", "--format=%s") == 'Revert "Fix"'


def test_edits_of_logged_files_are_put_back_so_that_their_commit_can_be_reverted(repo: Place) -> None:
    repo.write(".rollback/app", "what the worker found: not what HEAD had\n")
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.write("src/app.ts", "an edit on top\n")
    report = repo.rollback(repo.log(files_modified=[{"path": "src/app.ts", "backup": ".rollback/app"}], git_commits=[sha]))
    assert report["errors"] == []
    assert repo.git("show", "HEAD:src/app.ts") == "let bug = 1"
    assert repo.read("src/app.ts") == "what the worker found: not what HEAD had\n"


def test_other_edited_files_are_never_touched_and_a_revert_they_prevent_is_an_error(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.write("src/app.ts", "a person's edit, not in the log\n")
    report = repo.rollback(repo.log(git_commits=[sha], files_created=["gone"]))
    assert report["git_commits_reverted"] == 0
    assert len(report["errors"]) == 1
    assert report["errors"][0].startswith(f"Failed to revert commit {sha}: ")
    assert "src/app.ts" in report["errors"][0]
    assert repo.read("src/app.ts") == "a person's edit, not in the log\n"
    assert repo.git("rev-parse", "HEAD") == sha


def test_other_staged_files_are_never_touched_and_a_revert_they_prevent_is_an_error(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.write("mine.txt", "a person's new file\n")
    repo.git("add", "mine.txt")
    repo.write("src/utils.ts", "a person's staged edit\n")
    repo.git("add", "src/utils.ts")
    repo.write("src/utils.ts", "and one on top\n")
    index = repo.git("ls-files", "-s")
    report = repo.rollback(repo.log(git_commits=[sha]))
    assert report["errors"] == [f"Failed to revert commit {sha}: other changes are staged: mine.txt, src/utils.ts"]
    assert report["success"] is False  # there was one thing to do, and it was not done
    assert repo.git("ls-files", "-s") == index
    assert repo.read("src/utils.ts") == "and one on top\n"


def test_unrelated_unstaged_edits_survive_a_revert_and_a_conflict(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    conflicting = repo.commit("Conflicts later")
    repo.write("src/app.ts", "let bug = 3\n")
    repo.commit("A person's")
    repo.write("other.txt", "x\n")
    clean = repo.commit("Reverts cleanly")
    repo.write("src/utils.ts", "an edit\n")
    report = repo.rollback(repo.log(git_commits=[conflicting, clean]))
    assert report["git_commits_reverted"] == 1
    assert report["errors"] == [f"Failed to revert commit {conflicting}: Merge conflict in src/app.ts"]
    assert repo.git("status", "--porcelain") == "M src/utils.ts"
    assert repo.read("src/utils.ts") == "an edit\n"


def test_git_add_of_paths_unstages_those_alone(repo: Place) -> None:
    repo.write("src/app.ts", "agent\n")
    repo.write("src/utils.ts", "person\n")
    repo.write("new file.txt", "agent\n")
    repo.git("add", "-A")
    report = repo.rollback(repo.log(commands_executed=["git add src/app.ts 'new file.txt'"]))
    assert report["actions_taken"] == ["Unstaged src/app.ts, new file.txt"]
    assert repo.git("diff", "--cached", "--name-only") == "src/utils.ts"


def test_only_a_bare_git_add_unstages_all(repo: Place) -> None:
    for command in ("git add .", "git add -A", "git add --all"):
        repo.write("src/app.ts", "agent\n")
        repo.write("a", "b")
        repo.git("add", "-A")
        report = rollback_changes(repo.root / repo.log(commands_executed=[command]), confirm=None)
        assert report.actions_taken == ("Unstaged all files",)
        assert repo.git("diff", "--cached", "--name-only") == ""
    repo.git("add", "-A")
    before = repo.git("diff", "--cached", "--name-only")
    for command in ("git add -u", "git add *.ts", "git add -p", "git add src/app.ts; true", "git add ../x", "git add $(ls)"):
        report = rollback_changes(repo.root / repo.log(commands_executed=[command]), confirm=None)
        assert report.warnings == (f"Cannot auto-revert: {command} (manual intervention required)",)
        assert repo.git("diff", "--cached", "--name-only") == before != ""


@pytest.mark.parametrize("spec", [":/", ":", "'*.ts'", "':(glob)**'", "':!x'", "'[n]ew.ts'", "src/n\\\\ew.ts"])
def test_git_add_of_a_pathspec_that_is_no_plain_name_needs_a_person(repo: Place, spec: str) -> None:
    """git would take it for more than a name, so nobody knows what it added: "unstaged" would be untrue."""
    repo.write("new.ts", "agent\n")
    repo.git("add", "new.ts")
    report = repo.rollback(repo.log(commands_executed=[f"git add {spec}"]))
    assert report["commands_reverted"] == 0 and report["warnings"][0].startswith("Cannot auto-revert: git add ")
    assert repo.git("diff", "--cached", "--name-only") == "new.ts"


def test_git_add_before_the_first_commit(plain: Place) -> None:
    plain.git("init", "-q")
    plain.write("new", "agent\n")
    plain.write("mine", "mine\n")
    plain.git("add", "new", "mine")
    plain.write("new", "agent again\n")
    report = plain.rollback(plain.log(commands_executed=["git add new"], files_created=["new"]))
    assert report["actions_taken"] == ["Deleted new", "Unstaged new"] and report["errors"] == []
    assert plain.git("ls-files") == "mine"


def test_the_last_commit_of_a_shallow_clone_is_not_reverted(repo: Place, tmp_path: Path) -> None:
    """git knows no parent of it, so a revert would delete every file."""
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.git("clone", "-q", "--depth", "1", f"file://{repo.root}", str(tmp_path / "shallow"))
    shallow = Place(tmp_path / "shallow")
    report = shallow.rollback(shallow.log(git_commits=[sha]))
    assert report["success"] is False and "a shallow clone" in report["errors"][0]
    assert shallow.git("rev-parse", "HEAD") == sha and shallow.git("status", "--porcelain") == ""


def test_an_amended_commit_needs_a_person(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    repo.commit("A person's")
    repo.git("commit", "-q", "--amend", "-m", "Both")
    report = repo.rollback(
        repo.log(commands_executed=["git commit --amend -m Both"], git_commits=[repo.git("rev-parse", "HEAD")])
    )
    assert report["warnings"] == ["Cannot auto-revert: git commit --amend -m Both (manual intervention required)"]


def test_git_add_of_what_is_not_staged_any_more_is_no_error(repo: Place) -> None:
    repo.write("src/app.ts", "agent\n")
    report = repo.rollback(repo.log(commands_executed=["git add src/app.ts", "git add never-there"]))
    assert report["errors"] == [] and report["warnings"] == []


def test_a_created_file_that_a_revert_removed_counts_as_deleted_without_a_warning(repo: Place) -> None:
    repo.write("src/new.ts", "created\n")
    sha = repo.commit("New")
    report = repo.rollback(repo.log(files_created=["src/new.ts", "never.ts"], git_commits=[sha]))
    assert report["files_deleted"] == 1
    assert report["actions_taken"][0] == "Deleted src/new.ts"
    assert report["warnings"] == ["File not found (already deleted?): never.ts"]


def test_a_created_file_committed_and_edited_again_does_not_stop_its_revert(repo: Place) -> None:
    repo.write("src/new.ts", "created\n")
    sha = repo.commit("New")
    repo.write("src/new.ts", "edited\n")
    report = repo.rollback(repo.log(files_created=["src/new.ts"], git_commits=[sha]))
    assert report["errors"] == [] and report["files_deleted"] == 1 and report["git_commits_reverted"] == 1
    assert not (repo.root / "src/new.ts").exists()


def test_commits_are_reverted_newest_first(repo: Place) -> None:
    shas = []
    for n in (2, 3, 4):  # each builds on the one before: any other order conflicts
        repo.write("src/app.ts", f"let bug = {n}\n")
        shas.append(repo.commit(f"Fix {n}"))
    report = repo.rollback(repo.log(git_commits=shas))
    assert report["actions_taken"] == [f"Reverted git commit {sha}" for sha in reversed(shas)]
    assert repo.read("src/app.ts") == "let bug = 1\n"


def test_detached_head_skips_reverts_and_does_the_rest(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    repo.git("checkout", "-q", "--detach")
    repo.write("made", "x")
    report = repo.rollback(repo.log(git_commits=[sha], files_created=["made"]))
    assert report["errors"] == [f"Failed to revert commit {sha}: HEAD is detached"]
    assert report["success"] is True and report["files_deleted"] == 1
    assert repo.git("rev-parse", "HEAD") == sha


def test_unknown_ambiguous_foreign_and_ref_like_commits_are_errors(repo: Place) -> None:
    repo.git("branch", "deadbeef")  # a branch named like an id must not be taken for one
    repo.git("checkout", "-q", "-b", "side")
    repo.write("side", "x")
    side = repo.commit("Side")
    repo.git("checkout", "-q", "main")
    head = repo.git("rev-parse", "HEAD")
    report = repo.rollback(repo.log(git_commits=["deadbeef", side, "0" * 40]))
    assert sorted(report["errors"]) == sorted(
        [
            "Failed to revert commit deadbeef: commit not found",
            f"Failed to revert commit {side}: not in the history of the current branch",
            f"Failed to revert commit {'0' * 40}: commit not found",
        ]
    )
    assert repo.git("rev-parse", "HEAD") == head


def test_a_persons_half_done_merge_is_not_aborted(repo: Place) -> None:
    repo.git("checkout", "-q", "-b", "side")
    repo.write("src/app.ts", "side\n")
    repo.commit("Side")
    repo.git("checkout", "-q", "main")
    repo.write("src/app.ts", "main\n")
    sha = repo.commit("Main")
    repo.git("merge", "side", check=False)
    assert (repo.root / ".git/MERGE_HEAD").exists()
    before = snapshot(repo.root)
    report = repo.rollback(repo.log(git_commits=[sha]))
    assert report["errors"] == [f"Failed to revert commit {sha}: a merge is in progress"]
    assert (repo.root / ".git/MERGE_HEAD").exists()
    assert {k: v for k, v in snapshot(repo.root).items() if k != ".bug-changes.json"} == before


def test_no_identity_leaves_nothing_half_done(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    env = {"HOME": str(repo.root.parent / "nobody"), "EMAIL": "", "GIT_AUTHOR_NAME": "", "GIT_COMMITTER_NAME": ""}
    repo.git("config", "user.useConfigOnly", "true")
    report = repo.rollback(repo.log(git_commits=[sha]), env=env)
    assert len(report["errors"]) == 1 and report["success"] is False
    assert repo.git("status", "--porcelain") == ""
    assert repo.git("rev-parse", "HEAD") == sha
    assert not (repo.root / ".git/REVERT_HEAD").exists()


def test_twice_in_a_row_says_what_was_done_already(repo: Place) -> None:
    repo.write("src/app.ts", "let bug = 2\n")
    repo.write("made", "x")
    sha = repo.commit("Fix")
    log = repo.log(git_commits=[sha], files_created=["made"])
    assert repo.rollback(log)["git_commits_reverted"] == 1
    head = repo.git("rev-parse", "HEAD")
    report = repo.rollback(log)
    assert report["warnings"] == ["File not found (already deleted?): made", f"Already reverted: commit {sha}"]
    assert report["errors"] == []
    assert repo.git("rev-parse", "HEAD") == head and repo.git("status", "--porcelain") == ""


def test_no_git_hook_runs(repo: Place) -> None:
    hook = repo.root / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    repo.write("src/app.ts", "let bug = 2\n")
    sha = repo.commit("Fix")
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    assert repo.rollback(repo.log(git_commits=[sha]))["git_commits_reverted"] == 1
    assert not (repo.root / "hooked").exists()


def test_backups_go_only_when_everything_succeeded_and_other_phases_keep_theirs(repo: Place) -> None:
    repo.write(".rollback/a", "let bug = 1\n")
    repo.write(".rollback/of-another-phase", "x\n")
    log = repo.log(files_modified=[{"path": "src/app.ts", "backup": ".rollback/a"}], files_created=["gone"])
    assert repo.rollback(log, "--clean")["warnings"]
    assert (repo.root / ".rollback/a").exists() and (repo.root / log).exists()
    log = repo.log(files_modified=[{"path": "src/app.ts", "backup": ".rollback/a"}])
    assert repo.rollback(log)["warnings"] == []
    assert not (repo.root / ".rollback/a").exists() and (repo.root / log).exists()
    assert repo.read(".rollback/of-another-phase") == "x\n"
    assert repo.rollback(repo.log(), "--clean")["success"]
    assert not (repo.root / log).exists()


def test_the_first_backup_of_a_file_recorded_twice_wins(plain: Place) -> None:
    plain.write(".rollback/1", "original\n")
    plain.write(".rollback/2", "half-way\n")
    plain.write("f", "last\n")
    report = plain.rollback(
        plain.log(files_modified=[{"path": "f", "backup": ".rollback/1"}, {"path": "./f", "backup": ".rollback/2"}])
    )
    assert plain.read("f") == "original\n"
    assert report["actions_taken"] == ["Restored f from .rollback/1", "Restored ./f from .rollback/2"]


def test_what_was_restored_is_not_deleted_again(plain: Place) -> None:
    plain.write(".rollback/1", "original\n")
    plain.write("d/f", "new\n")
    report = plain.rollback(
        plain.log(files_modified=[{"path": "d/f", "backup": ".rollback/1"}], files_created=["d/f", "d"], artifacts=["d/f"])
    )
    assert plain.read("d/f") == "original\n"
    assert report["files_deleted"] == 0 and report["artifacts_cleaned"] == 0 and len(report["warnings"]) == 3


def test_a_tracked_file_with_uncommitted_edits_is_never_deleted(repo: Place) -> None:
    repo.write("src/app.ts", "a person's work\n")
    repo.write("src/new.ts", "created\n")
    report = repo.rollback(repo.log(files_created=["src/app.ts", "src", "src/new.ts"], artifacts=["src/app.ts"]))
    assert repo.read("src/app.ts") == "a person's work\n"
    assert repo.read("src/utils.ts") == "export {}\n"
    assert report["actions_taken"] == ["Deleted src/new.ts"]


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_edits_that_git_is_told_not_to_see_are_never_deleted_either(repo: Place, flag: str) -> None:
    repo.git("update-index", f"--{flag}", "src/app.ts")
    repo.write("src/app.ts", "a person's own\n")
    report = repo.rollback(repo.log(files_created=["src/app.ts", "src"], artifacts=["src/app.ts"]))
    assert repo.read("src/app.ts") == "a person's own\n"
    assert "Not deleted: src/app.ts (git tracks it and it has uncommitted edits)" in report["warnings"]
    assert report["actions_taken"] == []


def test_tracked_build_output_is_left_to_a_person(repo: Place) -> None:
    repo.write("dist/app.js", "committed\n")
    repo.git("add", "-f", "dist/app.js")
    repo.git("commit", "-qm", "dist")
    report = repo.rollback(repo.log(commands_executed=["pnpm build"]))
    assert report["commands_reverted"] == 0 and "git tracks files in dist/" in report["warnings"][0]
    assert repo.read("dist/app.js") == "committed\n"


def test_lines_are_in_the_logs_order_whatever_was_done_first(plain: Place) -> None:
    plain.sh("mkdir -p z/y a; touch z/y/f a/f b")
    names = ["z", "b", "a/f", "z/y/f", "z/y", "a"]
    report = plain.rollback(plain.log(files_created=[*names, "./b"]))
    assert report["actions_taken"] == [f"Deleted {name}" for name in names]
    assert report["warnings"] == []
