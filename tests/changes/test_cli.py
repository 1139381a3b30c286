"""`evolver changes` on the command line: asking, refusing, phases, dry run, the registry, the event."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolver.changes.registry import REGISTRY

from .conftest import EVOLVER, Place, snapshot, stand_in
from .test_examples import QUESTION, answer, refactoring


def test_no_terminal_and_no_yes_refuses(plain: Place) -> None:
    log = refactoring(plain)
    before = snapshot(plain.root)
    for words in ((), ("--json",)):
        done = plain.evolver("changes", "rollback", log, *words)
        assert done.code == 2 and "--yes" in done.err and done.out == ""
    assert snapshot(plain.root) == before


def test_what_is_wrong_with_the_log_comes_before_what_is_wrong_with_the_terminal(plain: Place) -> None:
    plain.write("torn.json", "{")
    good = plain.log(files_created=["made"], phase="one")
    for log, said in (("nope.json", "not found at nope.json"), ("torn.json", "Invalid JSON"), (good, "one")):
        done = plain.evolver("changes", "rollback", log, "--phase", "two")
        assert done.code == 1, done
        assert said in done.err
        assert "terminal" not in done.err


def test_the_question_is_not_on_standard_output(plain: Place) -> None:
    _, out, shown = answer(plain, ("changes", "rollback", refactoring(plain), "--json"), b"no\n")
    assert QUESTION in shown and "(yes/no)" not in out
    assert json.loads(out)["user_declined"] is True


def test_a_phase_that_differs_is_an_error_before_anything_is_done(plain: Place) -> None:
    log = refactoring(plain)
    before = snapshot(plain.root)
    report = plain.rollback(log, "--phase", "bug-fixing")
    assert report["success"] is False and report["actions_taken"] == []
    assert report["errors"] == ['Phase mismatch: the changes log is from phase "refactoring", not "bug-fixing"']
    assert snapshot(plain.root) == before
    assert plain.rollback(log, "--phase", "refactoring")["success"] is True


def test_dry_run_changes_nothing_and_needs_no_terminal(repo: Place) -> None:
    log = refactoring(repo)
    before, head = snapshot(repo.root, skip=()), repo.git("rev-parse", "HEAD")
    done = repo.evolver("changes", "rollback", log, "--dry-run", "--json")
    assert done.code == 0
    assert done.report["actions_taken"] == [] and done.report["success"] is True
    assert (
        "would restore a from .rollback/a.backup\nwould delete b\nwould delete c (not there)\ncannot revert: make\n" in done.err
    )
    assert snapshot(repo.root, skip=()) == before and repo.git("rev-parse", "HEAD") == head


def test_dry_run_names_the_plan_file_that_goes_unasked(plain: Place) -> None:
    plain.write(".bug-fixing-plan.json", "{}")
    assert "would remove .bug-fixing-plan.json\n" in plain.evolver("changes", "rollback", plain.log(), "--dry-run").err
    (plain.root / ".bug-fixing-plan.json").unlink()
    assert "plan.json" not in plain.evolver("changes", "rollback", plain.log(), "--dry-run").err


def test_a_root_that_is_no_folder_is_said(plain: Place) -> None:
    assert plain.rollback(plain.log(), "--root", "nowhere")["errors"] == ["Root nowhere is no folder"]


def test_dry_run_of_a_refused_log_is_not_successful(plain: Place) -> None:
    done = plain.evolver("changes", "rollback", plain.log(files_created=["/x"]), "--dry-run", "--json")
    assert done.code == 1 and done.report["errors"]


def test_clean_removes_the_log_after_full_success(plain: Place) -> None:
    log = refactoring(plain)
    assert plain.rollback(log, "--clean")["warnings"]  # a person is needed for `make`
    assert (plain.root / log).exists() and (plain.root / ".rollback").exists()
    plain.write("b", "created\n")
    log = plain.log(files_created=["b"], files_modified=[{"path": "a", "backup": ".rollback/a.backup"}])
    assert plain.rollback(log, "--clean")["warnings"] == []
    assert sorted(p.name for p in plain.root.iterdir()) == [".refactor-changes.json", "a"]


def test_paths_are_relative_to_the_logs_folder_wherever_one_stands(repo: Place) -> None:
    repo.write("pkg/made", "x")
    log = repo.log("pkg/.bug-changes.json", files_created=["made"])
    done = repo.evolver("changes", "rollback", f"../{log}", "--yes", cwd="src")
    assert done.code == 0 and not (repo.root / "pkg/made").exists()


def test_root_can_be_given_for_a_log_that_lies_elsewhere(plain: Place) -> None:
    plain.write("made", "x")
    elsewhere = plain.root.parent / "log.json"
    (plain.root / plain.log(files_created=["made"])).rename(elsewhere)
    report = plain.rollback(str(elsewhere), "--root", ".", "--clean")
    assert report["files_deleted"] == 1
    assert elsewhere.exists()  # it is not below the root, so it is not ours to remove


def test_plan_files_are_cleaned(repo: Place) -> None:
    repo.write(".bug-fixing-plan.json", "{}")
    repo.write("other-plan.json", "{}")
    report = repo.rollback(repo.log(plan_files=["other-plan.json"], artifacts=["not-there"]))
    assert report["actions_taken"] == ["Removed plan file other-plan.json", "Removed plan file .bug-fixing-plan.json"]
    assert report["artifacts_cleaned"] == 2 and report["warnings"] == []


def test_a_committed_plan_file_is_not_removed_unasked(repo: Place) -> None:
    repo.write(".bug-fixing-plan.json", "{}")
    repo.commit("Plan")
    assert repo.rollback(repo.log())["artifacts_cleaned"] == 0
    assert repo.git("status", "--porcelain") == ""


def test_an_artifact_that_is_a_folder_is_an_error(plain: Place) -> None:
    plain.write("d/x", "x")
    report = plain.rollback(plain.log(artifacts=["d"]))
    assert report["errors"] == ["Failed to remove artifact d: is a folder"]
    assert plain.read("d/x") == "x"


def test_modes_and_missing_folders_come_back(plain: Place) -> None:
    plain.write(".rollback/run", "#!/bin/sh\n", 0o755)
    plain.write(".rollback/kept", "x\n", 0o600)
    plain.write("kept", "y\n", 0o644)
    report = plain.rollback(
        plain.log(
            files_modified=[
                {"path": "gone/deep/run", "backup": ".rollback/run"},
                {"path": "kept", "backup": ".rollback/kept"},
                {"path": "said", "backup": ".rollback/kept", "mode": "0640"},
            ]
        )
    )
    assert report["files_restored"] == 3
    modes = {name: oct((plain.root / name).stat().st_mode)[-3:] for name in ("gone/deep/run", "kept", "said")}
    assert modes == {"gone/deep/run": "755", "kept": "644", "said": "640"}


def test_a_command_that_fails_is_an_error_and_the_rest_goes_on(plain: Place, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "npm", "echo 'no network' >&2; exit 7")
    stand_in(tmp_path / "bin", "yarn")
    plain.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    report = plain.rollback(plain.log(commands_executed=["npm install", "yarn", "bun install", "yarn install", "npm ci"]))
    assert report["actions_taken"] == ["Re-ran yarn install to restore dependencies"]
    assert report["errors"] == [
        "Failed to revert command npm install: exit 7: no network",
        "Failed to revert command bun install: could not start: bun: No such file or directory",
        "Failed to revert command npm ci: exit 7: no network",
    ]
    assert report["success"] is True
    assert (tmp_path / "bin/calls").read_text() == "npm|install|\nyarn|install|\nnpm|ci|\n"  # equal reverts run once


@pytest.mark.parametrize("command", [c for c, r in REGISTRY.items() if r.how == "run"])
def test_every_entry_of_the_registry_runs_its_exact_argv(plain: Place, tmp_path: Path, command: str) -> None:
    from evolver.changes.rollback import rollback_changes

    argv = REGISTRY[command].argv
    stand_in(tmp_path / "bin", argv[0])
    old = os.environ["PATH"]
    os.environ["PATH"] = f"relative:{tmp_path / 'bin'}{os.pathsep}{old}"
    try:
        report = rollback_changes(plain.root / plain.log(commands_executed=[command]), confirm=None)
    finally:
        os.environ["PATH"] = old
    assert report.commands_reverted == 1 and report.warnings == () and report.errors == ()
    assert (tmp_path / "bin/calls").read_text() == "|".join(argv) + "|\n"


@pytest.mark.parametrize("command", [c for c, r in REGISTRY.items() if r.how == "remove"])
def test_every_build_of_the_registry_has_its_output_removed(plain: Place, command: str) -> None:
    from evolver.changes.rollback import rollback_changes

    plain.write("dist/x", "x")
    report = rollback_changes(plain.root / plain.log(commands_executed=[command]), confirm=None)
    assert report.actions_taken == ("Removed build artifacts (dist/)",)
    assert not (plain.root / "dist").exists()


def test_changes_commands_prints_the_registry(plain: Place) -> None:
    done = plain.evolver("changes", "commands")
    assert done.code == 0
    for command, revert in REGISTRY.items():
        assert any(line.startswith(command) and line.endswith(" ".join(revert.argv)) for line in done.out.splitlines()), command
    rows = json.loads(plain.evolver("changes", "commands", "--json").out)
    assert {row["command"]: tuple(row["argv"]) for row in rows} == {c: r.argv for c, r in REGISTRY.items()}


LOOP = """
[codegen]
command = "true"

