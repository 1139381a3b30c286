"""The log after a fault: what another process wrote meanwhile is never lost, and what was to be told is told later."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from evolver.errors import LogError
from evolver.events import paths
from evolver.events.log import EventLog
from evolver.events.verify import head_anchors, verify

from .streams import lines, pause


def test_a_rotation_that_failed_half_way_overwrites_no_segment_that_another_process_made(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog.open(path, source="/one", segment_size=2000) as one, EventLog.open(path, source="/two") as two:
        one.emit(pause())
        while path.stat().st_size < 2000:
            one.emit(pause())
        (tmp_path / "events.jsonl.new").mkdir()  # stands for a disk that has no room for a new file
        with pytest.raises(LogError):
            one.emit(pause("no room"))
        assert not path.exists() and paths.closed_segments(path)
        (tmp_path / "events.jsonl.new").rmdir()
        others = [two.emit(pause("of the other")).id for _ in range(3)]
        one.emit(pause("room again"))
        two.emit(pause("and on"))
    assert [id_ for id_ in others if not any(id_.encode() in line for line in lines(path))] == []
    report = verify(paths.segments(path), head_anchors(path, None))
    assert (report.status, report.anchors) == ("intact", "consistent")


def test_a_torn_tail_is_still_reported_when_there_was_no_room_to_do_so_at_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EventLog.open(path, source="/one") as log:
        for _ in range(20):
            log.emit(pause())
        whole = path.stat().st_size
        with path.open("ab") as out:
            out.write(b'{"specversion":"1.0"')  # another writer died
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole, hard))
        try:
            with pytest.raises(LogError):
                log.emit(pause("no room"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        log.emit(pause("room again"))
    assert [json.loads(line)["type"].removeprefix("dev.evolver.") for line in lines(path)[-2:]] == ["log.recovered", "run.paused"]
