"""Files in the worktree that git's configuration names: what it includes, and the programs it has git run (filters, ssh, helpers).

They steer git as `config` does, though an attempt can write them without touching `.git`. So they are control files as well: put
back before git may read or run them. What the attempt had there is aside, and is kept with the attempt.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.aside import Aside
from evolver.worktree.content import compared
from evolver.worktree.converge import Converge
from evolver.worktree.ignorerules import below
from evolver.worktree.lifeboat import GITCONFIG
from evolver.worktree.manifest import LEFT, entries, entry_of, lookup
from evolver.worktree.objects import Staged
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import Source

_INCLUDE = re.compile(rb"include(if\..*)?\.path", re.I | re.S)
_PROGRAM = re.compile(
    rb"filter\..*\.(clean|smudge|process)|core\.(sshcommand|askpass|gitproxy|alternaterefscommand)|credential\.(.*\.)?helper"
    rb"|remote\..*\.uploadpack",
    re.I | re.S,
)
_WORTH_ASKING = re.compile(rb"include|filter|sshcommand|askpass|gitproxy|alternaterefs|credential|uploadpack", re.I)
_VARIABLES = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS")
_WORDS = re.compile(r"""[^\s'"`$(){};|&<>=]+""")
_ROUNDS = 8  # an included file may include another
_LINKS = 40


@dataclass
class Named:
    """One pass of the guard. git's own control files are the baseline's already."""

    site: Site
    snapshot: Snapshot
    aside: Aside
    problems: list[str] = field(default_factory=list)

    def put_back(self) -> list[str]:
        """What differed from the baseline, now put back. Runs no git but to parse one file and to read blobs."""
        found: list[str] = []
        for _ in range(_ROUNDS):
            wrong = self._wrong()
            if not wrong:
                return found
            with Anchor(self.site.root) as anchor:
                for path in wrong:  # all of them first: git reads what is included when it is asked for bytes
                    self.aside.take(anchor, "root", path)
                with Source(self.site.vault, self.site.git) as source:
                    work = Converge(anchor, self.snapshot.work, source)
                    work.run([p for path in wrong for p in (path, *(inner for inner, _ in entries(self.snapshot.work, path)))])
                    self.problems += work.problems
            found += wrong
        return found

    def _wrong(self) -> list[str]:
        with Anchor(self.site.root) as anchor:
            differing = {place for path in _paths(self.site) if (place := self._first_difference(anchor, path))}
        return sorted(p for p in differing if not any(p.startswith(other + "/") for other in differing))

    def _first_difference(self, anchor: Anchor, path: str) -> str | None:
        """The topmost thing on the way to `path`, links followed, that is not the baseline's."""
        work, rest, at, links = self.snapshot.work, path.split("/")[::-1], "", 0
        while rest:
            name = rest.pop()
            at = os.path.normpath(os.path.join(at, name)) if name != ".." else os.path.dirname(at)
            if at in ("", ".") or at.split("/")[0] in ("..", ".git") or below(at, self.snapshot.opaque) is not None:
                return None  # outside, git's own, or left out of the baseline: nothing is known of it
            st, was = anchor.lstat(at), lookup(work, at)
            if was is not None and was.content == LEFT:
                return None
            if was is not None and was.is_dir and not rest and (st is None or stat.S_ISDIR(st.st_mode)):
                return None  # a word that happens to be a folder's name
            if st is None or was is None:
                if st is not None and stat.S_ISDIR(st.st_mode):
                    continue
                return at if (st is None) != (was is None) else None
            if stat.S_IFMT(st.st_mode) != stat.S_IFMT(was.mode):
                return at
            if was.is_link:
                target = anchor.readlink(at)
                if compared(anchor, self.snapshot.algorithm)(at, entry_of(st), was) != was.content:
                    return at
                links += 1
                if target.startswith(b"/") or links > _LINKS:
                    inside = _inside(self.site.root, Path(os.fsdecode(target)))
                    if inside is None or links > _LINKS:
                        return None
                    rest, at = rest + inside.split("/")[::-1], ""
                else:
                    rest, at = rest + os.fsdecode(target).split("/")[::-1], os.path.dirname(at)
            elif was.is_file:
                now = entry_of(st)
                same = compared(anchor, self.snapshot.algorithm)(at, now, was) == was.content
                return None if same and stat.S_IMODE(now.mode) == stat.S_IMODE(was.mode) else at
        return None


def displaced(site: Site, aside: Aside) -> dict[str, Staged]:
    """What the attempt (or, after a crash, a person) had in such files, as blobs: it is kept wherever the attempt is."""
    found: dict[str, Staged] = {}
    for path, body in aside.taken("root").items():
        st = body.lstat()
        if path != ".git" and stat.S_ISREG(st.st_mode):
            oid = site.git.run("hash-object", "-w", "--no-filters", "--stdin", input=read_regular(body)).text
            found[path] = Staged(0o100755 if st.st_mode & stat.S_IXUSR else 0o100644, oid)
        elif path != ".git" and stat.S_ISLNK(st.st_mode):
            target = os.fsencode(os.readlink(body))
            found[path] = Staged(0o120000, site.git.run("hash-object", "-w", "--no-filters", "--stdin", input=target).text)
    return found


def _inside(root: Path, path: Path) -> str | None:
    """`path` relative to the worktree, its folder's symlinks resolved; None: outside it, or in `.git`."""
    for place in (path, Path(os.path.realpath(path.parent)) / path.name):
        with suppress(ValueError):
            relative = os.path.normpath(place).removeprefix(f"{root}/")
            if not relative.startswith(("/", "..")) and relative != "." and relative.split("/")[0] != ".git":
                return relative
    return None


def _paths(site: Site) -> set[str]:
    """The files that are named, relative to the worktree, whether they exist or not."""
    root, found = site.root, set()
    pending = [(site.common / "config", False), (site.private / "config.worktree", False), (site.boat.folder / GITCONFIG, False)]
    words = [site.home.get(name, "") for name in _VARIABLES]
    seen: set[Path] = set()
    while pending:
        file, included = pending.pop()
        if file in seen:
            continue
        seen.add(file)
        inside = _inside(root, file) if included else None
        if inside is not None:
            found.add(inside)
        for key, value in _settings(site, file):
            if _INCLUDE.fullmatch(key):
                target = Path(os.path.expanduser(os.fsdecode(value)))
                pending.append((Path(os.path.normpath(file.parent / target)), True))
            elif _PROGRAM.fullmatch(key) and (not key.startswith(b"credential") or value[:1] in (b"!", b"/")):
                words.append(os.fsdecode(value))  # a plain credential helper is `git credential-NAME`
    for command in words:
        found |= set(_programs(root, command, site.home.get("PATH", os.defpath)))
    return found


def _settings(site: Site, file: Path) -> Iterator[tuple[bytes, bytes]]:
    """What one file says, its includes not followed. Almost every one can be told by a look to say nothing of interest."""
    try:
        data = read_regular(file)
    except OSError:
        return
    if not _WORTH_ASKING.search(data):
        return
    if data not in site.parsed:
        # As in no repository at all: in this one git would read its config first, what that includes with it.
        nowhere = {"GIT_DIR": str(site.boat.folder / "no-repository"), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = site.git.found_from(site.boat.folder, "config", "--file", str(file), "--no-includes", "--list", "-z", env=nowhere)
        site.parsed[data] = done.fields()
    for item in site.parsed[data]:
        key, _, value = item.partition(b"\n")
        yield key, value


def _programs(root: Path, command: str, path: str) -> Iterator[str]:
    """Every word of a command line that may be a file in the worktree, by its name or by PATH."""
    words = _WORDS.findall(command)
    if words and os.path.basename(words[0]) == "git-lfs":
        words = words[:1]
    for word in words:
        inside = _inside(root, root / word)
        if inside is not None:
            yield inside
        if "/" in word:
            inside = _inside(root, root / word.lstrip("/"))  # "$(git rev-parse --show-toplevel)/tools/clean"
            if inside is not None:
                yield inside
            continue
        for folder in path.split(os.pathsep):
            place = root / (folder or ".") / word
            inside = _inside(root, place)
            if inside is not None:
                yield inside
            elif os.access(place, os.X_OK):
                break


def hook_places(site: Site, names: Iterable[str]) -> set[str]:
    """Where in the worktree hooks lie that git would run: the folder, the one above a folder `_` of wrappers, link targets."""
    named = site.git.but(hooks=True).run("config", "--type=path", "--get", "core.hooksPath", check=False)
    folder = site.root / os.fsdecode(named.out).rstrip("\n") if named.ok else site.common / "hooks"
    found = set()
    for base in {folder, Path(os.path.realpath(folder))}:
        inside = _inside(site.root, base)
        if inside is not None:
            found.add(inside)
            found |= {os.path.dirname(inside)} - {""} if base.name == "_" else set()
        for name in names:
            script = base / name
            for _ in range(_LINKS):
                inside = _inside(site.root, script)
                found |= {inside} if inside is not None else set()
                if not script.is_symlink():
                    break
                script = Path(os.path.normpath(script.parent / script.readlink()))
    return found
