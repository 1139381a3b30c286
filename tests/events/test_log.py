"""The append-only log: what it writes, what it adopts, what it refuses, what it reports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evolver.errors import LogError
from evolver.events import chain, paths
from evolver.events.ids import uuid7
from evolver.events.log import EventLog, Genesis
from evolver.events.verify import head_anchors, verify

from .streams import RUN, lines, pause, write


def open_log(path: Path, **options: object) -> EventLog:
    return EventLog.open(path, source="/test", **options)  # type: ignore[arg-type]


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["type"].removeprefix("dev.evolver.") for line in lines(path)]


def intact(path: Path) -> bool:
    report = verify(paths.segments(path), head_anchors(path, None))
    return report.status == "intact" and report.anchors == "consistent"


def test_uuid7_is_version_7_and_sorts_by_time() -> None:
    made = [uuid7() for _ in range(2000)]
    assert all(u[14] == "7" and u[19] in "89ab" for u in made) and len(set(made)) == 2000
    assert [u[:13] for u in made] == sorted(u[:13] for u in made)


def test_line_ends_with_the_fixed_tail_and_its_hash_is_over_the_bytes_before_it(tmp_path: Path) -> None:
    from hashlib import sha256

    path = write(tmp_path / "events.jsonl", 3)
    previous = "0" * 64
    for number, line in enumerate(lines(path), 1):
        data = json.loads(line)
        assert list(data)[-3:] == ["chainversion", "prevhash", "hash"]
        assert line[-75:] == b',"hash":"' + data["hash"].encode() + b'"}'
        assert sha256(b"evolver.event.v1\0" + line[:-75]).hexdigest() == data["hash"]
        assert (data["sequence"], data["prevhash"]) == (number, previous)
        previous = data["hash"]


def test_first_event_of_a_segment_carries_the_definition_in_force(tmp_path: Path) -> None:
    genesis = Genesis(definition_hash="d" * 64, validators=("a" * 64, "b" * 64), pre_ref="c" * 40, version="1.2.3")
    with open_log(tmp_path / "events.jsonl", genesis=genesis, segment_size=1500) as log:
        for _ in range(6):
            log.emit(pause())
    opened = [json.loads(line) for line in lines(log.path) if b"segment.opened" in line]
    assert len(opened) > 1
    for before, event in zip([None, *opened], opened, strict=False):
        data = event["data"]
        assert (data["definition_hash"], data["validators"], data["pre_ref"], data["version"]) == (
            "d" * 64, ["a" * 64, "b" * 64], "c" * 40, "1.2.3",
        )  # fmt: skip
        assert data["previous_hash"] == (event["prevhash"] if before else None)


def test_subject_is_the_iteration_else_the_run_else_absent(tmp_path: Path) -> None:
    with open_log(tmp_path / "events.jsonl") as log:
        assert log.emit(pause(), run_id=RUN, iteration=4).subject == f"{RUN}/4"
        assert log.emit(pause(), run_id=RUN).subject == RUN
        assert log.emit(pause()).subject is None
        assert log.bind(RUN).emit(pause(), iteration=1).runid == RUN
    assert "subject" not in json.loads(lines(log.path)[-2])


def test_undecodable_path_bytes_are_written_as_escapes(tmp_path: Path) -> None:
    with open_log(tmp_path / "events.jsonl") as log:
        log.emit(pause(os.fsdecode(b"caf\xe9\xff \xc3\xa9\n")))
    assert json.loads(lines(log.path)[-1])["data"]["reason"] == "caf\\xe9\\xff é\n"


def test_rotation_states_hash_count_and_bytes_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 40, segment_size=4000)
    closed = paths.closed_segments(path)
    assert [n for n, _ in closed] == list(range(1, len(closed) + 1)) and len(closed) >= 4
    for _, file in closed:
        content = file.read_bytes().splitlines()
        last = json.loads(content[-1])
        assert last["type"] == "dev.evolver.segment.closed"
        assert last["data"]["count"] == len(content) - 1
        assert last["data"]["bytes"] == file.stat().st_size - len(content[-1]) - 1
        assert last["data"]["last_hash"] == json.loads(content[-2])["hash"]
    assert intact(path)


def test_killed_between_the_summary_and_the_rename(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 40, segment_size=4000)
    _, last = paths.closed_segments(path)[-1]
    path.unlink()
    last.rename(path)  # as it was just before the rename
    (tmp_path / "head").unlink()
    write(path, 3, segment_size=4000)
    assert intact(path) and kinds(path).count("segment.closed") == len(paths.closed_segments(path))


def test_killed_between_the_rename_and_the_new_segment(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 40, segment_size=4000)
    path.unlink()
    (tmp_path / "head").unlink()
    write(path, 1, segment_size=4000)
    assert intact(path)


def test_a_torn_last_line_is_set_aside_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 5)
    with path.open("ab") as stream:
        stream.write(b'{"specversion":"1.0","id":"half a li')
    with open_log(path) as log:
        log.emit(pause("after"))
    event = next(json.loads(line) for line in lines(path) if b"log.recovered" in line)
    assert event["data"]["torn_bytes"] == 36
    assert (tmp_path / event["data"]["kept_as"]).read_bytes() == b'{"specversion":"1.0","id":"half a li'
    assert intact(path)


def test_a_first_line_torn_on_a_full_disk_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"specversion":"1.0","id":"018')
    write(path, 1)
    assert "log.recovered" in kinds(path) and intact(path)


@pytest.mark.parametrize("content", [b"root:x:0:0\n", b"\0" * 5000, b'{"a":1}\n', b"no newline", b"\n", b"\xff\xfe\n\n"])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(LogError) as caught:
        open_log(path)
    assert caught.value.exit_code == 8 and str(path) in caught.value.message
    assert path.read_bytes() == content


def test_odd_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder"):
        with pytest.raises(LogError):
            open_log(tmp_path / name)
    with pytest.raises(LogError):
        open_log(Path("/dev/null/events.jsonl"))
    write(tmp_path / "empty.jsonl", 0)
    (tmp_path / "touched.jsonl").touch()
    write(tmp_path / "touched.jsonl", 1)
    assert intact(tmp_path / "touched.jsonl")


def test_a_log_of_a_newer_chain_version_is_refused_untouched(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 1)
    future = path.read_bytes().replace(b'"chainversion":1', b'"chainversion":2')
    path.write_bytes(future)
    with pytest.raises(LogError, match="newer"):
        open_log(path)
    assert path.read_bytes() == future


# ---------------------------------------------------------------- other writers


def test_other_processes_append_and_that_is_no_tampering(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with open_log(path, segment_size=3000) as one, open_log(path, segment_size=3000) as two:
        for _ in range(15):
            one.emit(pause("one"))
            two.emit(pause("two"))
    assert kinds(path).count("run.paused") == 30 and intact(path)


def test_a_touched_or_chmodded_log_is_no_tampering(tmp_path: Path) -> None:
    with open_log(tmp_path / "events.jsonl") as log:
        log.emit(pause())
        log.path.chmod(0o600)
        log.emit(pause())
        os.utime(log.path)
        os.link(log.path, tmp_path / "backup")
        (tmp_path / "head").unlink()
        log.emit(pause())
    assert intact(log.path)


WRITER = """
import sys
from pathlib import Path
from evolver.errors import LogError
from evolver.events.log import EventLog
from evolver.events.types import RunPaused
try:
    with EventLog.open(Path(sys.argv[1]), source="/w", segment_size=int(sys.argv[3])) as log:
        for number in range(int(sys.argv[2])):
            log.emit(RunPaused(from_="a", to="b", reason=sys.argv[4] + " " + "x" * (number * 37 % 3000)))
