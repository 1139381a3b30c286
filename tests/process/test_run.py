"""`process.run`: output, exits, timeouts, grace."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.process import TAIL_BYTES, Command, output, run
from evolver.redact import Redactor

from .conftest import Make, alive


def test_output_of_both_streams_reaches_the_log_and_the_tail(make: Make, tmp_path: Path) -> None:
    command = make("echo out; echo err >&2; exit 3")
    heard: list[bytes] = []
    started: list[tuple[int, str]] = []
    done = run(
        command, interrupts=Interrupts(), on_start=lambda pid, since: started.append((pid, since)), on_output=heard.append
    )
    assert (done.exit_code, done.signal, done.timed_out, done.error) == (3, None, False, "")
    assert command.log.read_bytes() == done.tail == b"".join(heard) == b"out\nerr\n"
    assert done.log_bytes == 8
    assert started and started[0][0] > 1 and started[0][1]
    assert command.log.stat().st_mode & 0o777 == 0o600


def test_a_death_by_signal_is_no_exit_code(make: Make) -> None:
    done = run(make("kill -9 $$"), interrupts=Interrupts())
    assert (done.exit_code, done.signal) == (None, 9)


@pytest.mark.parametrize("argv", [("/no/such/program",), (), ("a\0b",), ("/etc/hostname",)])
def test_what_cannot_be_started_is_a_value(make: Make, argv: tuple[str, ...], tmp_path: Path) -> None:
    command = Command(argv, tmp_path, {}, 1000, 100, tmp_path / "log")
    done = run(command, interrupts=Interrupts())
    assert done.error and done.exit_code is None


def test_a_missing_folder_is_a_value(make: Make, tmp_path: Path) -> None:
    done = run(make("true", cwd=tmp_path / "gone"), interrupts=Interrupts())
    assert done.error


def test_input_larger_than_a_pipe_arrives_whole(make: Make) -> None:
    done = run(make("wc -c", stdin=b"x" * 3_000_000), interrupts=Interrupts())
    assert done.tail.strip() == b"3000000"


def test_a_child_that_does_not_read_its_input_ends(make: Make) -> None:
    done = run(make("exit 0", stdin=b"x" * 3_000_000), interrupts=Interrupts())
    assert done.exit_code == 0


def test_without_input_the_child_reads_end_of_file_at_once(make: Make) -> None:
    done = run(make("cat; test ! -t 0"), interrupts=Interrupts())
    assert done.exit_code == 0
    assert done.duration_ms < 5_000


def test_a_silent_child_is_stopped_by_its_timeout(make: Make) -> None:
    begun = time.monotonic()
    done = run(make("exec sleep 600", timeout_ms=300), interrupts=Interrupts())
    assert done.timed_out and done.signal == 15
    assert time.monotonic() - begun < 2


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(make: Make) -> None:
    begun = time.monotonic()
    done = run(make("trap '' TERM; while :; do sleep 0.1; done", timeout_ms=300, grace_ms=600), interrupts=Interrupts())
    assert done.timed_out and done.signal == 9
    assert 0.85 < time.monotonic() - begun < 0.9 + 2


def test_a_child_gets_its_grace_to_clean_up(make: Make, tmp_path: Path) -> None:
    done = run(
        make("trap 'sleep 0.5; touch cleaned; exit 0' TERM; while :; do sleep 0.05; done", timeout_ms=300),
        interrupts=Interrupts(),
    )
    assert done.timed_out
    assert (tmp_path / "cleaned").exists()


def test_a_grandchild_that_ignores_sigterm_does_not_outlive_a_child_that_obeys(make: Make, tmp_path: Path) -> None:
    script = "(trap '' TERM; echo $$; while :; do sleep 0.1; done) & echo $! >pid; wait"
    done = run(make(script, timeout_ms=400, grace_ms=300), interrupts=Interrupts())
    assert done.timed_out and done.survivors == ()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_tail_is_bounded_and_the_log_is_whole(make: Make) -> None:
    command = make("head -c 5000000 /dev/zero | tr '\\0' a; echo end")
    done = run(command, interrupts=Interrupts())
    assert len(done.tail) == TAIL_BYTES and done.tail.endswith(b"aend\n")
    assert command.log.stat().st_size == done.log_bytes == 5_000_004


def test_a_full_disk_ends_the_log_and_not_the_child(make: Make, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs to mount a small tmpfs")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        plain = make("head -c 1000000 /dev/zero; exit 7")
        done = run(Command(plain.argv, plain.cwd, plain.env, 20_000, 1000, small / "log"), interrupts=Interrupts())
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.exit_code == 7
    assert "No space" in done.log_error
    assert done.log_bytes == 1_000_000


def test_a_log_that_cannot_be_opened_does_not_stop_the_step(make: Make, tmp_path: Path) -> None:
    plain = make("echo hello")
    (tmp_path / "log").mkdir()
    done = run(Command(plain.argv, plain.cwd, plain.env, 20_000, 1000, tmp_path / "log"), interrupts=Interrupts())
    assert done.exit_code == 0 and done.tail == b"hello\n" and done.log_error


def test_a_planted_symlink_is_not_written_through(make: Make, tmp_path: Path) -> None:
    plain = make("echo hello")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "precious")
    done = run(Command(plain.argv, plain.cwd, plain.env, 20_000, 1000, tmp_path / "log"), interrupts=Interrupts())
    assert done.log_error and (tmp_path / "precious").read_text() == "mine"


def test_no_file_descriptor_of_ours_is_inherited(make: Make, tmp_path: Path) -> None:
    mine = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(mine, True)
    try:
        done = run(make(python="import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"), interrupts=Interrupts())
    finally:
        os.close(mine)
    assert done.tail.strip() == b"['0', '1', '2', '3']"  # 3: the listing itself


def test_a_line_of_a_gibibyte_costs_little_memory(tmp_path: Path) -> None:
    """Issue 1: a 1 GiB line without newline costs under 150 MB of memory."""
    script = f"""
