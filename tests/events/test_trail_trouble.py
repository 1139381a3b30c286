"""Logs that are odd, forged, filled with garbage or replaced: named for what they are, at once, and never with a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from evolver.errors import LogError
from evolver.events import chain, paths
from evolver.events.log import EventLog
from evolver.layout import lifeboat_of

from .streams import EVOLVER, evolver, lines, pause, write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A git repository without a log; its lifeboat is below `tmp_path`."""
    root = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def log_of(place: Path) -> Path:
    return place / ".git/evolver/events.jsonl"


def boat(place: Path) -> Path:
    return lifeboat_of(place, env(place))


def env(place: Path) -> dict[str, str]:
    return {"EVOLVER_STATE_DIR": str(place.parent / "state")}


def verified(place: Path, *words: str, cwd: Path | None = None) -> tuple[int, dict[str, object]]:
    done = evolver("audit", "verify", "--json", *words, cwd=cwd or place, **env(place))
    assert b"Traceback" not in done.stderr and b"bug" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


# ---------------------------------------------------------------- verify


@pytest.mark.parametrize("data", [{}, {"segment": "x"}, [], "text", None])
def test_a_forged_summary_of_a_segment_is_broken_and_no_bug_of_ours(tmp_path: Path, data: object) -> None:
    path = write(tmp_path / "events.jsonl", 12, segment_size=1500)
    previous = chain.ZERO
    for file in paths.segments(path):
        out = b""
        for line in file.read_bytes().splitlines():
            event = json.loads(line)
            if event["type"] == "dev.evolver.segment.closed":
                event["data"] = data
            event = {name: value for name, value in event.items() if name not in ("chainversion", "prevhash", "hash")}
            body = json.dumps({**event, "chainversion": 1, "prevhash": previous}, separators=(",", ":")).encode()
            sealed, previous = chain.seal(body[:-1])
            out += sealed
        file.write_bytes(out)
    (tmp_path / "head").unlink()
    done = evolver("audit", "verify", "--json", str(path), cwd=tmp_path)
    bad = json.loads(done.stdout)["first_bad"]
    assert done.returncode == 8 and bad["kind"] == "damaged" and bad["file"].endswith("events.000001.jsonl")


@pytest.mark.parametrize("name", [".", "/", ".."])
def test_a_folder_is_no_event_stream(place: Path, name: str) -> None:
    code, report = verified(place, name)
    assert code == 9 and report["status"] == "unknown"


def test_how_many_events_were_good_before_the_first_bad_one(place: Path) -> None:
    path = write(log_of(place), 50)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    code, report = verified(place)
    bad = report["first_bad"]
    assert code == 8 and isinstance(bad, dict) and report["events"] == bad["line"] - 1 > 10


def test_a_reader_that_went_away_changes_no_verdict(place: Path) -> None:
    path = write(log_of(place), 5)
    path.write_bytes(path.read_bytes().replace(b"event 2", b"event 3"))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*EVOLVER, "audit", "verify"], cwd=place, stdout=writing, stderr=subprocess.PIPE, timeout=30)
    finally:
        os.close(writing)
    assert done.returncode == 8 and done.stderr == b""


def test_the_worktrees_own_log_has_its_anchors_also_when_it_is_named(place: Path, tmp_path: Path) -> None:
    path = write(log_of(place), 30, mirror=boat(place))
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-3]))
    (path.parent / "head").unlink()
    for words, cwd in (((), place), ((str(path),), place), ((str(path),), tmp_path), ((".git/evolver/events.jsonl",), place)):
        code, report = verified(place, *words, cwd=cwd)
        assert (code, report["anchors"]) == (8, "truncated"), words


def test_a_log_replaced_together_with_its_head_is_told_by_what_the_lifeboat_remembers(place: Path) -> None:
    path = write(log_of(place), 30, mirror=boat(place))
    last = json.loads(path.read_bytes().splitlines()[-1])
    path.unlink()
    (path.parent / "head").unlink()
    write(path, 10)
    code, report = verified(place)
    assert code == 0 and "another stream" in str(report["caveats"]) and last["hash"] in str(report["caveats"])
    with EventLog.open(path, source="/test", mirror=boat(place)):
        pass
    told = [json.loads(line) for line in lines(path) if b"log.recovered" in line]
    assert len(told) == 1 and last["hash"] in told[0]["data"]["reason"]
    assert "another stream" not in str(verified(place)[1]["caveats"])  # once: from now on this one is remembered
    write(path, 1, mirror=boat(place))
    assert sum(b"log.recovered" in line for line in lines(path)) == 1


def test_a_closed_segment_that_was_cut_says_that_its_end_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "log/events.jsonl", 12, segment_size=1500)
    first = paths.closed_segments(path)[0][1]
    whole = evolver("audit", "verify", str(first), cwd=tmp_path)
    assert whole.returncode == 0 and b"does not end" not in whole.stdout
    (tmp_path / "alone").mkdir()
    cut = tmp_path / "alone" / first.name
    cut.write_bytes(b"".join(first.read_bytes().splitlines(True)[:-1]))
    done = evolver("audit", "verify", str(cut), cwd=tmp_path)
    assert done.returncode == 0 and b"does not end with segment.closed" in done.stdout