[changes.revert]
"make db" = ["sh", "-c", "echo undone >>db"]
"pnpm install" = ["echo", "mine"]
"""


def test_changes_revert_of_the_loop_file_adds_to_the_registry(repo: Place) -> None:
    repo.write("loops/default.toml", LOOP)
    repo.commit("Loop")
    log = repo.log(commands_executed=["make  db", "pnpm install"])
    report = repo.rollback(log)
    assert report["actions_taken"] == [
        "Reverted make  db with sh -c 'echo undone >>db'",
        "Reverted pnpm install with echo mine",
    ]
    assert repo.read("db") == "undone\n"
    line = repo.evolver("changes", "commands").out.splitlines()[0]
    assert line.split(None, 2)[:2] == ["make", "db"] and line.endswith("  sh -c 'echo undone >>db'  # [changes.revert]")


def test_changes_revert_that_an_agent_may_have_written_is_not_used_unless_named(repo: Place) -> None:
    evil = LOOP.replace("undone", "pwned")
    repo.write("loops/default.toml", evil)
    log = repo.log(commands_executed=["make db"])
    for message in ("does not track it", "uncommitted edits", "of the log changed it"):
        if message == "uncommitted edits":
            repo.write("loops/default.toml", LOOP)
            repo.commit("Loop")
            repo.write("loops/default.toml", evil)
        elif message == "of the log changed it":
            sha = repo.commit("Evil")
            log = repo.log(commands_executed=["make db"], git_commits=[sha])
        done = repo.evolver("changes", "rollback", log, "--yes")
        assert message in done.err, done.err
        assert not (repo.root / "db").exists()
        if message == "of the log changed it":
            assert repo.read("loops/default.toml") == LOOP
    repo.write("loops/mine.toml", LOOP)
    report = repo.rollback(repo.log(commands_executed=["make db"]), "--loop", "mine")
    assert report["commands_reverted"] == 1 and repo.read("db") == "undone\n"


def stream(place: Place) -> list[dict[str, object]]:
    log = place.root / ".git/evolver/events.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_the_event_is_in_the_worktrees_stream_where_there_is_one(repo: Place) -> None:
    repo.write("made", "x")
    repo.rollback(repo.log(files_created=["made"]))
    assert stream(repo) == []  # no run was ever here, so there is no stream to tell
    from evolver.events.log import EventLog
    from evolver.events.types import AlertStalled
    from evolver.layout import locate

    layout = locate(repo.root)
    with EventLog.open(layout.events(), source="test", mirror=layout.lifeboat) as log:
        log.emit(AlertStalled(condition="x", detail="y"))
    repo.write("made", "x")
    done = repo.evolver("changes", "rollback", repo.log(files_created=["made"]), "--yes", "--json")
    last = stream(repo)[-1]
    assert last["type"] == "dev.evolver.changes.rolled_back"
    data = last["data"]
    assert isinstance(data, dict)
    assert data["log"] == ".bug-changes.json" and data["report"] == json.loads(done.out)
    assert repo.evolver("audit", "verify").code == 0


def test_a_run_at_work_in_the_worktree_is_not_disturbed(repo: Place) -> None:
    from evolver.layout import locate
    from evolver.lock import run_lock

    repo.write("made", "x")
    log = repo.log(files_created=["made"])
    with run_lock(locate(repo.root)):
        assert repo.evolver("changes", "rollback", log, "--yes").code == 6
        assert (repo.root / "made").exists()
        # But a worker inside that run may roll back its own phase.
        assert repo.evolver("changes", "rollback", log, "--yes", env={"EVOLVER_RUN_ID": "run"}).code == 0
    assert not (repo.root / "made").exists()


def test_two_rollbacks_at_once_do_not_meet(plain: Place, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "npm", "touch started; sleep 3")
    plain.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    log = plain.log(commands_executed=["npm install"])
    first = subprocess.Popen(
        [*EVOLVER, "changes", "rollback", log, "--yes"],
        cwd=plain.root,
        env={**os.environ, **plain.env},
        stdin=subprocess.DEVNULL,
    )
    while not (plain.root / "started").exists():
        assert first.poll() is None
    second = plain.evolver("changes", "rollback", log, "--yes")
    assert second.code == 6 and "recorded or rolled back" in second.err
    assert first.wait(timeout=30) == 0


def test_the_function_is_the_command(plain: Place) -> None:
    """The same report from Python, and the question for whoever answers it."""
    script = """
