"""`evolver doctor`: what would stop a loop here, and the command that mends it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from evolver import lock, resume_lock
from evolver.errors import EvolverError, ExitStatus, PreflightError
from evolver.layout import Layout, locate

MIN_GIT = (2, 30)
LOW_DISK = 1 << 30  # bytes


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `fix` is a command, or what to do."""

    check: str
    ok: bool
    text: str
    fix: str = ""
    blocks: bool = False  # a run would be refused

EPILOG = """Examples:
  evolver doctor
  evolver doctor --json   each finding with what mends it
"""


def register(app: typer.Typer) -> None:
    app.command("doctor", epilog=EPILOG)(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Check whether a run can start, and say what mends it.

    Git, identity, loop, agent, validators, disk, hooks, locks and the event stream. Exit 1 when something is wrong.
    """
    findings = examine(directory)
    if as_json:
        typer.echo(msgspec.json.encode(findings).decode())
    else:
        print_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(int(ExitStatus.NOTHING_ACCEPTED))


def print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        mark = "ok  " if finding.ok else "BAD " if finding.blocks else "note"
        typer.echo(f"{mark} {finding.check}: {finding.text}")
        if finding.fix and not finding.ok:
            typer.echo(f"     fix: {finding.fix}")


def examine(directory: Path) -> list[Finding]:
    """Every check, in the order in which they would stop a run."""
    out = [_git()]
    try:
        layout = locate(directory)
    except PreflightError as error:
        return [*out, Finding(check="worktree", ok=False, text=error.message, fix=error.hint, blocks=True)]
    out.append(Finding(check="worktree", ok=True, text=str(layout.root)))
    if out[0].ok:
        out.append(_identity(layout))
        # On a held tree git status could run a filter that the attempt planted; during a run the tree is the agent's.
        if resume_lock.read(layout) is None and not lock.is_held(layout):
            out += _preflight(layout)
    for check in CHECKS:
        out += check(layout)
    return out


def _git() -> Finding:
    from evolver.process import run_simple

    if shutil.which("git") is None:
        return Finding(
            check="git", ok=False, text="not installed", fix="apt-get install git (or brew install git)", blocks=True
        )
    text = run_simple(["git", "--version"], timeout_ms=10_000).stdout.decode(errors="replace").strip()
    version = text.removeprefix("git version ").split()[0] if text else ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < MIN_GIT:
        return Finding(
            check="git", ok=False, text=f"{text or 'no version'} is too old", fix="install git 2.30 or later", blocks=True
        )
    return Finding(check="git", ok=True, text=version)


def _identity(layout: Layout) -> Finding:
    from evolver.ui.objects import Objects

    done = Objects.of(layout).git.run("var", "GIT_COMMITTER_IDENT", check=False)
    if done.ok:
        return Finding(check="identity", ok=True, text=done.out.decode(errors="replace").rsplit(" ", 2)[0])
    fix = "git config user.name 'Your Name' && git config user.email you@example.com"
    return Finding(check="identity", ok=False, text="git does not know who commits", fix=fix, blocks=True)


def _preflight(layout: Layout) -> Iterator[Finding]:
    """What a run itself would refuse: an operation in progress, uncommitted edits, no commit yet."""
    from evolver.definition import RollbackSection
    from evolver.model import DirtyPolicy
    from evolver.planning import plan
    from evolver.settings import read as read_settings
    from evolver.worktree.workspace import Workspace

    try:
        loop = plan(layout.root).loaded.definition
        rollback, dirty = loop.rollback, loop.loop.dirty
    except EvolverError:  # `_loop` says what is wrong with it
        rollback, dirty = RollbackSection(), DirtyPolicy.REFUSE
    try:
        settings = read_settings(os.environ, layout.root / ".env")
        Workspace.open(layout, rollback=rollback, max_vault=settings.max_vault).preflight(dirty=dirty)
    except EvolverError as error:
        yield Finding(check="preflight", ok=False, text=error.message, fix=error.hint, blocks=True)
    else:
        yield Finding(check="preflight", ok=True, text="a run may start on this tree")


def _loop(layout: Layout) -> Iterator[Finding]:
    """The loop that `evolver run` would take, its agent and its validators."""
    from evolver.cli.tools import lack_of
    from evolver.planning import plan
    from evolver.prompt import prompt_for
    from evolver.sandbox import for_loop

    try:
        planned = plan(layout.root)
        prompt_for(planned.loaded)
    except EvolverError as error:
        yield Finding(check="loop", ok=False, text=error.message, fix=error.hint or "evolver init", blocks=True)
        return
    definition = planned.loaded.definition
    yield Finding(check="loop", ok=True, text=f"{planned.loaded.name} ({planned.loaded.source})")
    yield from _agent(definition.codegen.agent, definition.agents)
    try:
        sandbox = for_loop(planned.loaded, layout)
    except EvolverError as error:
        yield Finding(check="sandbox", ok=False, text=error.message, fix=error.hint, blocks=True)
    else:
        if sandbox is not None:
            yield Finding(check="sandbox", ok=True, text="bubblewrap works")
    if not definition.validator:
        fix = "add a [[validator]] to the loop file"
        yield Finding(check="validators", ok=False, text="none: every attempt would be accepted", fix=fix)
    folder = layout.root / definition.loop.scope
    # What an attempt left may include the Python that the command names.
    probe = resume_lock.read(layout) is None and not lock.is_held(layout)
    for validator in definition.validator:
        lack = lack_of(validator.command, folder, validator.env, probe=probe)
        if lack is not None:
            yield Finding(check=f"validator {validator.name}", ok=False, text=lack.text, fix=lack.fix)
        else:
            yield Finding(
                check=f"validator {validator.name}", ok=True, text=_shown(validator.command) or str(validator.callable)
            )


def _agent(name: str | None, own: object) -> Iterator[Finding]:
    from evolver.steps.agents import discover
    from evolver.steps.presets import PRESETS, find_preset

    if name is None:
        return
    assert isinstance(own, dict)
    preset = find_preset(name, own)
    (found,) = discover([preset])
    if found.path is None:
        others = [other for other, known in PRESETS.items() if other != name and shutil.which(known.argv[0])]
        also = f"; installed: {', '.join(others)}" if others else ""
        yield Finding(
            check=f"agent {name}",
            ok=False,
            text=f"not installed{also}",
            fix=found.install or f"install {preset.argv[0]}",
            blocks=True,
        )
    elif found.problem:
        yield Finding(check=f"agent {name}", ok=False, text=found.problem, fix=f"{found.path} --version  # must work")
    elif found.version and not found.known and found.known_versions:
        known = ", ".join(found.known_versions)
        text = f"{found.version} at {found.path}; its output was measured with {known}"
        yield Finding(check=f"agent {name}", ok=False, text=text, fix="watch the first iterations: evolver events -f")
    else:
        yield Finding(check=f"agent {name}", ok=True, text=f"{found.version} at {found.path}".strip())


def _shown(command: str | tuple[str, ...] | None) -> str:
    return command if isinstance(command, str) else shlex.join(command or ())


def _disk(layout: Layout) -> Iterator[Finding]:
    free = shutil.disk_usage(layout.git_dir).free
    text = f"{free / (1 << 30):.1f} GiB free"
    yield Finding(check="disk", ok=free >= LOW_DISK, text=text, fix=f"make room on the disk of {layout.git_dir}")


def _hooks(layout: Layout) -> Iterator[Finding]:
    """Hooks do not run when evolver commits; a person who relies on them should know."""
    folder = layout.common_dir / "hooks"
    watched = ("pre-commit", "commit-msg", "prepare-commit-msg", "post-commit")
    active = [name for name in watched if os.access(folder / name, os.X_OK)]
    if active:
        fix = "nothing, or [accept] hooks = true; checks belong into a [[validator]]"
        yield Finding(check="hooks", ok=False, text=f"{', '.join(active)} will not run on accepted commits", fix=fix)
    else:
        yield Finding(check="hooks", ok=True, text="none that would bite")


def _locks(layout: Layout) -> Iterator[Finding]:
    held = resume_lock.read(layout)
    if held is not None:
        text = f"held since {held.time}: {held.reason}"
        yield Finding(check="lock", ok=False, text=text, fix="evolver show last, then evolver resume", blocks=True)
    elif lock.is_held(layout):
        yield Finding(
            check="lock", ok=False, text="a run is active in this worktree", fix="evolver status, or evolver stop", blocks=True
        )
    else:
        yield Finding(check="lock", ok=True, text="none")


def _log(layout: Layout) -> Iterator[Finding]:
    from evolver.cli.audit import check
    from evolver.cli.stream import find_stream

    if not find_stream(layout.root).path.exists():
        yield Finding(check="events", ok=True, text="no event stream yet")
        return
    report = check(layout.root)
    text = f"{report.status}, {report.events:,} events"
    yield Finding(
        check="events", ok=report.status == "intact", text=text, fix="evolver audit verify", blocks=report.status == "broken"
    )


CHECKS: tuple[Callable[[Layout], Iterator[Finding]], ...] = (_loop, _disk, _hooks, _locks, _log)
