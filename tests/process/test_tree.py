"""Nothing that a step started outlives it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.process import Command, process_started, quiesce, run, run_simple, sweep_dead_run

from .conftest import Make, alive

# A daemon by the book: fork, setsid, fork, and it keeps the step's pipe open. It writes for as long as it lives.
DAEMON = """
import os, sys, time, signal
def daemon():
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    {prelude}
    open("pid", "w").write(str(os.getpid()))
    while True:
        open("written", "a").write("x"); time.sleep(0.01)
daemon()
while not os.path.exists("pid"): time.sleep(0.01)
"""


def wait_for(path: Path, seconds: float = 5) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.parametrize(
    "prelude",
    [
        "",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "os.environ.clear(); os.execve(sys.executable, [sys.executable, '-c', 'import time, os; "
        'open(\\"pid\\", \\"w\\").write(str(os.getpid())); '
        '[(open(\\"written\\", \\"a\\").write(\\"x\\"), time.sleep(0.01)) for _ in iter(int, 1)]\'], {})',
    ],
    ids=["plain", "ignores-sigterm", "clears-its-environment"],
)
def test_a_double_forked_daemon_dies_with_its_step(make: Make, tmp_path: Path, prelude: str) -> None:
    begun = time.monotonic()
    done = run(make(python=DAEMON.format(prelude=prelude or "pass")), interrupts=Interrupts())
    assert done.exit_code == 0 and done.survivors == () and done.killed >= 1
    assert not alive(int((tmp_path / "pid").read_text()))
    size = (tmp_path / "written").stat().st_size
    time.sleep(0.1)
    assert (tmp_path / "written").stat().st_size == size
    assert time.monotonic() - begun < 5  # the pipe it holds does not make us wait


def test_a_daemon_dies_at_the_timeout_as_well(make: Make, tmp_path: Path) -> None:
    program = DAEMON.format(prelude="signal.signal(signal.SIGTERM, signal.SIG_IGN)") + "\ntime.sleep(600)"
    done = run(make(python=program, timeout_ms=1500, grace_ms=300), interrupts=Interrupts())
    assert done.timed_out and done.survivors == ()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_child_that_keeps_forking_is_ended(make: Make, tmp_path: Path) -> None:
    """Each process starts the next one and ends: none lives long enough to be met twice."""
    program = """
import os, time
open("pid", "w").write("x")
for _ in range(100000):
    if os.fork():
        time.sleep(0.02); os._exit(0)
    os.setsid()
    open("written", "a").write("x")
"""
    run(make(python=program, timeout_ms=500, grace_ms=200), interrupts=Interrupts())
    size = (tmp_path / "written").stat().st_size
    time.sleep(0.2)
    assert size > 0 and (tmp_path / "written").stat().st_size == size


def test_our_other_children_are_left_alone(make: Make) -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as beside,
        subprocess.Popen(["sleep", "60"], start_new_session=True) as elsewhere,
    ):
        done = run(make("sleep 60 & true"), interrupts=Interrupts())
        assert done.killed == 1
        assert beside.poll() is None and elsewhere.poll() is None
        beside.kill()
        elsewhere.kill()


def test_a_helper_started_during_the_step_is_left_alone(make: Make) -> None:
    """git commands run beside a step (a watcher, a sink): they share our session, a step never does."""
    helpers: list[subprocess.Popen[bytes]] = []
    run(make("true"), interrupts=Interrupts(), on_start=lambda pid, since: helpers.append(subprocess.Popen(["sleep", "60"])))
    (helper,) = helpers
    with helper:
        assert helper.poll() is None
        helper.kill()


def test_no_zombie_is_left(make: Make, tmp_path: Path) -> None:
    for _ in range(3):
        run(make(python=DAEMON.format(prelude="pass")), interrupts=Interrupts())
        (tmp_path / "pid").unlink()
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "stat=,pid=,args="], capture_output=True, text=True, check=False
    ).stdout
    assert "Z" not in children


def test_a_process_of_the_run_that_sits_elsewhere_is_found_by_its_environment(make: Make, run_id: str) -> None:
    """For example in a terminal multiplexer's server that was started before the run."""
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os,time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(60)",
        ],
        env={**os.environ, "EVOLVER_RUN_ID": run_id},
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    with other:
        pid = int(other.stdout.readline())
        assert alive(pid)
        run(make("true"), interrupts=Interrupts())
        assert not alive(pid)


def test_quiesce_ends_everything_of_a_run_and_nothing_else(run_id: str) -> None:
    with (
        subprocess.Popen(["sleep", "60"], env={**os.environ, "EVOLVER_RUN_ID": run_id}, start_new_session=True) as mine,
        subprocess.Popen(["sleep", "60"], env={**os.environ, "EVOLVER_RUN_ID": run_id + "0"}, start_new_session=True) as other,
    ):
        assert quiesce(run_id, grace_ms=500) == ()
        assert mine.wait(1) == -15
        assert other.poll() is None
        other.kill()


