"""`[rollback] changes_log`: the part of a log that git cannot restore is undone with the iteration."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support import Repo

from .conftest import LOG, snapshot, stand_in

RECORD = f"{sys.executable} -m evolver changes record"


def loop(repo: Repo, codegen: str, validate: str = "false", extra: str = "", log: str = ".bug-changes.json") -> None:
    (repo.root / "loops").mkdir(exist_ok=True)
    (repo.root / "loops/default.toml").write_text(
        f'''
[codegen]
command = """{codegen}"""
[[validator]]
name = "judge"
command = "{validate}"
[validate]
baseline = "skip"
[rollback]
changes_log = "{log}"
{extra}
[changes.revert]
"make db" = ["sh", "-c", "rm -f ../db"]
'''
    )
    repo.sh("git add -A && git commit -qm loop")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "r")
    made.sh(
        "mkdir -p build big && echo cache >build/cache && for n in 1 2 3; do echo $n >big/$n; done && echo big/ >>.gitignore"
    )
    made.sh("git add -A && git commit -qm more")
    # What a reverted command leaves behind is no part of the baseline either: an ignored file, a new one, an edit.
    stand_in(tmp_path / "bin", "npm", "echo ran >>node_modules.log; echo x >dropped; echo x >>src/pkg/b.py; git config a.b c")
    made.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return made


AGENT = r"""
mkdir -p .rollback
cp big/1 .rollback/big-1 && cp build/cache .rollback/cache
echo agent >big/1; echo agent >build/cache; echo new >big/new; echo agent >>src/a.py; echo t >.tmp-artifact; echo t >big/tmp
touch ../db
cat >.bug-changes.json <<'EOF'
{"phase": "bug-fixing", "timestamp": "2025-10-18T14:30:00Z",
 "files_modified": [{"path": "big/1", "backup": ".rollback/big-1"}, {"path": "build/cache", "backup": ".rollback/cache"}],
 "files_created": ["big/new"],
 "commands_executed": ["npm install", "make db", "git add src/a.py"],
 "git_commits": [], "artifacts": [".tmp-artifact", "big/tmp"]}
EOF
"""


def finished(repo: Repo) -> dict[str, Any]:
    (event,) = repo.events("rollback.finished")
    data: dict[str, Any] = event["data"]
    assert data["verified"] is True
    return data


def test_a_command_an_artifact_and_an_ignored_file_are_undone_and_the_report_is_in_the_event(
    repo: Repo, tmp_path: Path
) -> None:
    """`big/` is beyond the budget, so git and the vault do not hold it: the log's backups bring it back."""
    loop(repo, AGENT, extra="ignored_files = 2")
    before = snapshot(repo.root, skip=(".git",))
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1, done.text
    data = finished(repo)
    assert "big" in [name.strip("/") for name in data["left"]]
    report = data["changes_report"]
    assert report["success"] is True and report["errors"] == [] and report["warnings"] == []
    assert report["phase"] == "bug-fixing"
    assert report["actions_taken"] == [
        "Restored build/cache from the baseline",
        "Restored big/1 from .rollback/big-1",
        "Deleted big/new",
        "Re-ran npm install to restore dependencies",
        "Reverted make db with sh -c 'rm -f ../db'",
        "Removed artifact .tmp-artifact",
        "Removed artifact big/tmp",
    ]
    assert (tmp_path / "bin/calls").read_text() == "npm|install|\n"
    assert not (tmp_path / "db").exists()
    assert snapshot(repo.root, skip=(".git",)) == before


def test_a_hostile_log_cannot_stop_the_restore_nor_write_over_the_baseline(repo: Repo, tmp_path: Path) -> None:
    evil = AGENT.replace('".tmp-artifact"', '"../outside", ".tmp-artifact"')
    loop(repo, evil, extra="ignored_files = 2")
    (tmp_path / "outside").write_text("mine")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    report = finished(repo)["changes_report"]
    assert report["success"] is False and report["actions_taken"] == []
    assert report["errors"] == ["Refused artifacts[0]: has `..`, so may be outside the root: '../outside'"]
    assert (tmp_path / "outside").read_text() == "mine"
    assert (repo.root / "build/cache").read_text() == "cache\n"


def test_a_backup_is_never_written_over_a_file_of_the_baseline(repo: Repo) -> None:
    agent = AGENT.replace("cp build/cache .rollback/cache", "echo evil >.rollback/cache")
    loop(repo, agent, extra="ignored_files = 2")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    finished(repo)
    assert (repo.root / "build/cache").read_text() == "cache\n"


