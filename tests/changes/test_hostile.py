"""The log is an agent's, so hostile: refused with the field's name before anything is done, and nothing outside is touched."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import LOG, Place, snapshot

GOOD = {"path": "f", "backup": ".rollback/f"}


def refused(place: Place, log: str, *words: str) -> list[str]:
    """The errors of a rollback that must do nothing at all, inside the root and outside."""
    before = snapshot(place.root.parent, skip=())
    report = place.rollback(log, *words)
    assert report["success"] is False and report["actions_taken"] == []
    assert snapshot(place.root.parent, skip=()) == before
    errors: list[str] = report["errors"]
    return errors


PATHS = [
    ("../outside/secret", "outside"),
    ("a/../../outside/secret", "outside"),
    ("/etc/passwd", "outside"),
    ("//etc/passwd", "outside"),
    ("", "is empty"),
    (".", "the root itself"),
    ("./", "the root itself"),
    ("././/", "the root itself"),
    ("..", "outside"),
    (".git", "inside .git"),
    (".git/config", "inside .git"),
    ("./.git/hooks/pre-commit", "inside .git"),
    ("sub/.git/config", "inside .git"),
    (".GIT/config", "inside .git"),
    (".g\u200cit/config", "inside .git"),
    ("git~1/config", "inside .git"),
    (".git /config", "inside .git"),
    ("a\0b", "NUL"),
    ("\ud800", "no file name"),
    ("x" * 256, "longer than"),
    ("link/secret", "symlink"),
    ("link/deep/er", "symlink"),
    ("inner-link/f", "symlink"),
]


@pytest.mark.parametrize("field", ["files_modified.path", "files_modified.backup", "files_created", "artifacts", "plan_files"])
@pytest.mark.parametrize(("path", "reason"), PATHS, ids=[repr(p)[:30] for p, _ in PATHS])
def test_a_path_that_leaves_the_root_is_refused_with_the_fields_name(plain: Place, field: str, path: str, reason: str) -> None:
    from evolver.changes.rollback import rollback_changes

    plain.write("f", "mine\n")
    plain.write(".rollback/f", "backup\n")
    plain.write("folder/f", "x\n")
    (plain.root / "link").symlink_to("../outside")
    (plain.root / "inner-link").symlink_to("folder")
    (plain.root / ".git").mkdir()
    (plain.root / ".git/config").write_text("precious\n")
    if field.startswith("files_modified"):
        key = field.split(".")[1]
        fields: dict[str, Any] = {"files_modified": [GOOD, {**GOOD, key: path}]}
        name = f"files_modified[1].{key}"
    else:
        fields = {field: ["f2", path]}
        name = f"{field}[1]"
    log = plain.log(**fields)
    before = snapshot(plain.root.parent, skip=())
    report = rollback_changes(plain.root / log, confirm=None)
    assert snapshot(plain.root.parent, skip=()) == before
    assert not report.success
    assert any(f"Refused {name}: " in e and reason in e for e in report.errors), report.errors


def test_black_box_refusal_through_the_command_line(plain: Place) -> None:
    assert refused(plain, plain.log(files_created=["../outside"])) == [
        "Refused files_created[0]: has `..`, so may be outside the root: '../outside'"
    ]


def test_a_target_that_is_a_link_out_of_the_root_is_refused(plain: Place) -> None:
    plain.write(".rollback/f", "evil\n")
    (plain.root / "f").symlink_to("../outside/secret")
    errors = refused(plain, plain.log(files_modified=[GOOD]))
    assert errors == ["Refused files_modified[0].path: is a symlink that leads outside the root: 'f'"]


def test_a_target_that_became_a_link_inside_the_root_is_replaced_not_followed(plain: Place) -> None:
    plain.write(".rollback/f", "original\n")
    plain.write("other", "mine\n")
    (plain.root / "f").symlink_to("other")
    assert plain.rollback(plain.log(files_modified=[GOOD]))["files_restored"] == 1
    assert not (plain.root / "f").is_symlink()
    assert plain.read("f") == "original\n" and plain.read("other") == "mine\n"


def test_hard_links_are_refused(plain: Place) -> None:
    plain.write(".rollback/f", "evil\n")
    os.link(plain.root.parent / "outside/secret", plain.root / "f")
    assert refused(plain, plain.log(files_modified=[GOOD])) == ["Refused files_modified[0].path: has other hard links: 'f'"]
    (plain.root / "f").unlink()
    (plain.root / ".rollback/f").unlink()
    plain.write("f", "x\n")
    os.link(plain.root.parent / "outside/secret", plain.root / ".rollback/f")
    errors = refused(plain, plain.log(files_modified=[GOOD]))
    assert errors == ["Refused files_modified[0].backup: has other hard links, so is no copy: '.rollback/f'"]


def test_a_created_link_is_removed_itself_and_never_what_it_points_at(plain: Place) -> None:
    (plain.root / "to-file").symlink_to("../outside/secret")
    (plain.root / "to-folder").symlink_to("../outside/sub")
    plain.write("d/x", "x")
    (plain.root / "d/to-folder").symlink_to("../../outside/sub")
    os.link(plain.root.parent / "outside/secret", plain.root / "d/hard")
    outside = snapshot(plain.root.parent / "outside")
    report = plain.rollback(plain.log(files_created=["to-file", "to-folder/", "d"]))
    assert report["files_deleted"] == 3
    assert snapshot(plain.root.parent / "outside") == outside
    assert sorted(p.name for p in plain.root.iterdir()) == [".bug-changes.json"]


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "link to nothing", "socket"])
def test_a_backup_that_is_no_regular_file_is_refused(plain: Place, kind: str) -> None:
    plain.write("f", "mine\n")
    backup = plain.root / ".rollback/f"
    backup.parent.mkdir()
    if kind == "folder":
        backup.mkdir()
    elif kind == "fifo":
        os.mkfifo(backup)
    elif kind == "link":
        backup.symlink_to("../../outside/secret")
    elif kind == "link to nothing":
        backup.symlink_to("nothing")
    else:
        import socket

        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            os.chdir(backup.parent)  # a socket's path is short
            server.bind("f")
            os.chdir(here)
            errors = refuse_socket(plain)
            assert errors == ["Refused files_modified[0].backup: is no regular file: '.rollback/f'"]
            return
    assert refused(plain, plain.log(files_modified=[GOOD])) == [
        "Refused files_modified[0].backup: is no regular file: '.rollback/f'"
    ]


def refuse_socket(place: Place) -> list[str]:
    report = place.rollback(place.log(files_modified=[GOOD]))
    assert report["actions_taken"] == [] and place.read("f") == "mine\n"
    errors: list[str] = report["errors"]
    return errors


def test_a_symlinked_rollback_folder_is_refused(plain: Place) -> None:
    plain.write("f", "mine\n")
    (plain.root.parent / "outside/f").write_text("evil\n")
    (plain.root / ".rollback").symlink_to("../outside")
    errors = refused(plain, plain.log(files_modified=[GOOD]))
    assert errors == ["Refused files_modified[0].backup: leads through a symlink, so may be outside the root: '.rollback/f'"]


def test_a_symlinked_rollback_folder_is_not_emptied_either(plain: Place) -> None:
    """Nothing of the log is in it, so nothing is refused; cleaning up must not follow it."""
    (plain.root / ".rollback").symlink_to("../outside")
    outside = snapshot(plain.root.parent / "outside")
    recording = {"evolver": {"recording": "0123456789abcdef"}}
    (plain.root.parent / "outside/0123456789abcdef").mkdir()
    outside = snapshot(plain.root.parent / "outside")
    assert plain.rollback(plain.log(metadata=recording), "--clean")["success"]
    assert snapshot(plain.root.parent / "outside") == outside
    assert (plain.root / ".rollback").is_symlink()


def test_dist_is_removed_without_following_links_out_of_it(plain: Place) -> None:
    outside = snapshot(plain.root.parent / "outside")
    plain.write("dist/a/b", "x")
    (plain.root / "dist/link").symlink_to("../../outside")
    assert plain.rollback(plain.log(commands_executed=["pnpm build"]))["commands_reverted"] == 1
    assert not (plain.root / "dist").exists()
    (plain.root / "dist").symlink_to("../outside")
    assert plain.rollback(plain.log(commands_executed=["pnpm build"]))["commands_reverted"] == 1
    assert not (plain.root / "dist").is_symlink()
    assert snapshot(plain.root.parent / "outside") == outside


def test_the_log_its_backups_and_what_holds_them_are_never_deleted(plain: Place) -> None:
    plain.write(".rollback/f", "original\n")
    plain.write("f", "new\n")
    paths = [".rollback", ".rollback/f", ".bug-changes.json"]
    report = plain.rollback(plain.log(files_modified=[GOOD], files_created=paths, artifacts=paths, plan_files=paths))
    assert plain.read("f") == "original\n"
    assert report["files_deleted"] == 0 and report["artifacts_cleaned"] == 0
    assert (plain.root / ".rollback/f").exists() and (plain.root / ".bug-changes.json").exists()


def test_a_log_that_restores_itself_or_a_backup_is_refused(plain: Place) -> None:
    plain.write(".rollback/f", "evil\n")
    plain.write(".rollback/other", "x\n")
    for path in (".bug-changes.json", ".rollback/other", ".rollback"):
        (error,) = refused(plain, plain.log(files_modified=[{**GOOD, "path": path}]))
        assert error.startswith("Refused files_modified[0].path: is the log or a backup")
    (error,) = refused(plain, plain.log(files_modified=[{"path": "f", "backup": "./f"}]))
    assert error == "Refused files_modified[0].backup: is the file itself: './f'"


def test_the_git_folder_is_refused_wherever_it_lies_and_whatever_it_is_called(plain: Place) -> None:
    plain.git("init", "-q", "--separate-git-dir", str(plain.root / "meta"), ".")
    plain.write(".rollback/f", "evil\n")
    for fields in (
        {"files_created": ["meta"]},
        {"artifacts": ["meta/config"]},
        {"files_modified": [{**GOOD, "path": "meta/config"}]},
    ):
        report = plain.rollback(plain.log(**fields))
        assert report["success"] is False and "git folder" in report["errors"][0]
    assert (plain.root / "meta/config").exists()


def test_sha256_of_a_backup_is_checked_before_anything_is_written(plain: Place) -> None:
    plain.write("f", "mine\n")
    plain.write("g", "mine\n")
    plain.write(".rollback/f", "altered since\n")
    plain.write(".rollback/g", "good\n")
    good = hashlib.sha256(b"good\n").hexdigest().upper()
    report = plain.rollback(
        plain.log(
            files_modified=[
                {**GOOD, "sha256": "0" * 64},
                {"path": "g", "backup": ".rollback/g", "sha256": good},
            ]
        )
    )
    assert report["errors"] == ["Failed to restore f: backup .rollback/f does not match its sha256"]
    assert report["success"] is True and report["files_restored"] == 1
    assert plain.read("f") == "mine\n" and plain.read("g") == "good\n"
    assert (plain.root / ".rollback/f").exists()


def test_commands_never_reach_a_shell(plain: Place) -> None:
    evil = [
        "pnpm install; touch pwned",
        "pnpm install && touch pwned",
        "pnpm install\ntouch pwned",
        "pnpm build $(touch pwned)",
        "`touch pwned`",
        "touch pwned",
        "git add -- 'x' && touch pwned",
        "git add --pathspec-from-file=/etc/passwd",
        "'unbalanced",
        "   ",
    ]
    report = plain.rollback(plain.log(commands_executed=evil))
    assert report["commands_reverted"] == 0 and len(report["warnings"]) == len(evil)
    assert not (plain.root / "pwned").exists()


def test_control_characters_never_reach_the_terminal_or_the_report(plain: Place) -> None:
    nasty = "a\x1b]0;owned\x07b\r\nc\u202ed"
    done = plain.evolver("changes", "rollback", plain.log(files_created=[nasty], commands_executed=[nasty]), "--yes")
    for char in ("\x1b", "\x07", "\r", "\u202e"):
        assert char not in done.out + done.err
    assert done.code == 0 and len(done.err.splitlines()) == 3


RAW: list[tuple[bytes, str]] = [
    (b"", "Invalid JSON in changes log: "),
    (b"{", "Invalid JSON in changes log: "),
    (b"null", "expected an object, got null"),
    (b"[]", "expected an object, got an array"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b"\xef\xbb\xbf{}", "byte order mark"),
    (b'{"phase":"a","phase":"b"}', "duplicate key 'phase'"),
    (b'{"metadata":{"a":{"b":1,"b":2}}}', "duplicate key 'b'"),
    (b'{"metadata":' + b"[" * 100_000, "nested deeper"),
    (b'{"a":' * 50_000, "nested deeper"),
    (b'{"metadata":{"n":' + b"9" * 5000 + b"}}", "a number of 5000 digits"),
    (b'{"metadata":{"n":1.' + b"9" * 5000 + b"}}", "digits"),
    (b'{"metadata":{"n":NaN}}', "NaN is no JSON"),
    (b'{"metadata":{"n":-Infinity}}', "-Infinity is no JSON"),
    (b'{"phase":"\xed\xa0\x80"}', "not UTF-8"),
    (b"{}", "Changes log missing required field: phase"),
    (b"\x00" * 1000, "Invalid JSON"),
    (b" " * (9 << 20), "larger than"),
    (b'"' + b"\\" * 100_001, "Invalid JSON"),
]


@pytest.mark.parametrize(("data", "told"), RAW, ids=[repr(d)[:25] for d, _ in RAW])
def test_what_is_no_changes_log_is_refused_in_words(plain: Place, data: bytes, told: str) -> None:
    (plain.root / ".bug-changes.json").write_bytes(data)
    errors = refused(plain, ".bug-changes.json")
    assert told in errors[0], errors


@pytest.mark.parametrize("field", list(LOG))
def test_missing_required_fields_are_named(plain: Place, field: str) -> None:
    (plain.root / "log.json").write_text(json.dumps({k: v for k, v in LOG.items() if k != field}))
    assert refused(plain, "log.json") == [f"Changes log missing required field: {field}"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"phase": 1}, "phase: expected string, got a number"),
    ({"phase": ""}, "phase: is empty"),
    ({"phase": "x" * 201}, "phase: more than 200"),
    ({"timestamp": "yesterday"}, "timestamp: 'yesterday' is not of the form"),
    ({"files_modified": {}}, "files_modified: expected array, got an object"),
    ({"files_modified": ["f"]}, "files_modified[0]: expected object, got a string"),
    ({"files_modified": [{"path": "f"}]}, "missing required field: files_modified[0].backup"),
    ({"files_modified": [{**GOOD, "sha256": "abc"}]}, "files_modified[0].sha256: 'abc' is not of the form"),
    ({"files_modified": [{**GOOD, "mode": "4755"}]}, "files_modified[0].mode: '4755' is not of the form"),
    ({"files_created": [None]}, "files_created[0]: expected string, got null"),
    ({"files_created": [["f"]]}, "files_created[0]: expected string, got an array"),
    ({"files_created": ["x/" * 3000]}, "files_created[0]: more than 4096"),
    ({"commands_executed": [""]}, "commands_executed[0]: is empty"),
    ({"git_commits": ["HEAD~1"]}, "git_commits[0]: 'HEAD~1' is not of the form"),
    ({"git_commits": ["--continue"]}, "git_commits[0]: '--continue' is not of the form"),
    ({"git_commits": ["abc123\n"]}, "git_commits[0]: is no commit id"),
    ({"metadata": []}, "metadata: expected object, got an array"),
    ({"metadata": {"evolver": {"recording": "../../outside"}}}, "metadata.evolver.recording: "),
    ({"metadata": {"evolver": {"created_dirs": ["../outside/sub"]}}}, "metadata.evolver.created_dirs[0]: has `..`"),
    ({"files_created": [str(n) for n in range(20_001)]}, "20001 entries, more than 20000"),
]


@pytest.mark.parametrize(("fields", "told"), WRONG, ids=[t[:40] for _, t in WRONG])
def test_the_schema_is_checked_before_the_first_action(plain: Place, fields: dict[str, Any], told: str) -> None:
    errors = refused(plain, plain.log(**fields))
    assert any(told in error for error in errors), errors


def test_unknown_fields_are_warned_of_and_refused_under_strict(plain: Place) -> None:
    plain.write("made", "x")
    log = plain.log(files_created=["made"], deleted=["x"], files_modified=[{**GOOD, "owner": 0}])
    assert refused(plain, log, "--strict") == [
        "Unknown field in changes log: deleted",
        "Unknown field in changes log: files_modified[0].owner",
    ]
    report = plain.rollback(log)
    assert report["success"] and report["files_deleted"] == 1
    assert report["warnings"][:2] == [
        "Unknown field in changes log: deleted (ignored)",
        "Unknown field in changes log: files_modified[0].owner (ignored)",
    ]


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_a_log_that_is_no_regular_file_is_refused(plain: Place, kind: str) -> None:
    log = plain.root / "log.json"
    if kind == "folder":
        log.mkdir()
    elif kind == "fifo":
        os.mkfifo(log)
    else:
        (plain.root.parent / "outside/log.json").write_text(json.dumps(LOG))
        log.symlink_to("../outside/log.json")
    (error,) = refused_quietly(plain, "log.json")
    assert "cannot be read" in error


def refused_quietly(place: Place, log: str) -> list[str]:
    report = place.rollback(log)
    assert report["success"] is False
    errors: list[str] = report["errors"]
    return errors


def nest(top: Path, levels: int) -> None:
    """Folders nested deeper than any recursion limit or PATH_MAX."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 50, dir_fd=fd)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_a_created_folder_deeper_than_any_stack_is_removed(plain: Place) -> None:
    (plain.root / "top").mkdir()
    nest(plain.root / "top", 3000)
    report = plain.rollback(plain.log(files_created=["top"]))
    assert report["errors"] == [] and report["files_deleted"] == 1
    assert not (plain.root / "top").exists()