def test_who_cannot_be_killed_is_named(tmp_path: Path) -> None:
    """An unprivileged evolver and a step that became root."""
    if os.getuid() != 0:
        pytest.skip("needs root to make a set-uid program")
    python = os.path.realpath(sys.executable)
    shutil.copy(python, tmp_path / "root-python")
    (tmp_path / "root-python").chmod(0o4755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o755)
        else:
            break
    tmp_path.chmod(0o777)
    source = Path(__file__).parents[2] / "src"
    script = f"""
import os, sys, time
sys.path[:0] = {[str(source), *sys.path]!r}
from pathlib import Path
from evolver.interrupts import Interrupts
from evolver.process import Command, run
from evolver.process import tree
tree.KILL_PATIENCE = 1.0
here = Path({str(tmp_path)!r})
program = (
    "import os, time; os.setresuid(0, 0, 0); print(os.getpid(), flush=True);"
    "os.close(1); os.close(2); time.sleep(20)"
)
argv = (str(here / "root-python"), "-I", "-c", program)
# Privileges go only now: a Python below /root cannot even be started by nobody, and what is imported late is imported first.
run(Command(("true",), here, {{"EVOLVER_RUN_ID": "x"}}, 5, 1, here / "first"), interrupts=Interrupts())
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
done = run(Command(argv, here, {{"EVOLVER_RUN_ID": "x"}}, 700, 200, here / "log"), interrupts=Interrupts())
print(done.survivors == (int(done.tail),), done.timed_out, done.tail)
"""
    begun = time.monotonic()
    out = subprocess.run([python, "-c", script], cwd="/", capture_output=True, text=True, check=False)
    pid = (tmp_path / "log").read_text().strip()
    if pid.isdigit():
        os.kill(int(pid), signal.SIGKILL)
    if "Operation not permitted" in (tmp_path / "log").read_text():
        pytest.skip("set-uid programs do not work on this file system")
    assert out.stdout.startswith("True True"), out
    assert time.monotonic() - begun < 8


HARNESS = """
import os, sys
from pathlib import Path
from evolver.interrupts import Interrupts
from evolver.process import Command, run
here = Path(sys.argv[1])
def started(pid, since): (here / "recorded").write_text(f"{pid} {since}")
run(Command((sys.executable, "-c", sys.argv[3]), here, {**os.environ, "EVOLVER_RUN_ID": sys.argv[2]}, None, 1000, here / "log"),
    interrupts=Interrupts(), on_start=started)
"""


@pytest.mark.parametrize("prelude", ["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_recovery_kills_what_a_killed_harness_left(tmp_path: Path, run_id: str, prelude: str) -> None:
    program = DAEMON.format(prelude=prelude) + "\nopen('child','w').write(str(os.getpid())); time.sleep(600)"
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, tmp_path, run_id, program])
    child, daemon = int(wait_for(tmp_path / "child")), int(wait_for(tmp_path / "pid"))
    harness.kill()
    harness.wait()
    assert alive(child) and alive(daemon)
    pid, since = (tmp_path / "recorded").read_text().split()
    killed, survivors = sweep_dead_run(run_id, [(int(pid), since)], grace_ms=200)
    assert set(killed) >= {child, daemon} and survivors == ()
    assert not alive(child) and not alive(daemon)
    assert sweep_dead_run(run_id, [(int(pid), since)]) == ((), ())


def test_recovery_finds_a_recorded_session_without_the_marker(tmp_path: Path) -> None:
    """An agent's sandbox may clear the environment of what it starts."""
    leader = subprocess.Popen(["sh", "-c", "env -i sleep 60 & echo $!"], start_new_session=True, stdout=subprocess.PIPE)
    assert leader.stdout is not None
    since = process_started(leader.pid)
    with leader:
        member = int(leader.stdout.readline())
        leader.wait()
        assert alive(member)
        killed, survivors = sweep_dead_run("no-such-run", [(leader.pid, since)])
        assert killed == (member,) and survivors == ()


def test_recovery_never_kills_a_reused_pid(tmp_path: Path, run_id: str) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        assert sweep_dead_run(run_id, [(other.pid, "another-1")]) == ((), ())
        assert other.poll() is None
        other.kill()


def test_recovery_never_kills_itself_or_who_started_it(run_id: str, tmp_path: Path) -> None:
    """`evolver run` called by what the dead run left: its shell, its agent."""
    script = (
        "import os; from evolver.process import sweep_dead_run, process_started as s;"
        f"print(sweep_dead_run({run_id!r}, [(os.getppid(), s(os.getppid())), (os.getpid(), s(os.getpid()))]))"
    )
    done = run_simple(
        ["sh", "-c", f'"{sys.executable}" -c "$0"; echo still here', script],
        timeout_ms=20_000,
        env={**os.environ, "EVOLVER_RUN_ID": run_id},
    )
    assert done.stdout == b"((), ())\nstill here\n", done


def test_a_start_time_tells_processes_apart() -> None:
    assert process_started(os.getpid()) == process_started(os.getpid()) != ""
    assert process_started(os.getpid()) != process_started(1)
    assert process_started(2**22 + 7) == ""


def test_command_is_a_value(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        Command(("true",), tmp_path, {}, None, 0, tmp_path / "log").name = "x"  # type: ignore[misc]