def test_no_log_is_no_trouble_and_the_log_of_an_earlier_iteration_is_not_undone_again(repo: Repo, tmp_path: Path) -> None:
    loop(repo, 'if [ "$EVOLVER_ITERATION" = 2 ]; then echo x >>src/a.py; else ' + AGENT + "\nfi", extra="ignored_files = 2")
    assert repo.evolver("run", "--max-iters", "2").code == 1
    first, second = repo.events("rollback.finished")
    assert first["data"]["changes_report"]["commands_reverted"] == 2
    assert second["data"]["changes_report"] is None
    assert (tmp_path / "bin/calls").read_text() == "npm|install|\n"


def test_a_log_the_user_already_had_is_left_alone(repo: Repo, tmp_path: Path) -> None:
    loop(repo, "echo x >>src/a.py", extra="ignored_files = 2")
    log = repo.root / ".bug-changes.json"
    log.write_text(json.dumps({**LOG, "files_created": ["notes"], "commands_executed": ["npm install"]}))
    (repo.root / "notes").write_text("mine")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    assert finished(repo)["changes_report"] is None
    assert log.exists() and (repo.root / "notes").read_text() == "mine"
    assert not (tmp_path / "bin/calls").exists()


RECORDING = rf"""
R='{RECORD}'
$R start --phase bug --log .bug-changes.json || exit 9
$R modified src/a.py && echo $EVOLVER_ITERATION >>src/a.py
$R created made-$EVOLVER_ITERATION && echo x >made-$EVOLVER_ITERATION
$R command -- npm install
$R finish
"""


def test_the_recorder_inside_a_loop_neither_fails_the_attempt_nor_is_committed(repo: Repo) -> None:
    """`info/exclude` is a control file: the loop writes it before the baseline, the recorder leaves it alone."""
    loop(repo, RECORDING, validate="true")
    done = repo.evolver("run", "--max-iters", "2")
    assert done.code == 0, done.text
    assert [e["data"]["paths"] for e in repo.events("iteration.accepted")] == [["made-1", "src/a.py"], ["made-2", "src/a.py"]]
    assert repo.events("alert") == []
    assert not (repo.root / ".bug-changes.json").exists() and not (repo.root / ".rollback").exists()


def test_the_recorder_inside_a_failing_loop(repo: Repo) -> None:
    loop(repo, RECORDING)
    before = snapshot(repo.root)
    assert repo.evolver("run", "--max-iters", "2").code == 1
    for event in repo.events("rollback.finished"):
        assert event["data"]["changes_report"]["commands_reverted"] == 1
        assert event["data"]["changes_report"]["files_deleted"] == 1
    assert snapshot(repo.root) == before


@pytest.mark.parametrize("mode", ["stash", "none"])
def test_the_other_modes(repo: Repo, mode: str) -> None:
    loop(repo, AGENT, extra="ignored_files = 2")
    before = snapshot(repo.root)
    done = repo.evolver("run", "--max-iters", "1", "--rollback", mode)
    if mode == "none":
        assert done.code == 3 and repo.events("rollback.finished") == []
        assert (repo.root / "big/1").read_text() == "agent\n"
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert finished(repo)["changes_report"]["errors"] == []
    assert snapshot(repo.root) == before


@pytest.mark.parametrize(
    "point", ["iteration.rollback_started", "iteration.preserved", "restore.before", "restore.deleted", "restore.after"]
)
def test_a_loop_killed_before_the_logs_commands_is_finished_by_the_next_run(repo: Repo, tmp_path: Path, point: str) -> None:
    """The restore removes the log; what it asked for is kept in evolver's own folder until it is done."""
    loop(repo, AGENT, extra="ignored_files = 2")
    before = snapshot(repo.root)
    assert repo.evolver("run", "--max-iters", "1", env={"EVOLVER_CRASH_AT": point}).code == -9
    assert not (tmp_path / "bin/calls").exists()
    done = repo.evolver("resume")
    assert done.code == 0, done.text
    (event,) = repo.events("rollback.finished")
    assert event["data"]["changes_report"]["errors"] == []
    assert event["data"]["changes_report"]["commands_reverted"] == 2
    assert (tmp_path / "bin/calls").read_text() == "npm|install|\n"
    assert not (tmp_path / "db").exists()
    assert snapshot(repo.root) == before
    assert not (repo.root / ".git/evolver/changes").exists()


def test_backups_survive_a_kill_between_the_restore_and_the_rest(repo: Repo, tmp_path: Path) -> None:
    """`.rollback/` is gone with the restore; the file beyond the budget still gets its bytes."""
    loop(repo, AGENT, extra="ignored_files = 2")
    assert repo.evolver("run", "--max-iters", "1", env={"EVOLVER_CRASH_AT": "restore.after"}).code == -9
    assert not (repo.root / ".rollback").exists() and (repo.root / "big/1").read_text() == "agent\n"
    assert repo.evolver("resume").code == 0
    assert (repo.root / "big/1").read_text() == "1\n"


