"""`evolver audit verify`: everything that can be done to a log is caught and named."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evolver.events import chain, paths
from evolver.events.verify import Anchor, Report, head_anchors, verify

from .streams import evolver, lines, write


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log" / "events.jsonl", 199)


def check(path: Path, anchors: list[Anchor]) -> Report:
    return verify([path], anchors)


class Scratch:
    """A file that is written anew some hundred thousand times: in memory, where the system has such files."""

    def __init__(self, folder: Path) -> None:
        if sys.platform == "linux":
            self._fd = os.memfd_create("log")
            self.path = Path(f"/proc/self/fd/{self._fd}")
        else:
            self.path = folder / "copy.jsonl"
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT)

    def write(self, content: bytes) -> Path:
        os.ftruncate(self._fd, len(content))
        os.pwrite(self._fd, content, 0)
        return self.path

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(tmp_path)
    yield made
    made.close()


def test_every_byte_flip_drop_swap_duplication_and_cut_of_200_events_is_caught(log: Path, scratch: Scratch) -> None:
    """Counted and printed. Flips, drops, swaps, duplications by the chain; cuts at the end by the head."""
    anchors = head_anchors(log, None)
    content = log.read_bytes()
    all_lines = content.splitlines(keepends=True)
    assert len(all_lines) == 200 and check(log, anchors).status == "intact"
    caught = dict.fromkeys(("flips", "drops", "swaps", "duplications", "cuts"), 0)

    def tried(kind: str, changed: bytes) -> None:
        report = check(scratch.write(changed), anchors)
        assert report.status != "intact" and report.first_bad is not None, (kind, changed[:200])
        caught[kind] += 1

    # A line stands between its neighbours: flipping its bytes in a log of these three is the same question as in the whole.
    starts = [0]
    for line in all_lines:
        starts.append(starts[-1] + len(line))
    for index, line in enumerate(all_lines):
        first = max(0, index - 1)
        around = content[starts[first] : starts[min(index + 2, 200)]]
        at = starts[index] - starts[first]
        end = json.loads(all_lines[min(index + 1, 199)])
        anchor = [Anchor("end", end["sequence"], end["hash"])]
        for position in range(len(line)):
            changed = bytearray(around)
            changed[at + position] ^= 1 << (position % 8)
            report = verify([scratch.write(bytes(changed))], anchor, whole=first == 0)
            assert report.status != "intact", (index, position)
            caught["flips"] += 1
    for index in range(200):
        tried("drops", b"".join(all_lines[:index] + all_lines[index + 1 :]))
        tried("duplications", b"".join([*all_lines[: index + 1], all_lines[index], *all_lines[index + 1 :]]))
        if index < 199:
            swapped = [*all_lines[:index], all_lines[index + 1], all_lines[index], *all_lines[index + 2 :]]
            tried("swaps", b"".join(swapped))
    for size in [*starts[:-1], *range(1, len(content), 97)]:
        tried("cuts", content[:size])
    print(f"caught: {caught}")
    assert caught["flips"] == len(content) and caught["drops"] == 200 and caught["swaps"] == 199


@pytest.mark.nightly
def test_every_byte_flip_in_the_whole_file(log: Path, scratch: Scratch) -> None:
    content, anchors = log.read_bytes(), head_anchors(log, None)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << (position % 8)
        assert check(scratch.write(bytes(changed)), anchors).status != "intact", position


def test_a_sample_of_flips_by_the_command_line(log: Path) -> None:
    content = log.read_bytes()
    for position in (0, 5, 77, 500, len(content) // 2, len(content) - 2, len(content) - 1):
        changed = bytearray(content)
        changed[position] ^= 0x11
        log.write_bytes(changed)
        done = evolver("audit", "verify", "--json", str(log), cwd=log.parent)
        report = json.loads(done.stdout)
        assert done.returncode == 8 and report["status"] == "broken" and report["first_bad"]["line"] >= 0, (position, report)


def edit(how: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        path.write_bytes(b"".join(how(path.read_bytes().splitlines(keepends=True))))

    return act


def reseal(line: bytes, old: bytes, new: bytes) -> bytes:
    """The line with some bytes replaced and its hash made right again."""
    assert old in line
    return chain.seal(line[: -chain.TAIL - 1].replace(old, new))[0]


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "not ours": (lambda p: p.write_text("hello\n"), 9, "not an event stream"),
    "emptied": (lambda p: p.write_bytes(b""), 8, "empty"),
    "empty": (lambda p: p.write_bytes(b"") or p.with_name("head").rename(p.with_name("x")), 9, "empty"),
    "missing": (lambda p: p.unlink(), 9, "no such file"),
    "a folder": (make_folder, 9, "regular file|directory"),
    "byte flipped": (edit(lambda x: [*x[:4], x[4].replace(b"event 3", b"event 4"), *x[5:]]), 8, "damaged"),
    "line dropped": (edit(lambda x: x[:4] + x[5:]), 8, "dropped"),
    "lines swapped": (edit(lambda x: [*x[:4], x[5], x[4], *x[6:]]), 8, "dropped"),
    "line doubled": (edit(lambda x: [*x[:5], x[4], *x[5:]]), 8, "duplicated"),
    "an old line again": (edit(lambda x: [*x[:5], x[2], *x[5:]]), 8, "out of order"),
    "a blank line": (edit(lambda x: [*x[:5], b"\n", *x[5:]]), 8, "malformed"),
    "a foreign line": (edit(lambda x: [*x[:5], b'{"a":1}\n', *x[5:]]), 8, "malformed"),
    "first event dropped": (edit(lambda x: x[1:]), 8, "segment.opened"),
    "forged first event": (edit(lambda x: [reseal(x[0], b"/test", b"/best"), *x[1:]]), 8, "damaged|does not follow"),
    "forged line in the middle": (edit(lambda x: [*x[:4], reseal(x[4], b"event 3", b"event 4"), *x[5:]]), 8, "does not follow"),
    "future chain version": (
        edit(lambda x: [line.replace(b'"chainversion":1', b'"chainversion":9')[:-40] + b"f" * 37 + b'"}\n' for line in x]),
        9,
        "newer",
    ),
    "version changed in the middle": (
        edit(lambda x: [*x[:4], x[4].replace(b'"chainversion":1', b'"chainversion":2'), *x[5:]]),
        8,
        "damaged|version",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_by_file_and_line_never_a_traceback(log: Path, name: str) -> None:
    act, status, kind = BAD[name]
    act(log)
    done = evolver("audit", "verify", str(log), "--json", cwd=log.parent)
    assert done.returncode == status and b"Traceback" not in done.stderr, done
    report = json.loads(done.stdout)
    assert list(report) == ["status", "events", "segments", "first_bad", "anchors", "torn_tail", "caveats"]
    assert list(report["first_bad"]) == ["file", "line", "sequence", "kind"] and report["first_bad"]["file"] == str(log)
    assert re.search(kind, report["first_bad"]["kind"]), report["first_bad"]
    said = evolver("audit", "verify", str(log), cwd=log.parent).stdout.decode()
    where = f"{log}:{report['first_bad']['line']}" if report["first_bad"]["line"] else str(log)
    assert where in said and ("BROKEN" in said or "cannot tell" in said)


def test_an_intact_log_exits_0_and_says_what_that_does_not_prove(log: Path) -> None:
    done = evolver("audit", "verify", str(log), cwd=log.parent)
    assert done.returncode == 0 and b"intact: 200 events in 1 segment, anchors consistent" in done.stdout
    assert b"same user" in done.stdout and b"signature" in done.stdout


def test_8_outranks_9(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(log.read_bytes().replace(b"event 7", b"event 8"))
    assert evolver("audit", "verify", str(tmp_path / "none"), str(broken), str(log), cwd=tmp_path).returncode == 8
    assert evolver("audit", "verify", str(tmp_path / "none"), str(log), cwd=tmp_path).returncode == 9


def test_a_whole_forged_log_is_caught_by_the_anchor(log: Path, tmp_path: Path) -> None:
    forged = write(tmp_path / "forged" / "events.jsonl", 199)
    shutil.copy(forged, log)
    report = check(log, head_anchors(log, None))
    assert (report.status, report.anchors) == ("broken", "rewritten")
    assert verify([log]).anchors == "none" and any("cut from the end" in c for c in verify([log]).caveats)


def test_a_head_behind_the_log_is_consistent(log: Path) -> None:
    """Killed between the append and the head."""
    head = (log.parent / "head").read_bytes()
    write(log, 5)
    (log.parent / "head").write_bytes(head)
    assert check(log, head_anchors(log, None)).anchors == "consistent"


def test_a_torn_tail_is_told_and_is_no_damage(log: Path) -> None:
    with log.open("ab") as stream:
        stream.write(b'{"specversion":"1.0","id":"half')
    report = check(log, head_anchors(log, None))
    assert report.status == "intact" and report.torn_tail


def test_segments_are_one_chain(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 60, segment_size=4000)
    files = paths.segments(path)
    report = verify(files, head_anchors(path, None))
    assert report.status == "intact" and report.segments == len(files) > 4 and report.events == len(lines(path))
    middle = files[2]
    content = middle.read_bytes()
    middle.unlink()
    assert verify(paths.segments(path)).status == "broken"
    middle.write_bytes(content[: content[:-1].rindex(b"\n") + 1])  # without its summary
    assert verify(paths.segments(path)).status == "broken"
    middle.write_bytes(content)
    files[0].unlink()
    report = verify(paths.segments(path))
    assert report.status == "broken" and report.first_bad is not None and report.first_bad.kind == "missing segment"
    done = evolver("audit", "verify", str(files[1]), str(files[2]), "--json", cwd=tmp_path)
    assert done.returncode == 0 and "only part" in done.stdout.decode().lower()


def test_fields_in_another_order_still_verify(tmp_path: Path) -> None:
    """Nothing is serialised again: spaces, escapes and unknown fields of another writer are just bytes."""
    path = write(tmp_path / "events.jsonl", 1)
    last = json.loads(lines(path)[-1])
    body = (
        b'{"zzz": {"new": [1]}, "specversion":"1.0","id":"01900000-0000-7000-8000-000000000009","source":"/other",'
        b'"type":"dev.evolver.new.kind","time":"2030-01-01T00:00:00.000000Z","severity":"info",'
        b'"data":{"sequence":99,"text":"caf\\u00e9"},"sequence" : 3,"chainversion":1,"prevhash":"'
        + last["hash"].encode()
        + b'"'
    )
    with path.open("ab") as stream:
        stream.write(chain.seal(body)[0])
    assert verify([path]).status == "intact" and verify([path]).events == 3
    done = evolver("events", cwd=tmp_path, EVOLVER_EVENTS=str(path))
    assert b'"zzz": {"new": [1]}' in done.stdout  # passes through untouched


def test_verifying_takes_constant_memory(tmp_path: Path) -> None:
    import resource

    path = write(tmp_path / "events.jsonl", 3)
    verify([path])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    big = tmp_path / "big.jsonl"
    previous, out = chain.ZERO, big.open("wb")
    opening = lines(path)[0][: -chain.TAIL]
    with out:
        for sequence in range(1, 60_001):
            body = opening.replace(b'"sequence":1,', b'"sequence":%d,' % sequence).replace(
                chain.ZERO.encode(), previous.encode()
            )
            line, previous = chain.seal(body)
            out.write(line)
    assert verify([big]).events == 60_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev"])
def test_what_is_no_regular_file_cannot_be_told(device: str) -> None:
    report = verify([Path(device)])
    assert report.status == "unknown"
    assert report.first_bad is not None and report.first_bad.kind == "no regular file"