except LogError as error:
    print(error.message)
    sys.exit(int(error.exit_code))
"""


def writers(path: Path, count: int, size: int, how_many: int = 8) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(count), str(size), f"w{n}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n in range(how_many)
    ]  # fmt: skip


def test_8_writers_at_once_write_no_torn_or_interleaved_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for process in writers(path, 25, 60_000):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, (out, err)
    assert kinds(path).count("run.paused") == 200 and intact(path)
    assert len(paths.closed_segments(path)) > 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
def test_8_writers_on_a_full_disk_tear_no_line_and_exit_8(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        path = small / "events.jsonl"
        running = writers(path, 200, 64 << 20)
        ended = [(process.communicate(timeout=60), process.returncode) for process in running]
        assert {code for _, code in ended} == {8}, ended
        assert all(b"cannot be written: no space" in out or b"No space" in out for (out, _), _ in ended), ended
        content = path.read_bytes()
        assert content.endswith(b"\n") and all(chain.intact(line) for line in content.splitlines())
        report = verify([path])
        assert report.status == "intact" and not report.torn_tail and report.events > 20
    finally:
        subprocess.run(["umount", str(small)], check=True)


# ---------------------------------------------------------------- tampering


def tampered(log: EventLog) -> str:
    """Emit, which must fail with exit 8; the alert's kind, read from the fresh segment."""
    with pytest.raises(LogError) as caught:
        log.emit(pause("never written"))
    assert caught.value.exit_code == 8
    opened, alert = (json.loads(line) for line in log.path.read_bytes().splitlines())
    assert opened["type"] == "dev.evolver.segment.opened" and alert["type"] == "dev.evolver.alert.log_tampered"
    assert alert["severity"] == "alert" and alert["data"]["found"]
    log.emit(pause("the loop still has to roll back"))
    return str(alert["data"]["kind"])


