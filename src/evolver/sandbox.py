"""bubblewrap around a step. Where it is asked for and not there, the run is refused: never silently without. Linux only.

Whole sandbox: the worktree, its git folder and the step's scratch folder can be written, besides the agent's own folders in
HOME; HOME and the system can be read; nothing else is there. Network alone (`network = false`): everything as it is, but
only a loopback interface of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolver.definition import LoadedLoop
from evolver.errors import PreflightError
from evolver.layout import Layout
from evolver.model import StepContext
from evolver.process import run_simple

INSTALL = "apt-get install bubblewrap   (or: dnf install bubblewrap, pacman -S bubblewrap)"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/run/systemd/resolve")
_PROBE_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Need:
    """What one step asks for."""

    whole: bool = False
    network: bool = True
    home: tuple[str, ...] = ()  # below HOME, may be written

    @property
    def nothing(self) -> bool:
        return self.network and not self.whole


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where this run works. Made once, by `for_loop`."""

    program: str
    layout: Layout
    home: Path
    path: str | None = None  # where programs are looked for
    read: tuple[Path, ...] = ()  # also readable: where the interpreter and the loop file are

    def around(self, need: Need, argv: tuple[str, ...], context: StepContext) -> tuple[str, ...]:
        """The command line that runs `argv` inside."""
        if need.nothing:
            return argv
        if not need.whole:
            return (self.program, "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent", "--", *argv)
        words = [
            self.program,
            "--die-with-parent",
            "--unshare-pid",
            "--unshare-ipc",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]
        words += ["--setenv", "TMPDIR", "/tmp"]  # the user's own may not be there; Claude Code hangs without one
        if not need.network:
            words.append("--unshare-net")
        for folder in SYSTEM:
            words += ["--ro-bind-try", folder, folder]
        hidden = self._hidden_parent()
        words += ["--tmpfs", str(hidden)] if hidden is not None else []
        # Later binds lie over earlier ones: first what may only be read, then what may be written in it.
        for path in (self.home, *self.read, *(p for p in program_folders(argv[0], self.path) if not self._shown(p))):
            words += ["--ro-bind-try", str(path), str(path)]
        for name in need.home:
            words += ["--bind-try", str(self.home / name), str(self.home / name)]
        for path in (self.layout.root, self.layout.common_dir, self.layout.git_dir, context.step_dir):
            words += ["--bind", str(path), str(path)]
        # evolver's own: the stream, the vault, the locks. An attempt may look, not touch.
        words += ["--ro-bind-try", str(self.layout.state), str(self.layout.state)]
        words += ["--ro-bind-try", str(context.last_failure), str(context.last_failure)]
        # Where there is nothing, nothing can be put: a write beside the worktree fails instead of vanishing later.
        words += ["--remount-ro", str(hidden)] if hidden is not None else []
        return (*words, "--remount-ro", "/", "--chdir", str(context.cwd), "--", *argv)

    def _hidden_parent(self) -> Path | None:
        """The folder above the worktree, unless it is readable anyway, or the folder for temporary files itself."""
        parent = self.layout.root.parent
        return None if parent in (Path("/"), Path("/tmp")) or self._shown(parent) else parent

    def _shown(self, path: Path) -> bool:
        """Whether a path can be read inside because of a folder above it."""
        return any(path.is_relative_to(folder) for folder in (self.home, self.layout.root, *self.read, *map(Path, SYSTEM)))


def needs_one(loaded: LoadedLoop) -> bool:
    definition = loaded.definition
    return bool(
        definition.codegen.sandbox or not definition.codegen.network or any(not v.network for v in definition.validator)
    )


def for_loop(loaded: LoadedLoop, layout: Layout, env: Mapping[str, str] = os.environ) -> Sandbox | None:
    """None when no step asks for one. Raise `PreflightError` when one does and bubblewrap is missing or does not work."""
    if not needs_one(loaded):
        return None
    program = shutil.which("bwrap", path=env.get("PATH"))
    if program is None:
        raise PreflightError("the loop asks for a sandbox, and bubblewrap (bwrap) is not installed", f"Install it: {INSTALL}")
    probe = run_simple(
        [program, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        timeout_ms=_PROBE_TIMEOUT_MS,
    )
    if not probe.ok:
        words = probe.stderr.decode(errors="replace").strip() or probe.describe()
        raise PreflightError(
            f"the loop asks for a sandbox, and bubblewrap does not work here: {words}",
            "Allow user namespaces, or remove the option.",
        )
    home = Path(os.path.realpath(env.get("HOME") or "/nonexistent"))
    return Sandbox(program, layout, home, env.get("PATH"), _readable(loaded, layout))


def program_folders(program: str, path: str | None) -> tuple[Path, ...]:
    """What a program needs of the place it is installed in: its package folder or its virtual environment, else itself."""
    found = shutil.which(program, path=path)
    if found is None:
        return ()
    real = Path(os.path.realpath(found))
    wanted = [Path(found), real]
    modules = [folder for folder in real.parents if folder.name == "node_modules"]
    wanted += modules[-1:]
    wanted += [folder.parent for folder in (Path(found).parent, real.parent) if (folder.parent / "pyvenv.cfg").exists()]
    return tuple(dict.fromkeys(wanted))


def _readable(loaded: LoadedLoop, layout: Layout) -> tuple[Path, ...]:
    """The loop's folder, and the interpreter's for Python steps, wherever they are."""
    import sys

    package = Path(__file__).parents[1]
    linked = [layout.root / path for path in loaded.definition.loop.link]  # what a clone borrows from the person's worktree
    own = [loaded.directory, Path(sys.prefix), Path(sys.base_prefix), package]
    wanted = {Path(os.path.realpath(p)) for p in (*own, *linked)}
    return tuple(sorted(p for p in wanted if p != layout.root and p != Path("/")))
