"""What undoes which command: a literal table, each entry with the exact argv that runs.

Nothing of a log is ever executed: its command lines are compared with this table and with `[changes.revert]` of a loop file,
and the argv comes from there. `git add` is the one entry that takes paths over, each checked like any other path of a log.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from evolver.changes.paths import BadPathError, RelativePath, relative, shown

PATHS = "{paths}"  # stands for the paths of a `git add`


class How(StrEnum):
    RUN = "run"  # start `argv`
    REMOVE = "remove"  # remove the folder itself, path-checked, no child
    UNSTAGE = "unstage"  # by the git gateway
    COMMITS = "commits"  # undone by reverting the commits the log lists


@dataclass(frozen=True, slots=True)
class Revert:
    """How one command is undone."""

    how: How
    argv: tuple[str, ...]
    done: str = ""  # the report's line
    source: str = "built in"


def _again(*argv: str) -> Revert:
    """An install, run again: it brings the dependencies back to what the restored manifest and lockfile say."""
    return Revert(How.RUN, argv, f"Re-ran {' '.join(argv)} to restore dependencies")


_DIST = Revert(How.REMOVE, ("rm", "-rf", "dist/"), "Removed build artifacts (dist/)")
_UNSTAGE_ALL = Revert(How.UNSTAGE, ("git", "restore", "--staged", "--", "."), "Unstaged all files")
_UNSTAGE = Revert(How.UNSTAGE, ("git", "restore", "--staged", "--", PATHS))
_COMMITS = Revert(How.COMMITS, ("git", "revert", "--no-edit", "{commit}"))

# The command as executed, word by word; exact, with no options but those spelled out.
REGISTRY: Mapping[str, Revert] = {
    "pnpm install": _again("pnpm", "install"),
    "pnpm i": _again("pnpm", "install"),
    "pnpm install --frozen-lockfile": _again("pnpm", "install", "--frozen-lockfile"),
    "npm install": _again("npm", "install"),
    "npm i": _again("npm", "install"),
    "npm ci": _again("npm", "ci"),
    "yarn": _again("yarn", "install"),
    "yarn install": _again("yarn", "install"),
    "yarn install --frozen-lockfile": _again("yarn", "install", "--frozen-lockfile"),
    "yarn install --immutable": _again("yarn", "install", "--immutable"),
    "bun install": _again("bun", "install"),
    "bun install --frozen-lockfile": _again("bun", "install", "--frozen-lockfile"),
    "pip install -r requirements.txt": _again("pip", "install", "-r", "requirements.txt"),
    "pip install -e .": _again("pip", "install", "-e", "."),
    "pip install .": _again("pip", "install", "."),
    "python -m pip install -r requirements.txt": _again("python", "-m", "pip", "install", "-r", "requirements.txt"),
    "uv sync": _again("uv", "sync"),
    "uv sync --frozen": _again("uv", "sync", "--frozen"),
    "uv pip install -r requirements.txt": _again("uv", "pip", "install", "-r", "requirements.txt"),
    "uv pip sync requirements.txt": _again("uv", "pip", "sync", "requirements.txt"),
    "poetry install": _again("poetry", "install"),
    # Built again from the restored sources, not `cargo clean`: a target folder may lie outside the root and be shared.
    "cargo build": Revert(How.RUN, ("cargo", "build"), "Re-ran cargo build on the restored sources"),
    "cargo fetch": _again("cargo", "fetch"),
    "pnpm build": _DIST,
    "pnpm run build": _DIST,
    "npm run build": _DIST,
    "yarn build": _DIST,
    "yarn run build": _DIST,
    "bun run build": _DIST,
    "python -m build": _DIST,
    "uv build": _DIST,
    "poetry build": _DIST,
    "git add .": _UNSTAGE_ALL,
    "git add -A": _UNSTAGE_ALL,
    "git add --all": _UNSTAGE_ALL,
    f"git add {PATHS}": _UNSTAGE,
    "git commit": _COMMITS,
}


@dataclass(frozen=True, slots=True)
class Match:
    """A command of a log, and how it is undone. `paths`: of a `git add` that names some."""

    command: str
    revert: Revert
    paths: tuple[RelativePath, ...] = ()

    @property
    def done(self) -> str:
        if self.paths:
            return f"Unstaged {', '.join(path.shown for path in self.paths)}"
        return self.revert.done


# What a shell acts on outside quotes. A log's line is not known to have been quoted right, so with one of these in it only
# the canonical spelling (every special character quoted) is believed.
_SPECIAL = frozenset(";&|<>()$`\\*?[]{}~!#\n\r")
_BY_WORDS: Mapping[tuple[str, ...], Revert] = {tuple(shlex.split(line)): revert for line, revert in REGISTRY.items()}
_GLOB = frozenset("*?[\\")
_ADD_FLAGS = frozenset({"-f", "--force", "-v", "--verbose", "-N", "--intent-to-add"})
_ADD_ALL = frozenset({"-A", "--all"})


def words(command: str) -> tuple[str, ...] | None:
    """The argv of a plain command; None when it may be more than one command, or is no command at all."""
    try:
        found = shlex.split(command)
    except ValueError:
        return None
    if not found or (any(c in _SPECIAL for c in command) and shlex.join(found) != command.strip()):
        return None
    return tuple(found)


def match(command: str, extra: Mapping[str, tuple[str, ...]] | None = None) -> Match | None:
    """How `command` is undone; None: a person is needed. `extra` (`[changes.revert]`) comes before the built-in table."""
    argv = words(command)
    for line, undo in (extra or {}).items():
        if undo and (line.strip() == command.strip() or (argv is not None and words(line) == argv)):
            done = f"Reverted {shown(command)} with {shown(shlex.join(undo))}"
            return Match(command, Revert(How.RUN, undo, done, "[changes.revert]"))
    if argv is None:
        return None
    found = _BY_WORDS.get(argv)
    if found is not None:
        return Match(command, found)
    if argv[:2] == ("git", "commit") and "--amend" not in argv:  # whose commit was replaced is not known
        return Match(command, _COMMITS)
    if argv[:2] == ("git", "add"):
        return _match_add(command, argv[2:])
    return None


def _match_add(command: str, args: tuple[str, ...]) -> Match | None:
    everything, names, options = False, [], True
    for arg in args:
        if options and arg == "--":
            options = False
        elif options and arg in _ADD_ALL:
            everything = True
        elif options and arg.startswith("-"):
            if arg not in _ADD_FLAGS:
                return None
        else:
            names.append(arg)
    if names == ["."] or (everything and not names):
        return Match(command, _UNSTAGE_ALL)
    if any(name.startswith(":") or _GLOB.intersection(name) for name in names):
        return None  # git takes these for more than a name: what they added is not known
    try:
        paths = tuple(relative(name) for name in names)
    except BadPathError:
        return None
    return Match(command, _UNSTAGE, paths) if paths else None


def table(extra: Mapping[str, tuple[str, ...]] | None = None) -> Iterator[tuple[str, Revert]]:
    """Everything that can be reverted, user's entries first: the command as executed, and what is done."""
    for line, argv in (extra or {}).items():
        yield line, Revert(How.RUN, argv, source="[changes.revert]")
    for line, revert in REGISTRY.items():
        if line not in (extra or {}):
            yield line, revert
