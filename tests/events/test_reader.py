"""`evolver events`: filters, cursors, following, and a person or a pipe at the other end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolver.events.follow import follow, wait_for_removal
from evolver.events.log import EventLog
from evolver.events.reader import Cursor, Filter, read, read_backwards
from evolver.events.tailer import Tailer
from evolver.events.types import AlertStalled, RollbackSkipped

from .streams import EVOLVER, RUN, evolver, pause, write


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "log/events.jsonl", source="/test", segment_size=3000) as opened:
        yield opened


def test_forwards_and_backwards_see_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 50, segment_size=3000)
    forwards = [e.sequence for e in read(path)]
    assert forwards == list(range(1, len(forwards) + 1))
    assert [e.sequence for e in read_backwards(path)] == forwards[::-1]


def test_backwards_over_lines_longer_than_a_block(log: EventLog) -> None:
    for size in (1, 70_000, 200_000, 3, 64 << 10, (64 << 10) - 1):
        log.emit(pause("x" * size))
    found = [json.loads(bytes(e.data))["reason"] for e in read_backwards(log.path) if e.name == "run.paused"]
    assert [len(reason) for reason in found] == [(64 << 10) - 1, 64 << 10, 3, 200_000, 70_000, 1]


def test_filters(log: EventLog, tmp_path: Path) -> None:
    other = "01900000-0000-7000-8000-000000000002"
    first = log.emit(pause("old"), run_id=RUN)
    skipped = RollbackSkipped(
        from_="rejected",
        to="held",
        iteration_id=f"{RUN}/1",
        rollback_mode="none",
        pre_ref="p",
        post_ref=None,
        reason="r",
        vault="v",
    )
    log.emit(skipped, run_id=RUN, iteration=1)
    log.emit(AlertStalled(condition="c", detail="d"), run_id=other)

    def kinds(*words: str) -> list[str]:
        done = evolver("events", *words, cwd=tmp_path, EVOLVER_EVENTS=str(log.path))
        assert done.returncode == 0, done
        return [json.loads(line)["type"].removeprefix("dev.evolver.") for line in done.stdout.splitlines()]

    assert kinds() == ["segment.opened", "run.paused", "rollback.skipped", "alert.stalled"]
    assert kinds("--run", RUN) == ["run.paused", "rollback.skipped"]
    assert kinds("--run", "last") == ["alert.stalled"] == kinds("--run", other[:36])
    assert kinds("--type", "rollback.*") == ["rollback.skipped"] == kinds("--type", "dev.evolver.rollback.*")
    assert kinds("--type", "alert.*", "--type", "run.*") == ["run.paused", "alert.stalled"]
    assert kinds("--status", "held") == ["rollback.skipped"] and kinds("--status", "alert") == ["alert.stalled"]
    assert kinds("--since", "1h") == kinds() and kinds("--until", "1h") == []
    assert kinds("--since", first.time) == kinds()[1:] and kinds("--since", "2999-01-01") == []
    assert kinds("--after", "3") == ["alert.stalled"]


def test_the_cursor_goes_on_where_it_ended_also_across_segments(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 30, segment_size=3000)
    whole = evolver("events", "--after", "0", cwd=tmp_path, EVOLVER_EVENTS=str(path))
    cursor = whole.stderr.decode().strip().removeprefix("cursor: ")
    assert Cursor.parse(cursor).hash
    write(path, 2, segment_size=3000)
    more = evolver("events", "--after", cursor, cwd=tmp_path, EVOLVER_EVENTS=str(path))
    both = [json.loads(line)["sequence"] for line in (whole.stdout + more.stdout).splitlines()]
    assert both == list(range(1, len(both) + 1)) and more.stdout.count(b"run.paused") == 2


def test_a_cursor_of_another_stream_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 5)
    done = evolver("events", "--after", "3:0123456789abcdef", cwd=tmp_path, EVOLVER_EVENTS=str(path))
    assert done.returncode == 2 and b"another event stream" in done.stderr


@pytest.mark.parametrize(
    "words", [("--since", "yesterday"), ("--after", "x"), ("-o", "xml"), ("--run", "nope"), ("--since", "1y")]
)
def test_a_wrong_option_is_exit_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = write(tmp_path / "events.jsonl", 1)
    done = evolver("events", *words, cwd=tmp_path, EVOLVER_EVENTS=str(path))
    assert done.returncode == 2 and words[1].encode() in done.stderr and b"Traceback" not in done.stderr


def test_a_damaged_line_is_named_and_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 5)
    path.write_bytes(path.read_bytes().replace(b'"specversion":"1.0"', b'"specversion:"1.0"', 3))
    done = evolver("events", cwd=tmp_path, EVOLVER_EVENTS=str(path))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 and b"events.jsonl:1 is no event" in done.stderr


def test_text_for_a_person(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 2)
    done = evolver("events", "-o", "text", cwd=tmp_path, EVOLVER_EVENTS=str(path))
    assert b"run.paused" in done.stdout and b"event 1" in done.stdout and b"{" not in done.stdout


def test_no_log_yet_prints_nothing(tmp_path: Path) -> None:
    done = evolver("events", cwd=tmp_path, EVOLVER_EVENTS=str(tmp_path / "none.jsonl"))
    assert (done.returncode, done.stdout) == (0, b"")


# ---------------------------------------------------------------- following


def following(path: Path, *words: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "EVOLVER_EVENTS": str(path)}
    return subprocess.Popen(
        [*EVOLVER, "events", "-f", *words], cwd=path.parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_following_across_rotations_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 20, segment_size=2500)
    process = following(path)
    assert process.stdout is not None
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(json.loads(line)["sequence"] for line in process.stdout or ()))
    reader.start()
    time.sleep(0.4)
    with EventLog.open(path, source="/test", segment_size=2500) as log:
        for number in range(60):
            last = log.emit(pause(f"more {number}")).sequence
            if number % 10 == 0:
                time.sleep(0.05)
    deadline = time.monotonic() + 10
    while (not seen or seen[-1] < last) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    reader.join(10)
    assert seen == list(range(1, last + 1))
    assert process.wait(10) == 130 and b"Traceback" not in (process.stderr.read() if process.stderr else b"")
    process.communicate()


def test_events_f_into_head_ends_quietly(tmp_path: Path) -> None:
    """Also when nothing more is ever written."""
    path = write(tmp_path / "events.jsonl", 10)
    begun = time.monotonic()
    command = f"{' '.join(EVOLVER)} events -f | head -3; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "EVOLVER_EVENTS": str(path)}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, timeout=20)
    assert len(done.stdout.splitlines()) == 3 and done.stderr == b"" and done.returncode == 0
    assert time.monotonic() - begun < 8
    done = subprocess.run(["bash", "-c", command.replace(" -f", "")], cwd=tmp_path, env=env, capture_output=True, timeout=20)
    assert (len(done.stdout.splitlines()), done.stderr, done.returncode) == (3, b"", 0)


def test_following_a_log_that_does_not_exist_yet_and_its_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "later/events.jsonl"
    stop = threading.Event()
    seen: list[str] = []

    def watch() -> None:
        for record in follow(path, Filter(types=("run.*",)), stop=stop.is_set):
            seen.append(json.loads(bytes(record.envelope.data))["reason"])

    thread = threading.Thread(target=watch)
    thread.start()
    time.sleep(0.3)
    source = write(tmp_path / "events.jsonl", 3).read_bytes()
    path.parent.mkdir()
    half = len(source) - 100
    path.write_bytes(source[:half])
    time.sleep(0.3)
    assert seen == ["event 0", "event 1"]
    with path.open("ab") as stream:
        stream.write(source[half:])
    deadline = time.monotonic() + 5
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    thread.join(5)
    assert seen == ["event 0", "event 1", "event 2"]


def test_a_cut_log_is_named_and_followed_on(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 5)
    notes: list[str] = []
    tailer = Tailer(path, notes.append)
    assert len(list(tailer.new())) == 6
    content = path.read_bytes()
    path.write_bytes(content[:900])
    assert list(tailer.new()) == [] and "was cut" in notes[0]
    path.write_bytes(content)
    write(path, 1)
    assert [r.envelope.sequence for r in tailer.new()] == [7]
    tailer.close()


def test_waiting_ends_the_moment_the_lock_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "resume.lock"
    lock.touch()
    removed: list[float] = []

    def remove() -> None:
        time.sleep(0.5)
        removed.append(time.monotonic())
        lock.unlink()

    threading.Thread(target=remove).start()
    assert wait_for_removal(lock, lambda: False)
    assert time.monotonic() - removed[0] < 0.5
    assert wait_for_removal(lock, lambda: False)  # gone already
    lock.touch()
    assert not wait_for_removal(lock, lambda: True)


def test_reading_and_verifying_while_a_log_rotates_sees_a_whole_log(tmp_path: Path) -> None:
    """Names change under the readers' hands; no line is missing, no alarm is false."""
    path = write(tmp_path / "events.jsonl", 1, segment_size=2000)
    stop = threading.Event()

    def keep_writing() -> None:
        with EventLog.open(path, source="/test", segment_size=2000) as log:
            while not stop.is_set():
                log.emit(pause("x" * 300))

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        from evolver.cli.audit import check

        seen = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            forwards = [e.sequence for e in read(path)]
            assert forwards == list(range(1, len(forwards) + 1)) and len(forwards) >= seen
            seen = len(forwards)
            backwards = [e.sequence for e in read_backwards(path)]
            assert backwards == list(range(len(backwards), 0, -1)) and len(backwards) >= seen
            report = check(tmp_path, [path])
            assert report.status == "intact", report
        assert seen > 20
    finally:
        stop.set()
        thread.join()
