"""Which new paths git would ignore: by the rules as they are now, and by the baseline's (an attempt may edit either, hazards 4, 31)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress

from evolver.git import Git, failure
from evolver.worktree.manifest import Tree, lookup, split
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot

IGNOREFILE = ".gitignore"
ATTRIBUTES = ".gitattributes"
RULES = (IGNOREFILE, ATTRIBUTES, ".gitmodules")
LONGEST = 3900  # bytes of a path that git can be asked about


def ask(git: Git, paths: Iterable[str]) -> frozenset[str]:
    """Those of `paths` that git ignores, whether they are in an index or not."""
    raw = [os.fsencode(p) for p in paths]
    # `check-ignore` refuses literal pathspecs; behind `./` nothing in a name is taken for pathspec magic (hazard 41).
    data = b"".join(b"./" + p + b"\0" for p in raw if len(p) < LONGEST)  # git cannot name longer ones (hazard 40)
    if not data:
        return frozenset()
    args = ("check-ignore", "--no-index", "--stdin", "-z")
    done = git.run(*args, input=data, env={"GIT_LITERAL_PATHSPECS": "0"}, check=False)
    if done.code not in (0, 1):
        raise failure(args, done)
    return frozenset(os.fsdecode(p.removeprefix(b"./")) for p in done.fields())


def ignored_now(git: Git, now: Tree, added: list[str]) -> frozenset[str]:
    """The paths among `added` that are ignored. A new folder is asked about first: what is in an ignored one need not be."""
    new = set(added)
    tops = [p for p in added if split(p)[0] not in new]
    top_ignored = ask(git, tops)
    result = set(top_ignored)
    rest = []
    for path in added:
        if path in result:
            continue
        above = split(path)[0]
        if above in result:
            result.add(path)  # parents come before what is in them
        elif path not in tops:
            rest.append(path)
    found = ask(git, rest)
    for path in rest:
        if path in found or split(path)[0] in result:
            result.add(path)
    return frozenset(result)


def ignored_then(site: Site, snapshot: Snapshot, now: Tree, added: list[str]) -> frozenset[str]:
    """The same by the baseline's ignore files: they are laid out alone in a scratch folder, and git is asked there."""
    scratch = site.boat.folder / "rules"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        from evolver.worktree.source import Source

        with Source(site.vault, site.git) as source:
            for folder, content in snapshot.work.items():
                entry = content.get(IGNOREFILE)
                if entry is not None and entry.is_file and len(folder) < 2000:
                    target = scratch / folder
                    target.mkdir(parents=True, exist_ok=True)
                    (target / IGNOREFILE).write_bytes(b"".join(source.chunks(entry.content)))
        for path in added:
            entry = lookup(now, path)
            if entry is not None and entry.is_dir and len(path) < 2000:
                with suppress(FileExistsError, NotADirectoryError):  # the attempt made a folder of what was an ignore file
                    (scratch / path).mkdir(parents=True, exist_ok=True)
        return ignored_now(site.git.but(work_tree=scratch), now, added)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def by_exclude(site: Site, exclude: bytes) -> Git:
    """git with another `info/exclude` (the attempt's): a folder of its own that holds nothing else."""
    folder = site.boat.folder / "exclude-rules"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("objects", "refs", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_bytes(b"ref: refs/heads/none\n")
    (folder / "info/exclude").write_bytes(exclude)
    return site.git.but(git_dir=folder)


def plugged(now: Tree) -> bool:
    """A FIFO or the like where git looks for rules: whatever of git reads it waits for ever (hazard 38)."""
    return any(
        not (entry.is_file or entry.is_link or entry.is_dir)
        for content in now.values()
        for name in RULES
        if (entry := content.get(name)) is not None
    )


def rules_changed(changed: Iterable[str]) -> bool:
    return any(path == IGNOREFILE or path.endswith("/" + IGNOREFILE) for path in changed)


def nested_roots(*trees: Tree) -> frozenset[str]:
    """Folders that are repositories of their own (submodules, nested repositories, other worktrees)."""
    return frozenset(folder for tree in trees for folder, content in tree.items() if folder and ".git" in content)


def below(path: str, roots: frozenset[str]) -> str | None:
    """The outermost of `roots` that `path` lies in (or is)."""
    if not roots:
        return None
    at = path.find("/")
    while at > 0:
        if path[:at] in roots:
            return path[:at]
        at = path.find("/", at + 1)
    return path if path in roots else None

