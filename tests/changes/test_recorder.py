"""The recorder: a log made by a shell script, by the context manager, or by one that was killed rolls back to the byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evolver.changes.recorder import ChangesRecorder
from evolver.changes.rollback import rollback_changes
from evolver.errors import UsageError

from .conftest import Place, snapshot

LOG = ".bug-fixing-changes.json"
RECORD = f"{sys.executable} -m evolver changes record"

SCRIPT = f"""
R="{RECORD}"
$R start --phase bug-fixing
$R modified src/app.ts
echo 'changed' >src/app.ts; chmod 600 src/app.ts
$R modified run.sh
rm run.sh
(cd src && $R modified 'odd name.txt')
printf 'no newline, \\377\\0 bytes' >'src/odd name.txt'
$R created src/deep/er/new.ts
mkdir -p src/deep/er; echo new >src/deep/er/new.ts
$R created folder
mkdir folder; echo x >folder/x; ln -s ../src folder/link
$R command -- git add src/app.ts 'src/odd name.txt'
git add src/app.ts 'src/odd name.txt'
git commit -qm work
$R commit HEAD
$R artifact .tmp-plan
echo x >.tmp-plan
echo second >>src/app.ts
$R modified src/app.ts
$R finish
"""


@pytest.fixture
def work(repo: Place) -> Place:
    """A repository with more to lose; what git ignores there is not the recorder's files."""
    repo.write(".gitignore", "ignored/\n")
    repo.write("run.sh", "#!/bin/sh\n", 0o755)
    (repo.root / "src/odd name.txt").write_bytes(b"\x00\xff bytes")
    repo.commit("More")
    repo.write("ignored/cache", "cache\n", 0o640)
    repo.write("untracked.txt", "mine\n", 0o604)
    repo.write("src/app.ts", "let bug = 1 // a person's uncommitted edit\n")
    return repo


def test_a_shell_scripts_log_rolls_back_to_the_byte(work: Place) -> None:
    before = snapshot(work.root)
    tree = work.git("rev-parse", "HEAD^{tree}")
    work.sh(SCRIPT)
    assert snapshot(work.root) != before
    assert work.git("status", "--porcelain", LOG, ".rollback") == ""  # info/exclude
    report = work.rollback(LOG, "--phase", "bug-fixing", "--clean", "--strict")
    assert report["errors"] == [] and report["warnings"] == []
    assert (report["files_restored"], report["files_deleted"], report["artifacts_cleaned"]) == (3, 2, 1)
    assert snapshot(work.root) == before
    assert work.git("rev-parse", "HEAD^{tree}") == tree


WORKER = """
import os, subprocess, sys
from pathlib import Path
from evolver.changes.recorder import ChangesRecorder

os.chdir(sys.argv[1])
with ChangesRecorder(".", phase="bug-fixing") as changes:
    changes.modified("src/app.ts")
    Path("src/app.ts").write_text("changed\\n")
    changes.modified(Path("src/utils.ts").absolute())
    Path("src/utils.ts").unlink()
    changes.created("src/deep/er/new.ts")
    Path("src/deep/er").mkdir(parents=True)
    Path("src/deep/er/new.ts").write_text("new\\n")
    changes.command(["git", "add", "src/deep/er/new.ts"])
    subprocess.run(["git", "add", "src/deep/er/new.ts"], check=True)
    changes.artifact(".tmp-plan")
    Path(".tmp-plan").write_text("x")
    changes.modified("src/app.ts")
    Path("src/app.ts").write_text("changed again\\n")
"""


def worker(place: Place, env: dict[str, str] | None = None) -> int:
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(place.root)], env={**os.environ, **(env or {})}, capture_output=True
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode


def test_the_context_managers_log_rolls_back_to_the_byte(work: Place) -> None:
    before, index = snapshot(work.root), work.git("ls-files", "-s")
    assert worker(work) == 0
    report = work.rollback(LOG, "--clean")
    assert report["errors"] == [] and report["warnings"] == []
    assert snapshot(work.root) == before and work.git("ls-files", "-s") == index


