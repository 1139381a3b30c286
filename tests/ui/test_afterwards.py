"""`log`, `show`, `diff`, `compare`: over recorded streams, through the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolver.events import types as ev
from evolver.events.reader import read
from evolver.ui.timeline import Timeline

from .stream import Recorded, Writer, git, mixed


def evolver(*args: str, cwd: Path, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "evolver", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return mixed(tmp_path / "repo", 12)


def test_log_is_one_line_an_iteration(recorded: Recorded) -> None:
    lines = evolver("log", cwd=recorded.root).splitlines()
    assert len([line for line in lines if line.split()[:1] and line.split()[0].isdigit() and line.split()[1] in "●×○"]) == 12
    assert "4 accepted, 6 rolled back, 2 no change" in lines[14]
    assert "exit 0" in lines[14]
    assert "\x1b" not in "".join(lines)


def test_log_works_in_a_subfolder_and_reads_every_run(recorded: Recorded) -> None:
    second = Writer(recorded.root, loop="other")
    second.no_change(1)
    second.finish("breaker_no_change", 1)
    folder = recorded.root / "sub"
    folder.mkdir()
    assert "loop other" in evolver("log", cwd=folder)
    everything = evolver("log", "--all", cwd=folder)
    assert everything.index("loop tune") < everything.index("loop other")
    assert "loop tune" in evolver("log", "--run", recorded.run_id, cwd=folder)
    assert "no run zzz" in evolver("log", "--run", "zzz", cwd=folder, code=2)


def test_log_without_a_stream_says_what_to_do(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert "evolver init" in evolver("log", cwd=tmp_path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_table_can_be_written_in_any_encoding(recorded: Recorded, encoding: str) -> None:
    text = evolver("log", cwd=recorded.root, env={"PYTHONIOENCODING": f"{encoding}:strict"})
    assert "accepted" in text


def test_colour_only_where_it_is_wanted(recorded: Recorded) -> None:
    assert "\x1b[" not in evolver("log", cwd=recorded.root, env={"NO_COLOR": "1", "FORCE_COLOR": ""})
    coloured = evolver("log", cwd=recorded.root, env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"})
    assert "\x1b[" in coloured
    plain = evolver(
        "log", cwd=recorded.root, env={"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    )
    assert "\x1b[3" not in plain  # bold may stay, colours may not


def test_show_says_what_why_and_how_to_get_it_back(recorded: Recorded) -> None:
    text = evolver("show", "2", cwd=recorded.root)
    for part in ("rolled back", "tests", "E   AssertionError", "verified equal to the baseline", "--rollback stash", "all "):
        assert part in text
    assert "collected 3 items" not in text  # only the lines that matter
    assert "\x1b" not in text
    accepted = evolver("show", f"{recorded.run_id}/1", cwd=recorded.root)
    assert "evolver revert 1" in accepted
    assert "a.txt |" in accepted
    assert (
        evolver("show", "last", cwd=recorded.root)
        == evolver("show", cwd=recorded.root)
        == evolver("show", "12", cwd=recorded.root)
    )


@pytest.mark.parametrize("wanted", ["13", "0", "-1", "nosuch/1", "x", "1/", "/1", "٣"])
def test_an_iteration_that_does_not_exist_is_exit_2(recorded: Recorded, wanted: str) -> None:
    assert "hint" in evolver("show", "--", wanted, cwd=recorded.root, code=2)


def test_diff_of_an_accepted_iteration_applies(recorded: Recorded) -> None:
    patch = evolver("diff", "1", cwd=recorded.root)
    start = git(recorded.root, "rev-list", "--max-parents=0", "HEAD")
    git(recorded.root, "checkout", "-q", start)
    subprocess.run(["git", "apply", "--check", "-"], cwd=recorded.root, input=patch, text=True, check=True)
    assert "a.txt |" in evolver("diff", "1", "--stat", cwd=recorded.root)


def test_diff_of_a_discarded_iteration_says_so(recorded: Recorded) -> None:
    assert "discarded" in evolver("diff", "2", cwd=recorded.root, code=1)
    assert "changed nothing" in evolver("diff", "5", cwd=recorded.root, code=1)


def test_diff_of_a_stashed_iteration_has_its_untracked_files(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "repo", mode="stash")
    (writer.root / "a.txt").write_text("changed\n")
    (writer.root / "new.txt").write_text("untracked\n")
    git(writer.root, "stash", "push", "-q", "--include-untracked")
    stash = git(writer.root, "rev-parse", "stash@{0}")
    writer.rejected(1, "tests: exit 1", stash=stash)
    recorded = writer.finish(code=1)
    patch = evolver("diff", "1", cwd=recorded.root)
    assert "+changed" in patch
    assert "+untracked" in patch
    subprocess.run(["git", "apply", "--check", "-"], cwd=recorded.root, input=patch, text=True, check=True)
    assert f"git stash apply --index {stash}" in evolver("show", "1", cwd=recorded.root)


def test_diff_runs_no_program_of_the_repository(recorded: Recorded, tmp_path: Path) -> None:
    """A text converter and an external diff are commands of the repository's choice."""
    mark = tmp_path / "ran"
    (recorded.root / ".gitattributes").write_text("*.txt diff=evil\n")
    git(recorded.root, "config", "diff.evil.textconv", f"touch {mark}; cat")
    git(recorded.root, "config", "diff.external", f"touch {mark}; true")
    evolver("diff", "1", cwd=recorded.root)
    evolver("show", "1", cwd=recorded.root)
    evolver("report", "-o", "-", cwd=recorded.root)
    assert not mark.exists()