LIAR = """
mkdir -p .rollback && echo evil >.rollback/2
echo x >>src/a.py; echo new >big/new; mkdir big/made && echo new >big/made/f; echo agent >big/3
cat >.bug-changes.json <<'LOG'
{"phase": "bug-fixing", "timestamp": "2025-10-18T14:30:00Z",
 "files_modified": [{"path": "big/2", "backup": ".rollback/2"}],
 "files_created": ["CREATED", "big/new", "big/made"],
 "commands_executed": [], "git_commits": [], "artifacts": ["big/1"]}
LOG
"""


@pytest.mark.parametrize("created", ["big", "big/sub", "big/sub/old"])
def test_what_was_there_before_the_attempt_is_not_deleted_nor_written_over_whatever_the_log_says(repo: Repo, created: str) -> None:
    """`big/` is the user's, and nothing but the log could bring it back: so a log that calls it created is not believed."""
    repo.sh("mkdir big/sub && echo old >big/sub/old && sleep 0.1")
    loop(repo, LIAR.replace("CREATED", created), extra="ignored_files = 2")
    before = snapshot(repo.root / "big")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    report = finished(repo)["changes_report"]
    after = snapshot(repo.root / "big")
    assert after.pop("3") != before.pop("3")  # the log does not name it
    assert after == before
    assert report["actions_taken"] == ["Deleted big/new", "Deleted big/made"]
    held = "it is, or holds, the log, a backup or a restored file" if created == "big" else "it was there before the attempt"
    assert report["warnings"] == [
        "Not restored: big/2 (nothing has changed it since the attempt began)",
        f"Not deleted: {created} ({held})",
        "Not removed: big/1 (it was there before the attempt)",
    ]


def test_a_build_output_that_was_there_before_the_attempt_is_left_to_a_person(repo: Repo) -> None:
    repo.sh("mkdir dist && for n in 1 2 3; do echo $n >dist/$n; done && echo dist/ >>.gitignore && sleep 0.1")
    log = '{"phase": "p", "timestamp": "2025-10-18", "files_modified": [], "files_created": [], "git_commits": [], '
    log += '"commands_executed": ["pnpm build"]}'
    loop(repo, f"echo x >>src/a.py; echo built >dist/out; printf '%s' '{log}' >.bug-changes.json", extra="ignored_files = 2")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    report = finished(repo)["changes_report"]
    assert (repo.root / "dist/1").read_text() == "1\n"
    told = "Cannot auto-revert: pnpm build (dist/ was there before the attempt; manual intervention required)"
    assert report["warnings"] == [told]


def test_what_a_log_undid_is_in_the_stream_also_when_nothing_committable_changed(repo: Repo, tmp_path: Path) -> None:
    """No attempt is rejected then, so there is no `rollback.finished`; but commands ran and a file got its bytes back."""
    loop(repo, AGENT.replace("echo agent >>src/a.py; echo t >.tmp-artifact; ", ""), extra="ignored_files = 2")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    assert len(repo.events("iteration.no_change")) == 1 and repo.events("rollback.finished") == []
    (event,) = repo.events("changes.rolled_back")
    assert event["data"]["log"] == ".bug-changes.json" and event["iteration"] == 1
    assert "Re-ran npm install to restore dependencies" in event["data"]["report"]["actions_taken"]
    assert (repo.root / "big/1").read_text() == "1\n"


@pytest.mark.parametrize("how", ["held", "dead"])
def test_no_rollback_by_hand_runs_git_under_what_an_attempt_planted(repo: Repo, tmp_path: Path, how: str) -> None:
    """A held or dead run leaves the attempt's git settings in place, and git would run the filter they name."""
    plant = f"git config filter.evil.clean 'touch {tmp_path}/planted; cat'; echo '*.py filter=evil' >.gitattributes; echo x >>src/a.py\n"
    loop(repo, plant + AGENT)
    env = {"EVOLVER_CRASH_AT": "iteration.codegen_done"} if how == "dead" else {}
    assert repo.evolver("run", "--max-iters", "1", "--rollback", "none", env=env).code == (-9 if how == "dead" else 3)
    (tmp_path / "planted").unlink(missing_ok=True)
    before = snapshot(repo.root)
    for words in (("--yes",), ("--dry-run",)):
        done = repo.evolver("changes", "rollback", ".bug-changes.json", *words)
        assert done.code == 3 and "evolver resume" in done.text, done.text
    assert repo.evolver("changes", "commands").code == 0
    assert not (tmp_path / "planted").exists()
    assert snapshot(repo.root) == before