def test_killed_between_any_two_of_its_writes_it_still_rolls_back_to_the_byte(work: Place, tmp_path: Path) -> None:
    """SIGKILL at every pass of every point of every write, until the worker gets through alive."""
    before, index = snapshot(work.root), work.git("ls-files", "-s")
    kills = 0
    for number in range(1, 200):
        code = worker(work, {"EVOLVER_CRASH_AT": f"changes.write:{number}"})
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        logged = (work.root / LOG).exists()
        if logged:
            report = rollback_changes(work.root / LOG, confirm=None)
            assert report.success and report.errors == ()
        now = snapshot(work.root)
        mine = {k: v for k, v in now.items() if k != LOG and not k.startswith(".rollback")}
        assert mine == before, number
        assert work.git("ls-files", "-s") == index, number
        assert not any(".tmp" in key and not key.startswith(".rollback") for key in now), number
        work.sh(f"rm -rf .rollback {LOG}")
    assert kills > 30
    assert rollback_changes(work.root / LOG, confirm=None, clean=True).errors == ()
    assert snapshot(work.root) == before


@pytest.mark.parametrize("command", (1, 2, 4, 5, 7, 8))
def test_a_shell_script_killed_in_the_recorder_rolls_back_to_the_byte(work: Place, command: int) -> None:
    before = snapshot(work.root)
    lines = SCRIPT.splitlines()
    position = [n for n, line in enumerate(lines) if "$R " in line][command]
    lines[position] = lines[position].replace("$R", "EVOLVER_CRASH_AT=changes.write:3 $R")
    done = subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=work.root, capture_output=True, env=dict(os.environ))
    assert done.returncode in (137, -9), done.stderr.decode()
    report = work.rollback(LOG)
    assert report["errors"] == []
    after = {k: v for k, v in snapshot(work.root).items() if k != LOG and not k.startswith(".rollback")}
    assert after == before


ROLLBACK = "import sys; from evolver.changes import rollback_changes; rollback_changes(sys.argv[1], confirm=None)"


@pytest.mark.parametrize("point", ["changes.write", "changes.step"])
def test_a_rollback_killed_anywhere_is_finished_by_the_next(work: Place, point: str) -> None:
    before = snapshot(work.root)
    assert worker(work) == 0
    work.sh(f"git commit -qam work && {RECORD} commit --log {LOG}")
    kept = work.root.parent / "kept"
    shutil.copytree(work.root, kept, symlinks=True)
    for number in range(1, 60):
        env = {**os.environ, "EVOLVER_CRASH_AT": f"{point}:{number}"}
        code = subprocess.run([sys.executable, "-c", ROLLBACK, str(work.root / LOG)], env=env).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert rollback_changes(work.root / LOG, confirm=None).errors == ()
        after = {k: v for k, v in snapshot(work.root).items() if k != LOG and not k.startswith(".rollback")}
        assert after == before, number
        shutil.rmtree(work.root)
        shutil.copytree(kept, work.root, symlinks=True)
    assert number > 6
    (work.root / LOG).unlink()
    assert snapshot(work.root) == before


def test_without_git(plain: Place) -> None:
    plain.write("a", "original\n")
    before = snapshot(plain.root)
    plain.sh(
        f"R='{RECORD}'; $R start --phase p; $R modified a; echo x >a; $R created b/c; mkdir b; touch b/c; $R command -- true; $R finish"
    )
    report = plain.rollback(".p-changes.json")
    assert report["warnings"] == ["Cannot auto-revert: true (manual intervention required)"]
    (plain.root / ".p-changes.json").unlink()
    plain.sh("rm -rf .rollback")
    assert snapshot(plain.root) == before


def test_what_was_there_before_is_not_recorded_as_created(work: Place) -> None:
    os.utime(work.root / "untracked.txt")
    import time

    time.sleep(2.2)  # older than the recording by more than clocks may differ
    recorder = ChangesRecorder(work.root, phase="p")
    recorder.start()
    for path in ("src/app.ts", "src", "untracked.txt"):
        with pytest.raises(UsageError, match="was there before"):
            recorder.created(path)
    work.write("new.txt", "x")
    recorder.created("new.txt")


def test_a_command_given_as_one_line_is_that_line(work: Place) -> None:
    assert work.evolver("changes", "record", "start", "--phase", "p").code == 0
    for words in (("pnpm install",), ("--", "git", "add", "a b"), ("yarn",)):
        assert work.evolver("changes", "record", "command", *words).code == 0
    commands = json.loads(work.read(".p-changes.json"))["commands_executed"]
    assert commands == ["pnpm install", "git add 'a b'", "yarn"]