def test_a_gigabyte_of_nothing_is_told_from_a_log_at_once(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(1 << 30)
    begun = time.monotonic()
    assert evolver("audit", "verify", str(tmp_path / "zeros"), cwd=tmp_path).returncode == 9
    assert time.monotonic() - begun < 8


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_garbage_that_an_agent_appends_costs_no_more_than_its_length(tmp_path: Path, ending: bytes) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog.open(path, source="/test") as log:
        log.emit(pause())
        with path.open("ab") as out:
            for _ in range(100):
                out.write(b"x" * (1 << 20))
            out.write(ending)
        begun = time.monotonic()
        if ending:
            with pytest.raises(LogError):
                log.emit(pause())
        else:  # as a writer leaves it that died
            log.emit(pause())
            (kept,) = tmp_path.glob("*.torn-*")
            assert kept.stat().st_size == 100 << 20
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize("what", ["symlink", "folder", "fifo"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_what_stands_in_the_place_of_the_log_between_runs_is_never_followed(tmp_path: Path, what: str, mirrored: bool) -> None:
    mirror = tmp_path / "boat" if mirrored else None
    path = write(tmp_path / "log/events.jsonl", 5, mirror=mirror)
    shutil.move(path, tmp_path / "taken")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "symlink":
        path.symlink_to(elsewhere / "new.jsonl")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    if mirrored:  # the lifeboat's copy leads to the last hash
        write(path, 1, mirror=mirror)
        kinds = [json.loads(line)["type"] for line in lines(path)]
        assert "dev.evolver.log.recovered" in kinds and kinds.count("dev.evolver.run.paused") == 6
    else:
        with pytest.raises(LogError, match="replaced"):
            write(path, 1)
        assert b"alert.log_tampered" in path.read_bytes()
        write(path, 1)
    assert list(elsewhere.iterdir()) == [] and path.is_file() and not path.is_symlink()


def test_what_a_dead_run_wrote_is_kept_beside_what_it_was_replaced_by(tmp_path: Path) -> None:
    """The run is dead and its lifeboat still has its log; the file beside git was replaced by an edited copy of it."""
    path = write(tmp_path / "log/events.jsonl", 5, mirror=tmp_path / "boat")
    written = path.read_bytes()
    path.unlink()
    path.write_bytes(written.replace(b"event 4", b"event 5"))
    with pytest.raises(LogError):
        write(path, 1, mirror=tmp_path / "boat")
    kept = [file.read_bytes() for file in path.parent.glob("events.*")]
    assert written in kept and written.replace(b"event 4", b"event 5") in kept


# ---------------------------------------------------------------- events


def follower(place: Path, *prefix: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*prefix, *EVOLVER, "events", "-f"], cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_following_outlives_a_folder_that_became_a_file(place: Path) -> None:
    path = write(log_of(place), 5)
    process = follower(place)
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(6)]
    path.parent.rename(place / ".git/away")
    path.parent.touch()
    time.sleep(1.5)
    path.parent.unlink()
    (place / ".git/away").rename(path.parent)
    write(path, 2)
    rest = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert [line.rstrip(b"\n") for line in first + rest] == lines(path) and b"bug" not in errors and process.returncode == 130


def test_following_needs_no_notification_when_the_user_has_no_watch_left(place: Path) -> None:
    """In a user namespace of its own, whose limit is nobody else's."""
    shell = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    namespace = ("unshare", "-Ur", "sh", "-c", shell, "sh")
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("no user namespace can be made here")
    path = write(log_of(place), 2)
    process = follower(place, *namespace)
    assert process.stdout is not None
    assert len([process.stdout.readline() for _ in range(3)]) == 3
    write(path, 1)
    assert b"event 0" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert b"bug" not in errors and b"Traceback" not in errors


@pytest.mark.parametrize("run", ["", "0", "f" * 36, "f" * 40])
def test_a_run_that_is_not_there_is_exit_2_however_it_is_named(place: Path, run: str) -> None:
    with EventLog.open(log_of(place), source="/test") as log:
        log.emit(pause(), run_id="11900000-0000-7000-8000-000000000001")
    done = evolver("events", "--run", run, cwd=place)
    assert done.returncode == 2 and done.stdout == b"" and b"no such run" in done.stderr
    assert evolver("events", "--run", "119", cwd=place).stdout.count(b"\n") == 1


@pytest.mark.parametrize("what", ["folder", "fifo"])
def test_what_only_has_the_name_of_a_segment_is_passed_by(place: Path, what: str) -> None:
    path = write(log_of(place), 3)
    planted = path.with_name("events.000007.jsonl")
    planted.mkdir() if what == "folder" else os.mkfifo(planted)
    assert evolver("events", cwd=place).stdout.count(b"\n") == 4
    assert verified(place)[0] == 0
    write(path, 30, segment_size=1500)
    assert len(paths.closed_segments(path)) > 7 and planted.is_file()  # moved aside when its number came
    assert verified(place)[0] == 0 and evolver("events", cwd=place).returncode == 0