def filled(path: Path, mirror: Path | None = None) -> EventLog:
    log = open_log(path, mirror=mirror)
    for number in range(5):
        log.emit(pause(f"event {number}"))
    return log


def test_cut_in_place(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.jsonl")
    os.truncate(log.path, 700)
    assert tampered(log) == "truncated"
    report = verify(paths.segments(log.path), head_anchors(log.path, None))
    assert report.status == "broken" and report.first_bad is not None and "000001" in report.first_bad.file


def test_cut_at_a_line(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.jsonl", tmp_path / "boat")
    os.truncate(log.path, log.path.read_bytes()[:-1].rindex(b"\n") + 1)
    assert tampered(log) == "truncated"
    report = verify(paths.segments(log.path))
    assert report.status == "broken" and report.first_bad is not None and report.first_bad.kind == "dropped"


def test_edited_in_place(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.jsonl", tmp_path / "boat")
    with log.path.open("r+b") as stream:
        stream.seek(log.path.read_bytes().index(b"event 2"))
        stream.write(b"EVENT 2")
    assert tampered(log) == "edited"
    assert verify(paths.segments(log.path)).status == "broken"


def test_edited_in_place_behind_an_honest_append(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.jsonl")
    with log.path.open("r+b") as stream:
        stream.seek(log.path.read_bytes().index(b"event 2"))
        stream.write(b"EVENT 2")
        stream.seek(0, 2)
        stream.write(b"more\n")
    assert tampered(log) == "edited"


def test_replaced_by_sed(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.jsonl", tmp_path / "boat")
    before = log.path.read_bytes()
    subprocess.run(["sed", "-i", "s/event 2/EVENT 2/", str(log.path)], check=True)
    assert tampered(log) == "replaced"
    assert (tmp_path / "events.000001.jsonl.original").read_bytes() == before  # what we wrote is kept as evidence


@pytest.mark.parametrize("what", ["folder", "symlink", "fifo"])
def test_replaced_by_something_odd(tmp_path: Path, what: str) -> None:
    log = filled(tmp_path / "events.jsonl")
    log.path.unlink()
    if what == "folder":
        log.path.mkdir()
    elif what == "fifo":
        os.mkfifo(log.path)
    else:
        log.path.symlink_to("/etc/passwd")
    assert tampered(log) == "replaced"


def test_a_symlinked_head_is_moved_aside_and_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    log = filled(tmp_path / "log" / "events.jsonl")
    (tmp_path / "log/head").unlink()
    (tmp_path / "log/head").symlink_to(precious)
    log.emit(pause())
    assert precious.read_text() == "mine" and intact(log.path)


def test_cut_between_runs_is_reported_once_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 9)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
    with pytest.raises(LogError) as caught:
        open_log(path)
    assert caught.value.exit_code == 8
    write(path, 1)
    assert kinds(path).count("alert.log_tampered") == 1
    assert verify(paths.segments(path)).status == "broken"  # for ever: it is never repaired


def test_deleted_between_runs_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 3)
    path.unlink()
    with pytest.raises(LogError, match="lost"):
        open_log(path)
    write(path, 1)
    assert "alert.log_tampered" in kinds(path)


def test_damaged_last_line_between_runs_is_reported_never_repaired(tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", 3)
    content = path.read_bytes()
    damaged = content[:-30] + (b"0" if content[-30:-29] != b"0" else b"1") + content[-29:]
    path.write_bytes(damaged)
    with pytest.raises(LogError):
        open_log(path)
    assert (tmp_path / "events.000001.jsonl").read_bytes() == damaged


# ---------------------------------------------------------------- the lifeboat


def test_a_log_deleted_with_its_folder_is_put_back(tmp_path: Path) -> None:
    git = tmp_path / "repo/.git"
    log = open_log(git / "evolver/events.jsonl", mirror=tmp_path / "boat", segment_size=2000)
    for _ in range(15):
        log.emit(pause())
    shutil.rmtree(git)
    log.ensure_present()
    log.emit(pause("after"))
    assert "log.recovered" in kinds(log.path) and "alert.log_tampered" not in kinds(log.path)
    assert len(paths.closed_segments(log.path)) >= 3 and intact(log.path)


def test_a_log_whose_folder_was_replaced_by_an_older_copy_is_put_back(tmp_path: Path) -> None:
    git = tmp_path / "repo/.git"
    log = filled(git / "evolver/events.jsonl", tmp_path / "boat")
    shutil.copytree(git, tmp_path / "copy")
    log.emit(pause("since"))
    shutil.rmtree(git)
    (tmp_path / "copy").rename(git)
    log.emit(pause("after"))
    assert kinds(log.path).count("run.paused") == 7 and intact(log.path)


def test_without_a_lifeboat_the_open_file_itself_brings_it_back(tmp_path: Path) -> None:
    log = filled(tmp_path / "git/evolver/events.jsonl")
    shutil.rmtree(tmp_path / "git")
    log.emit(pause("after"))
    assert kinds(log.path).count("run.paused") == 6 and intact(log.path)


def test_a_log_lost_with_its_run_is_put_back_by_the_next_one(tmp_path: Path) -> None:
    git = tmp_path / "repo/.git"
    write(git / "evolver/events.jsonl", 9, mirror=tmp_path / "boat", segment_size=1500)
    shutil.rmtree(git)
    write(git / "evolver/events.jsonl", 1, mirror=tmp_path / "boat", segment_size=1500)
    assert kinds(git / "evolver/events.jsonl").count("run.paused") == 10
    assert "log.recovered" in kinds(git / "evolver/events.jsonl") and intact(git / "evolver/events.jsonl")


def test_a_tampered_log_is_tampered_also_when_its_folder_is_gone(tmp_path: Path) -> None:
    git = tmp_path / "repo/.git"
    log = filled(git / "evolver/events.jsonl", tmp_path / "boat")
    os.truncate(log.path, 900)  # the lifeboat's hard link with it
    shutil.rmtree(git)
    with pytest.raises(LogError) as caught:
        log.ensure_present()
    assert caught.value.exit_code == 8 and "alert.log_tampered" in kinds(log.path)


def test_a_new_repository_in_an_old_place_starts_a_new_stream(tmp_path: Path) -> None:
    path, boat = tmp_path / "repo/.git/evolver/events.jsonl", tmp_path / "boat"
    with open_log(path, mirror=boat) as log:
        log.emit(pause())
        log.prune_mirror()
    assert [p.name for p in boat.iterdir()] == ["head"]
    shutil.rmtree(tmp_path / "repo")
    with open_log(path, mirror=boat) as log:
        log.emit(pause())
    note = json.loads(lines(path)[1])
    assert note["type"] == "dev.evolver.log.recovered" and "ended at sequence 2" in note["data"]["reason"]
    write(path, 1, mirror=boat)
    assert intact(path)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second filesystem")
def test_on_another_filesystem_the_lifeboat_holds_a_copy(tmp_path: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        git, boat = tmp_path / "git", Path(other) / "boat"
        if git.parent.stat().st_dev == Path(other).stat().st_dev:
            pytest.skip("/dev/shm is the same filesystem")
        with open_log(git / "evolver/events.jsonl", mirror=boat, segment_size=2000) as log:
            for _ in range(9):
                log.emit(pause())
            for file in paths.segments(log.path):
                assert (boat / file.name).read_bytes() == file.read_bytes()
            shutil.rmtree(git)
            log.emit(pause("while it is gone"))
            assert not git.exists()  # a `.git` of our making would hide that it is gone
            log.ensure_present()
            assert kinds(log.path).count("run.paused") == 10 and intact(log.path)
        shutil.rmtree(git)
        write(log.path, 1, mirror=boat)
        assert kinds(log.path).count("run.paused") == 11 and intact(log.path)


def test_startup_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A million lines: open, and read the last one, in the time of a small log."""
    import time

    path = write(tmp_path / "events.jsonl", 1)
    line = lines(path)[-1] + b"\n"
    with path.open("ab") as stream:
        for _ in range(1000):
            stream.write(line * 1000)
    write_end = path.read_bytes()[-len(line) :]
    assert write_end == line
    (tmp_path / "head").unlink()
    begun = time.perf_counter()
    with open_log(path) as log:
        took = time.perf_counter() - begun
        from evolver.events.reader import read_backwards

        assert next(iter(read_backwards(log.path))).sequence == 2
    print(f"opened {path.stat().st_size >> 20} MiB in {took * 1000:.1f} ms")
    assert took < 0.2


def test_importing_the_log_is_cheap() -> None:
    heavy = "{'git','rich','httpx','watchfiles','typer','psutil','tenacity'}"
    code = f"import sys, evolver.events.log; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


@pytest.mark.parametrize("when", ["before our write", "after our write"])
def test_bytes_that_slip_in_while_we_write_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A fast step appends in the milliseconds that a sync takes."""
    log = filled(tmp_path / "events.jsonl", tmp_path / "boat")
    real = os.write

    def slip(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", real)
        if when == "before our write":
            real(fd, b"{}\n")
        written = real(fd, data)
        if when == "after our write":
            real(fd, b"{}\n")
        return written

    monkeypatch.setattr(os, "write", slip)
    log.emit(pause("ours"))
    assert tampered(log) == "edited"


@pytest.mark.parametrize("size", [64 << 20, 20_000])
def test_a_writer_killed_at_any_instant_leaves_a_log_that_goes_on(tmp_path: Path, size: int) -> None:
    """SIGKILL at random instants, rotation included: every line that was told as written is there, and the chain holds."""
    import random
    import time

    generator = random.Random(size)
    path = tmp_path / "events.jsonl"
    for round_ in range(8):
        process = writers(path, 100_000, size, how_many=1)[0]
        before = path.stat().st_size if path.exists() else -1
        deadline = time.monotonic() + 20
        while (path.stat().st_size if path.exists() else -1) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(generator.random() * 0.1)
        process.kill()
        process.communicate()
        told = json.loads((tmp_path / "head").read_bytes())
        with open_log(path, segment_size=size) as log:
            assert log.head is not None and log.head.sequence >= told["sequence"], round_
            log.emit(pause(f"after kill {round_}"))
        assert intact(path)
    assert kinds(path).count("alert.log_tampered") == 0


@pytest.mark.parametrize("name", ["head", "events.jsonl.lock"])
@pytest.mark.parametrize("what", ["folder", "symlink", "fifo"])
def test_what_an_agent_puts_in_the_place_of_a_file_of_ours_is_moved_aside(tmp_path: Path, name: str, what: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    log = filled(tmp_path / "log/events.jsonl")
    target = log.path.with_name(name)
    target.unlink()
    if what == "folder":
        target.mkdir()
        (target / "full").touch()
    elif what == "fifo":
        os.mkfifo(target)
    else:
        target.symlink_to(precious)
    log.emit(pause())
    assert precious.read_text() == "mine" and intact(log.path) and target.is_file() and not target.is_symlink()