def test_bytes_of_names_that_are_no_utf8(plain: Place) -> None:
    name = os.fsencode(plain.root) + b"/\xff\xfe\n"
    with open(name, "wb") as file:
        file.write(b"x")
    report = plain.rollback(plain.log(files_created=["\udcff\udcfe\n"]))
    assert report["actions_taken"] == ["Deleted \\xff\\xfe\\n"]
    assert not os.path.lexists(name)


def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder_are_errors_and_the_rest_goes_on(plain: Place) -> None:
    plain.write(".rollback/f", "original\n")
    plain.write("f/inside", "x")
    plain.write("file", "x")
    plain.write("made", "x")
    report = plain.rollback(
        plain.log(
            files_modified=[GOOD, {"path": "file/below", "backup": ".rollback/f"}],
            files_created=["made"],
            artifacts=["f"],
        )
    )
    assert report["files_restored"] == 0 and report["files_deleted"] == 1
    assert report["errors"] == [
        "Failed to restore file/below: Not a directory",
        "Failed to restore f: a folder is in its place",
    ]
    assert plain.read("f/inside") == "x" and plain.read("file") == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_another_filesystem_is_not_entered(plain: Place) -> None:
    (plain.root / "d/mnt").mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(plain.root / "d/mnt")], capture_output=True)
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        (plain.root / "d/mnt/other").write_text("x")
        report = plain.rollback(plain.log(files_created=["d"]))
        assert "another filesystem" in report["errors"][0]
        assert (plain.root / "d/mnt/other").exists()
    finally:
        subprocess.run(["umount", str(plain.root / "d/mnt")], check=True)


