"""bubblewrap: what a step inside can write, read and reach; and the refusal where it is missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.definition import LoadedLoop
from evolver.errors import PreflightError
from evolver.layout import Layout, locate
from evolver.model import StepContext, StepResult
from evolver.sandbox import Need, Sandbox, for_loop
from evolver.steps.registry import build_codegen, build_validators
from evolver.steps.runner import StepRunner

from .conftest import Load

WORKS = (
    shutil.which("bwrap") is not None
    and not subprocess.run(
        ["bwrap", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True,
        check=False,
    ).returncode
)
needs_bwrap = pytest.mark.skipif(not WORKS, reason="bubblewrap is not installed, or may not make namespaces here")

SANDBOXED = '[codegen]\ncommand = """%s"""\nsandbox = "bwrap"\n%s'


@pytest.fixture
def layout(context: StepContext) -> Layout:
    subprocess.run(["git", "init", "-q"], cwd=context.cwd, check=True)
    layout = locate(context.cwd)
    layout.state.mkdir()
    return layout


@pytest.fixture
def home(hermetic: Path) -> Path:
    (hermetic / "mine.txt").write_text("mine")
    return hermetic


def generate(load: Load, layout: Layout, runner: StepRunner, context: StepContext, script: str, extra: str = "") -> StepResult:
    loaded = load(SANDBOXED % (script, extra))
    return build_codegen(loaded, runner, sandbox=for_loop(loaded, layout)).generate(context)


@needs_bwrap
def test_the_worktree_can_be_written_and_committed(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, home: Path
) -> None:
    script = "echo x > made && git add made && git commit -qm one && echo y > $EVOLVER_STEP_DIR/kept && echo z > /tmp/own"
    result = generate(load, layout, runner, context, script)
    assert result.ok, result.tail
    assert (context.cwd / "made").read_text() == "x\n" and (context.step_dir / "kept").exists()
    assert not Path("/tmp/own").exists()  # a /tmp of its own
    assert (
        subprocess.run(["git", "log", "--format=%s"], cwd=context.cwd, capture_output=True, text=True, check=True).stdout
        == "one\n"
    )


@needs_bwrap
@pytest.mark.parametrize(
    "target", ["$HOME/mine.txt", "$HOME/new", "../beside", "/etc/evolver-test", "/new", ".git/evolver/x", "/usr/x"]
)
def test_elsewhere_it_cannot(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, home: Path, target: str
) -> None:
    """Issue 5: a step that writes to HOME or to the parent folder fails."""
    assert not generate(load, layout, runner, context, f"echo x > {target}").ok
    assert (home / "mine.txt").read_text() == "mine" and not (home / "new").exists()
    assert not (context.cwd.parent / "beside").exists() and not Path("/etc/evolver-test").exists()
    assert not Path("/new").exists() and not list(layout.state.iterdir())


@needs_bwrap
def test_home_can_be_read_and_other_places_cannot_be_seen(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    result = generate(load, layout, runner, context, f"cat $HOME/mine.txt; test ! -e {tmp_path}/secret && echo unseen")
    assert result.tail == "mineunseen\n"


@needs_bwrap
def test_the_agents_own_folder_can_be_written(layout: Layout, context: StepContext, home: Path, load: Load) -> None:
    (home / ".agent").mkdir()
    sandbox = for_loop(load(SANDBOXED % ("true", "")), layout)
    assert sandbox is not None
    argv = sandbox.around(Need(whole=True, home=(".agent", ".not-there")), ("sh", "-c", "echo x > $HOME/.agent/x"), context)
    assert subprocess.run(argv, check=False).returncode == 0
    assert (home / ".agent" / "x").exists()


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


CONNECT = "python3 -c 'import socket; socket.create_connection((\\\"127.0.0.1\\\", %d), 2)'"


@needs_bwrap
@pytest.mark.parametrize("sandbox", ['sandbox = "bwrap"', ""])
@pytest.mark.parametrize("network", ["true", "false"])
def test_the_network_of_codegen(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, listener: int, sandbox: str, network: str
) -> None:
    loaded = load(f'[codegen]\ncommand = "{CONNECT % listener}"\n{sandbox}\nnetwork = {network}')
    result = build_codegen(loaded, runner, sandbox=for_loop(loaded, layout)).generate(context)
    assert result.ok is (network == "true"), result.tail


@needs_bwrap
def test_a_validator_without_network(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, listener: int, home: Path
) -> None:
    """Issue 5: a step that opens a socket with `network = false` fails; everything else is as without."""
    loaded = load(f"""
