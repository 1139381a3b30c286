"""The five examples of the rollback document, from real files and real git: the output is what is printed there."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path
from typing import Any

from .conftest import EVOLVER, LOG, Place, stand_in

# Commits whose ids begin as in the document; made by a search for the last word of the subject.
_WHO = "Doc <doc@example.invalid> 1760797800 +0000"
_ABC123 = "Fix app 000e889b"
_DEF456 = "Fix utils 0070a9a8"


def commit_exactly(place: Place, subject: str, parent: str | None) -> str:
    """A commit of everything there is, with fixed author, date and parent, checked out."""
    place.git("add", "-A")
    tree = place.git("write-tree")
    parents = f"parent {parent}\n" if parent else ""
    body = f"tree {tree}\n{parents}author {_WHO}\ncommitter {_WHO}\n\n{subject}\n"
    done = subprocess.run(
        ["git", "hash-object", "-w", "-t", "commit", "--stdin"],
        cwd=place.root,
        input=body.encode(),
        capture_output=True,
        check=True,
    )
    commit = done.stdout.decode().strip()
    place.git("reset", "-q", "--hard", commit)
    return commit


def test_example_1_full_rollback_all_operations_succeed(repo: Place, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "pnpm")
    repo.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    before = repo.git("rev-parse", "HEAD^{tree}")
    repo.write(".rollback/src-app.ts.backup", "let bug = 1\n")
    repo.write(".rollback/src-utils.ts.backup", "export {}\n")
    repo.write("src/app.ts", "let bug = 2\n")
    repo.write("src/utils.ts", "export const x = 1\n")
    repo.write("src/new-helper.ts", "export const help = 1\n")
    sha = repo.commit("Fix")[:12]
    repo.write("src/utils.ts", "export const x = 2\n")  # an edit after the commit: it would stop `git revert`
    repo.write("dist/app.js", "built\n")
    repo.write(".bug-fixing-plan.json", "{}")
    log = repo.log(
        files_modified=[
            {"path": "src/app.ts", "backup": ".rollback/src-app.ts.backup"},
            {"path": "src/utils.ts", "backup": ".rollback/src-utils.ts.backup"},
        ],
        files_created=["src/new-helper.ts"],
        commands_executed=["pnpm install", "pnpm build"],
        git_commits=[sha],
        artifacts=[".bug-fixing-plan.json"],
    )
    assert repo.rollback(log, "--phase", "bug-fixing") == {
        "success": True,
        "phase": "bug-fixing",
        "actions_taken": [
            "Restored src/app.ts from .rollback/src-app.ts.backup",
            "Restored src/utils.ts from .rollback/src-utils.ts.backup",
            "Deleted src/new-helper.ts",
            "Re-ran pnpm install to restore dependencies",
            "Removed build artifacts (dist/)",
            f"Reverted git commit {sha}",
            "Removed artifact .bug-fixing-plan.json",
        ],
        "files_restored": 2,
        "files_deleted": 1,
        "commands_reverted": 2,
        "git_commits_reverted": 1,
        "artifacts_cleaned": 1,
        "errors": [],
        "warnings": [],
    }
    assert (tmp_path / "bin/calls").read_text() == "pnpm|install|\n"
    assert repo.git("rev-parse", "HEAD^{tree}") == before
    assert repo.git("status", "--porcelain") == ""
    assert sorted(p.name for p in repo.root.iterdir()) == [".bug-changes.json", ".git", ".gitignore", "src"]


def test_example_2_partial_rollback_some_backups_missing(plain: Place) -> None:
    plain.write(".rollback/src-auth.ts.backup", "old auth\n")
    plain.write("src/auth.ts", "new auth\n")
    plain.write("src/db.ts", "new db\n")
    plain.write("src/new-auth.ts", "created\n")
    log = plain.log(
        ".security-changes.json",
        phase="security-remediation",
        files_modified=[
            {"path": "src/auth.ts", "backup": ".rollback/src-auth.ts.backup"},
            {"path": "src/db.ts", "backup": ".rollback/src-db.ts.backup"},
        ],
        files_created=["src/new-auth.ts"],
    )
    assert plain.rollback(log, "--phase", "security-remediation") == {
        "success": True,
        "phase": "security-remediation",
        "actions_taken": ["Restored src/auth.ts from .rollback/src-auth.ts.backup", "Deleted src/new-auth.ts"],
        "files_restored": 1,
        "files_deleted": 1,
        "commands_reverted": 0,
        "git_commits_reverted": 0,
        "artifacts_cleaned": 0,
        "errors": [],
        "warnings": ["Backup not found: .rollback/src-db.ts.backup (file not restored)"],
    }
    assert plain.read("src/auth.ts") == "old auth\n"
    assert plain.read("src/db.ts") == "new db\n"
    # Not everything succeeded, so the backups stay.
    assert plain.read(".rollback/src-auth.ts.backup") == "old auth\n"


def answer(place: Place, words: tuple[str, ...], reply: bytes) -> tuple[int, str, str]:
    """evolver with a terminal as its standard input: exit status, standard output, what the terminal showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen([*EVOLVER, *words], cwd=place.root, stdin=slave, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""
    deadline = time.monotonic() + 30
    while b"(yes/no)" not in shown and time.monotonic() < deadline:
        try:
            shown += os.read(master, 65536)
        except OSError:
            break
    if reply:
        os.write(master, reply)
    out = process.communicate(timeout=30)[0]
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        if not more:
            break
        shown += more
    os.close(master)
    return process.returncode, out.decode(), shown.decode().replace("\r\n", "\n")


QUESTION = """Rollback changes from phase "refactoring"?

Changes to revert:
- Files modified: 1
- Files created: 2
- Commands executed: 1
- Git commits: 0

This action will:
1. Restore 1 files from backups
2. Delete 2 created files
3. Revert 1 commands
4. Revert 0 git commits

Proceed with rollback? (yes/no)"""


def refactoring(place: Place) -> str:
    place.write(".rollback/a.backup", "old\n")
    place.write("a", "new\n")
    place.write("b", "created\n")
    return place.log(
        ".refactor-changes.json",
        phase="refactoring",
        files_modified=[{"path": "a", "backup": ".rollback/a.backup"}],
        files_created=["b", "c"],
        commands_executed=["make"],
    )


def test_example_3_dry_run_user_declines(plain: Place) -> None:
    log = refactoring(plain)
    code, out, shown = answer(plain, ("changes", "rollback", log, "--phase", "refactoring", "--json"), b"no\n")
    import json

    report: dict[str, Any] = json.loads(out)
    assert report.pop("timestamp")
    assert report == {
        "success": False,
        "phase": "refactoring",
        "user_declined": True,
        "actions_taken": [],
        "files_restored": 0,
        "files_deleted": 0,
        "commands_reverted": 0,
        "git_commits_reverted": 0,
        "artifacts_cleaned": 0,
        "errors": [],
        "warnings": [],
        "duration_ms": 0,
    }
    assert list(report)[:3] == ["success", "phase", "user_declined"]  # the document's order
    assert QUESTION in shown
    assert code == 1
    assert plain.read("a") == "new\n" and plain.read("b") == "created\n"


def test_example_3_with_yes_goes_ahead(plain: Place) -> None:
    log = refactoring(plain)
    code, _, shown = answer(plain, ("changes", "rollback", log), b"yes\n")
    assert QUESTION in shown
    assert code == 0
    assert plain.read("a") == "old\n" and not (plain.root / "b").exists()


def test_anything_but_yes_is_no(plain: Place) -> None:
    log = refactoring(plain)
    for reply in (b"\n", b"yess\n", b"ok\n", b"\x04"):
        assert answer(plain, ("changes", "rollback", log), reply)[0] == 1
        assert plain.read("a") == "new\n"


def test_example_4_no_changes_log_file_missing(plain: Place) -> None:
    assert plain.rollback(".nonexistent-changes.json", "--phase", "unknown") == {
        "success": False,
        "phase": "unknown",
        "actions_taken": [],
        "files_restored": 0,
        "files_deleted": 0,
        "commands_reverted": 0,
        "git_commits_reverted": 0,
        "artifacts_cleaned": 0,
        "errors": ["Changes log not found at .nonexistent-changes.json"],
        "warnings": [],
    }


def conflicting(place: Place) -> None:
    """abc123 edits src/app.ts, def456 another file, and then a person edits the same line of src/app.ts."""
    place.git("init", "-q", "-b", "main", ".")
    place.write("src/app.ts", "let bug = 1\n")
    place.write("src/utils.ts", "export {}\n")
    start = commit_exactly(place, "Start", None)
    place.write("src/app.ts", "let bug = 2\n")
    fix = commit_exactly(place, _ABC123, start)
    place.write("src/utils.ts", "export const x = 1\n")
    other = commit_exactly(place, _DEF456, fix)
    assert fix.startswith("abc123") and other.startswith("def456")
    place.write("src/app.ts", "let bug = 3\n")
    place.commit("A person's own edit")
    with (place.root / ".git/info/exclude").open("a") as file:
        file.write(".bug-changes.json\n")


def test_example_5_git_revert_with_conflicts(plain: Place) -> None:
    conflicting(plain)
    log = plain.log(git_commits=["abc123", "def456"])
    assert plain.rollback(log, "--phase", "bug-fixing") == {
        "success": True,
        "phase": "bug-fixing",
        "actions_taken": ["Reverted git commit def456"],
        "files_restored": 0,
        "files_deleted": 0,
        "commands_reverted": 0,
        "git_commits_reverted": 1,
        "artifacts_cleaned": 0,
        "errors": ["Failed to revert commit abc123: Merge conflict in src/app.ts"],
        "warnings": ["Manual resolution required for commit abc123"],
    }
    # Aborted cleanly, and the rest went on.
    assert plain.read("src/app.ts") == "let bug = 3\n"
    assert plain.read("src/utils.ts") == "export {}\n"
    assert plain.git("status", "--porcelain") == ""
    assert not (plain.root / ".git/REVERT_HEAD").exists() and not (plain.root / ".git/sequencer").exists()
    assert plain.git("log", "-1", "--format=%s") == f'Revert "{_DEF456}"'


def test_the_report_has_exactly_the_documents_fields_in_its_order(plain: Place) -> None:
    import json

    done = plain.evolver("changes", "rollback", plain.log(), "--yes", "--json")
    assert list(json.loads(done.out)) == [
        "success",
        "phase",
        "actions_taken",
        "files_restored",
        "files_deleted",
        "commands_reverted",
        "git_commits_reverted",
        "artifacts_cleaned",
        "errors",
        "warnings",
        "timestamp",
        "duration_ms",
    ]
    assert LOG["phase"] == "bug-fixing"