def test_a_folder_with_older_files_is_not_recorded_as_created(work: Place) -> None:
    """Its own change time moves with every file put into it; what is in it tells."""
    work.sh("mkdir -p data/deep && echo precious >data/deep/p && echo data/ >>.git/info/exclude && sleep 2.2")
    assert work.evolver("changes", "record", "start", "--phase", "p").code == 0
    work.write("data/new", "new")
    done = work.evolver("changes", "record", "created", "data")
    assert done.code == 2 and "data was there before" in done.err
    assert work.evolver("changes", "record", "created", "data/new").code == 0
    work.sh("mkdir -p fresh/deep && echo x >fresh/deep/x")
    assert work.evolver("changes", "record", "created", "fresh").code == 0
    assert work.rollback(".p-changes.json")["files_deleted"] == 2
    assert work.read("data/deep/p") == "precious\n"


def test_what_cannot_be_recorded_is_said_and_changes_nothing(work: Place) -> None:
    (work.root / "link").symlink_to("src/app.ts")
    os.link(work.root / "untracked.txt", work.root / "twin")
    recorder = ChangesRecorder(work.root, phase="p")
    with pytest.raises(UsageError, match="not found"):
        recorder.modified("src/app.ts")
    recorder.start()
    with pytest.raises(UsageError, match="exists already"):
        recorder.start()
    before = (work.root / ".p-changes.json").read_bytes()
    for path, why in (
        ("gone", "no such file"),
        ("src", "no regular file"),
        ("link", "no regular file"),
        ("twin", "hard links"),
        ("../outside/secret", "not below the root"),
        (".", "root"),
        (".git/config", "inside .git"),
        (".rollback/x", "belongs to the recorder"),
        (".p-changes.json", "belongs to the recorder"),
    ):
        with pytest.raises(UsageError, match=why):
            recorder.modified(path)
    with pytest.raises(UsageError, match="empty"):
        recorder.command([])
    with pytest.raises(UsageError, match="not found"):
        recorder.commit("no-such")
    with pytest.raises(UsageError, match="more than"):
        recorder.command("x" * 70_000)
    assert (work.root / ".p-changes.json").read_bytes() == before


@pytest.mark.parametrize("phase", ["", "../x", "a b", "-x", "x" * 101, "a/b"])
def test_a_phase_that_makes_no_file_name_needs_a_log_of_its_own(work: Place, phase: str) -> None:
    done = work.evolver("changes", "record", "start", f"--phase={phase}")
    assert done.code == 2 and "--log" in done.err
    assert work.evolver("changes", "record", "start", f"--phase={phase or 'x'}", "--log", "log.json").code == 0


def test_names_that_are_no_utf8_and_names_with_newlines(work: Place) -> None:
    raw = os.fsencode(work.root) + b"/\xff\n"
    Path(os.fsdecode(raw)).write_bytes(b"original")
    before = snapshot(work.root)
    recorder = ChangesRecorder(work.root, phase="p")
    recorder.start()
    recorder.modified(os.fsdecode(raw))
    Path(os.fsdecode(raw)).write_bytes(b"changed")
    recorder.created("new\udcfe")
    Path(os.fsdecode(os.fsencode(work.root) + b"/new\xfe")).write_text("x")
    recorder.finish()
    assert json.loads((work.root / ".p-changes.json").read_text())["files_created"] == ["new\udcfe"]
    assert rollback_changes(work.root / ".p-changes.json", confirm=None, clean=True).warnings == ()
    assert snapshot(work.root) == before


def test_many_workers_record_at_once(work: Place) -> None:
    work.sh(f"{RECORD} start --phase p")
    work.sh(f"for n in 1 2 3 4 5 6 7 8; do {RECORD} created new-$n & done; wait")
    found = json.loads(work.read(".p-changes.json"))["files_created"]
    assert sorted(found) == [f"new-{n}" for n in range(1, 9)]