[[validator]]
name = "connects"
command = "{CONNECT % listener}"
network = false
[[validator]]
name = "writes"
command = "echo x > made; echo y > $HOME/new"
network = false
[[validator]]
name = "free"
command = "{CONNECT % listener}"
""")
    connects, writes, free = build_validators(loaded, runner, sandbox=for_loop(loaded, layout))
    assert not connects.validate(context).ok
    assert writes.validate(context).ok and (context.cwd / "made").exists() and (home / "new").exists()
    assert free.validate(context).ok


@needs_bwrap
def test_a_daemon_inside_dies_and_a_timeout_holds(load: Load, layout: Layout, runner: StepRunner, context: StepContext) -> None:
    script = "setsid sh -c 'while :; do echo x >> written; sleep 0.02; done' & sleep 60"
    result = generate(load, layout, runner, context, script, 'timeout = "1s"\ngrace = "200ms"')
    assert result.timed_out and result.survivors == ()
    size = (context.cwd / "written").stat().st_size
    import time

    time.sleep(0.2)
    assert (context.cwd / "written").stat().st_size == size


@needs_bwrap
def test_python_steps_work_inside(load: Load, layout: Layout, runner: StepRunner, context: StepContext, tmp_path: Path) -> None:
    (tmp_path / "loop" / "mine.py").write_text("def go(context): (context.cwd / 'made').write_text('x')")
    loaded = load('[codegen]\ncallable = "mine:go"\nsandbox = "bwrap"')
    result = build_codegen(loaded, runner, sandbox=for_loop(loaded, layout)).generate(context)
    assert result.ok, result.tail
    assert (context.cwd / "made").exists()


@needs_bwrap
def test_a_linked_worktree_can_commit_inside(
    load: Load, layout: Layout, runner: StepRunner, context: StepContext, tmp_path: Path
) -> None:
    git = ["git", "-C", str(context.cwd)]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "linked")], check=True, capture_output=True)
    linked = locate(tmp_path / "linked")
    script = "echo x > made && git add made && git commit -qm two"
    result = generate(load, linked, runner, replace(context, cwd=linked.root), script)
    assert result.ok, result.tail


VALIDATOR = '[codegen]\ncommand = "x"\n[[validator]]\nname = "v"\ncommand = "x"\nnetwork = false'


@pytest.mark.parametrize("text", [SANDBOXED % ("true", ""), '[codegen]\ncommand = "x"\nnetwork = false', VALIDATOR])
def test_without_bubblewrap_it_is_refused_with_the_install_line(
    load: Load, layout: Layout, runner: StepRunner, tmp_path: Path, text: str
) -> None:
    """Issue 5: without bubblewrap exit 5 names the package; never silently unsandboxed."""
    loaded: LoadedLoop = load(text)
    with pytest.raises(PreflightError) as caught:
        for_loop(loaded, layout, {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert caught.value.exit_code == 5 and "apt-get install bubblewrap" in caught.value.hint
    with pytest.raises(ValueError, match="sandbox"):
        build_codegen(loaded, runner)
        build_validators(loaded, runner)


def test_a_bubblewrap_that_does_not_work_is_refused(load: Load, layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(PreflightError, match="No permissions"):
        for_loop(load(SANDBOXED % ("true", "")), layout, {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)})


def test_nobody_asks_for_one(load: Load, layout: Layout) -> None:
    assert for_loop(load('[codegen]\ncommand = "true"'), layout, {"PATH": "/nonexistent"}) is None


def test_needing_nothing_changes_nothing(context: StepContext, layout: Layout) -> None:
    sandbox = Sandbox("/nonexistent/bwrap", layout, Path("/nonexistent"))
    assert sandbox.around(Need(), ("true",), context) == ("true",)