def test_a_folder_with_a_repository_in_it_is_left_to_a_person(plain: Place) -> None:
    plain.write("vendor/a", "x")
    plain.sh("git init -q vendor/lib/inner && mkdir -p dist && touch dist/.git")
    before = snapshot(plain.root)
    report = plain.rollback(plain.log(files_created=["vendor"], commands_executed=["pnpm build"]))
    assert report["errors"] == [
        "Failed to delete vendor: holds a git repository; remove it by hand",
        "Failed to revert command pnpm build: dist/: holds a git repository; remove it by hand",
    ]
    assert {k: v for k, v in snapshot(plain.root).items() if k != ".bug-changes.json"} == before


def test_a_root_inside_a_git_folder_is_refused(repo: Place) -> None:
    repo.log(".git/log.json", files_created=["config"])
    repo.git("init", "-q", "--bare", "bare")
    repo.log("bare/log.json", files_created=["config"])
    for log in (".git/log.json", "bare/log.json"):
        (error,) = refused_quietly(repo, log)
        assert error.startswith("Refused root: is a git folder, or inside one")
    assert (repo.root / ".git/config").exists() and (repo.root / "bare/config").exists()


def test_a_sparse_giant_is_not_copied(plain: Place) -> None:
    plain.write("f", "mine\n")
    plain.write(".rollback/f", "")
    os.truncate(plain.root / ".rollback/f", 5 << 40)
    report = plain.rollback(plain.log(files_modified=[GOOD]))
    assert report["errors"] == ["Failed to restore f: backup .rollback/f: is larger than 1073741824 bytes"]
    assert plain.read("f") == "mine\n"


def test_created_dirs_that_hold_nothing_created_are_refused(plain: Place) -> None:
    (plain.root / "empty").mkdir()
    (error,) = refused(plain, plain.log(metadata={"evolver": {"created_dirs": ["empty"]}}))
    assert error == "Refused metadata.evolver.created_dirs: holds nothing of files_created: 'empty'"