def test_a_recording_is_found_from_a_subfolder_and_named_when_there_are_two(work: Place) -> None:
    assert work.evolver("changes", "record", "created", "x").code == 2
    work.sh(f"{RECORD} start --phase one")
    assert work.evolver("changes", "record", "created", "x", cwd="src").code == 0
    assert json.loads(work.read(".one-changes.json"))["files_created"] == ["src/x"]
    work.sh(f"{RECORD} start --phase two")
    done = work.evolver("changes", "record", "created", "y")
    assert done.code == 2 and ".one-changes.json, .two-changes.json" in done.err
    assert work.evolver("changes", "record", "created", "y", "--log", ".two-changes.json").code == 0


def test_two_phases_keep_their_own_backups(work: Place) -> None:
    original = work.read("src/app.ts")
    one, two = ChangesRecorder(work.root, phase="one"), ChangesRecorder(work.root, phase="two")
    one.start()
    one.modified("src/app.ts")
    work.write("src/app.ts", "one\n")
    one.finish()
    two.start()
    two.modified("src/app.ts")
    work.write("src/app.ts", "two\n")
    two.finish()
    assert work.rollback(".two-changes.json")["files_restored"] == 1
    assert work.read("src/app.ts") == "one\n"
    assert work.rollback(".one-changes.json")["files_restored"] == 1
    assert work.read("src/app.ts") == original


def test_finish_discard_forgets_log_and_backups(work: Place) -> None:
    before = snapshot(work.root)
    work.sh(f"R='{RECORD}'; $R start --phase p; $R modified src/app.ts; $R finish --discard")
    assert snapshot(work.root) == before


def test_info_exclude_is_written_once_and_not_inside_a_run(work: Place) -> None:
    exclude = work.root / ".git/info/exclude"
    exclude.write_text("mine")  # no newline at its end
    work.sh(f"{RECORD} start --phase p && {RECORD} finish --discard && {RECORD} start --phase p && {RECORD} finish --discard")
    assert exclude.read_text() == "mine\n/.rollback/\n/.p-changes.json\n"
    exclude.write_text("")
    assert work.evolver("changes", "record", "start", "--phase", "q", env={"EVOLVER_RUN_ID": "x"}).code == 0
    assert exclude.read_text() == ""


def test_info_exclude_of_a_linked_worktree_and_of_a_subfolder(work: Place) -> None:
    work.git("worktree", "add", "-q", str(work.root.parent / "linked"))
    linked = Place(work.root.parent / "linked")
    linked.sh(f"{RECORD} start --phase p --root src")
    assert (linked.root / "src/.p-changes.json").exists()
    assert linked.git("status", "--porcelain") == ""
    assert "/src/.rollback/\n" in (work.root / ".git/info/exclude").read_text()


def test_a_broken_log_is_not_written_over(work: Place) -> None:
    recorder = ChangesRecorder(work.root, phase="p")
    recorder.start()
    log = work.root / ".p-changes.json"
    for data in (b"", b"{", b"[]", log.read_bytes()[:-40]):
        log.write_bytes(data)
        with pytest.raises(UsageError):
            recorder.created("x")
        assert log.read_bytes() == data
    other: dict[str, Any] = {"phase": "p", "timestamp": "2025-10-18", "files_modified": [], "files_created": []}
    log.write_text(json.dumps({**other, "commands_executed": [], "git_commits": []}))
    with pytest.raises(UsageError, match="not begun by"):
        recorder.created("x")


def test_the_schema_holds_for_every_log_the_recorder_writes(work: Place) -> None:
    from jsonschema import Draft202012Validator

    from evolver.changes.parse import schema_path

    assert worker(work) == 0
    schema = json.loads(schema_path().read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(work.read(LOG)))


@pytest.mark.parametrize("trap", ["info", "exclude", "fifo"])
def test_info_exclude_is_not_written_through_a_link(work: Place, trap: str) -> None:
    info = work.root / ".git/info"
    outside = work.root.parent / "outside"
    shutil.rmtree(info)
    if trap == "info":
        info.symlink_to(outside)
    else:
        info.mkdir()
        if trap == "exclude":
            (info / "exclude").symlink_to(outside / "secret")
        else:
            os.mkfifo(info / "exclude")
    before = snapshot(outside)
    assert ChangesRecorder(work.root, phase="p").start() is False
    assert snapshot(outside) == before