def test_compare_shows_both_sides_and_the_difference(recorded: Recorded) -> None:
    text = evolver("compare", "1", "4", cwd=recorded.root)
    assert "+0.03" in text
    assert "$0.01" in text
    assert "\n-1\n+4\n" in text
    assert "not kept" in evolver("compare", "1", "2", cwd=recorded.root)


def test_the_events_alone_are_enough_when_git_is_gone(recorded: Recorded, tmp_path: Path) -> None:
    """`show` without objects: EVOLVER_EVENTS names a copy, outside any worktree."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(recorded.layout.events().read_bytes())
    outside = tmp_path / "outside"
    outside.mkdir()
    text = evolver("show", "1", cwd=outside, env={"EVOLVER_EVENTS": str(copy)})
    assert "accepted" in text
    assert "git show" in text


def test_events_of_a_newer_version_pass_through(recorded: Recorded) -> None:
    class Unheard(ev.Event, frozen=True, kw_only=True):
        TYPE = "iteration.pondered"
        thought: str = "42"

    writer = Writer(recorded.root, loop="newer")
    writer.start(1)
    writer.bound.emit(Unheard(), iteration=1)
    writer.no_change(1)
    writer.finish(code=1)
    run = Timeline(read(recorded.layout.events())).last()
    assert run is not None
    assert [iteration.outcome for iteration in run.iterations] == ["no_change"]


def test_what_happened_later_is_told_of_the_run_it_belongs_to(tmp_path: Path) -> None:
    """Resumed after the run ended, reverted after another run began."""
    writer = Writer(tmp_path / "repo", mode="none")
    commit = writer.accepted(1)
    writer.held(2, "tests: exit 1")
    writer.bound.emit(
        ev.RunResumed(
            from_="held",
            to="resumed",
            iteration_id=f"{writer.run_id}/2",
            action="kept",
            pre_ref=commit,
            post_ref=commit,
            by="me",
        )
    )
    writer.bound.emit(
        ev.IterationReverted(iteration_id=f"{writer.run_id}/1", commit=commit, revert_commit="b" * 40), iteration=1
    )
    recorded = writer.finish("held", 3)
    run = Timeline(read(recorded.layout.events())).last()
    assert run is not None
    assert (run.held, run.resumed) == ("", "kept")
    assert run.iterations[0].reverted_by == "b" * 40
    assert "reverted by bbbbbbbbbb" in evolver("log", cwd=recorded.root)