import sys
from evolver.changes.rollback import rollback_changes
asked = []
report = rollback_changes(sys.argv[1], confirm=lambda question: bool(asked.append(question)) or False)
assert report.user_declined and not report.success and report.to_dict()["user_declined"] is True
report = rollback_changes(sys.argv[1], confirm=lambda question: True, phase="refactoring")
print(asked[0]); print(report.to_json())
"""
    log = refactoring(plain)
    done = subprocess.run([sys.executable, "-c", script, log], cwd=plain.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(QUESTION)
    assert '"files_restored": 1' in done.stdout


def test_it_is_fast_enough(plain: Place) -> None:
    """2,000 files, 10 MiB: far below the document's 30 seconds."""
    import time

    files = []
    for n in range(1000):
        plain.write(f".rollback/{n}", "x" * 10_000)
        plain.write(f"made/{n}", "x")
        files.append({"path": f"src/{n}", "backup": f".rollback/{n}"})
    log = plain.log(files_modified=files, files_created=[f"made/{n}" for n in range(1000)])
    begun = time.monotonic()
    report = plain.rollback(log)
    assert (report["files_restored"], report["files_deleted"]) == (1000, 1000)
    assert time.monotonic() - begun < 30


def test_the_help_names_every_part(plain: Place) -> None:
    out = plain.evolver("changes", "--help").out
    for word in ("rollback", "record", "commands"):
        assert word in out
    out = plain.evolver("changes", "record", "--help").out
    for word in ("start", "modified", "created", "command", "commit", "artifact", "finish"):
        assert word in out


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(plain: Place) -> None:
    env = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}
    log = plain.log(files_created=["é\u4e2d"], commands_executed=["ü"], phase="naïve")
    plain.write("é\u4e2d", "x")
    done = plain.evolver("changes", "rollback", log, "--yes", env=env)
    assert done.code == 0 and "Deleted \\xe9\\u4e2d" in done.out, done.err
    assert plain.evolver("changes", "rollback", log, "--yes", "--json", env=env).report["phase"] == "naïve"
    assert plain.evolver("changes", "rollback", log, "--dry-run", env=env).code == 0


def test_a_folder_whose_name_is_no_text(plain: Place) -> None:
    odd = Path(os.fsdecode(os.fsencode(plain.root) + b"/\xff\xfe"))
    odd.mkdir()
    place = Place(odd)
    assert place.evolver("changes", "record", "start", "--phase", "p").code == 0
    place.write("x", "x")
    assert place.evolver("changes", "record", "created", "x").code == 0
    assert place.rollback(".p-changes.json", "--clean")["files_deleted"] == 1
    assert list(odd.iterdir()) == []