import os, re, sys
from pathlib import Path
from evolver.interrupts import Interrupts
from evolver.process import Command, run
from evolver.redact import Redactor
command = Command(("sh", "-c", "head -c 1073741824 /dev/zero | tr '\\\\0' a"), Path({str(tmp_path)!r}), dict(os.environ),
                  120_000, 1000, Path({str(tmp_path / "log")!r}))
done = run(command, interrupts=Interrupts(), redactor=Redactor(["hunter2hunter2"], ["sk-[a-z0-9]{{20}}"]).stream())
# Not ru_maxrss: that starts at what the forking process had.
peak = re.search("VmHWM:\\\\s+(\\\\d+)", Path("/proc/self/status").read_text())[1]
print(done.exit_code, done.log_bytes, peak)
"""
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    (tmp_path / "log").unlink()
    assert out[:2] == ["0", "1073741824"]
    assert int(out[2]) < 150_000, f"{out[2]} KiB"


def test_the_test_above_measures_something() -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 1000


def test_an_output_without_end_fills_no_disk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES", 2 << 20)
    command = make("head -c 5000000 /dev/zero; echo; echo end")
    done = run(command, interrupts=Interrupts())
    assert done.exit_code == 0
    assert command.log.stat().st_size == 2 << 20
    assert done.log_bytes == 5_000_005
    assert done.tail.endswith(b"end\n")
    assert "2 MiB" in done.log_error


def test_what_the_redactor_hides_is_hidden_in_the_log_and_in_the_tail(make: Make) -> None:
    command = make("printf 'a hunt'; sleep 0.1; printf 'er2hunter2 b'")
    heard: list[bytes] = []
    done = run(command, interrupts=Interrupts(), redactor=Redactor(["hunter2hunter2"]).stream(), on_output=heard.append)
    assert command.log.read_bytes() == done.tail == b"".join(heard) == b"a [redacted] b"
