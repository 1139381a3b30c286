"""What a clone takes along that git does not know: ignored dependencies such as `node_modules`, by copy or by link."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from evolver.errors import PreflightError
from evolver.git import Git
from evolver.layout import Layout
from evolver.resume_lock import write_atomic

_MARK = "# taken along by evolver"


def take(person: Layout, clone: Layout, git: Git, *, copy: tuple[str, ...], link: tuple[str, ...]) -> None:
    """Copy and link what the loop names, and make the clone ignore the same paths as the person's repository does.

    A copy is renewed when the original changed. Raise `PreflightError` for a path that is not there, tracked, or outside.
    """
    wanted = dict.fromkeys(copy, False) | dict.fromkeys(link, True)
    _ignore(person, clone, tuple(wanted))
    for path, linked in wanted.items():
        source, target = _checked(person, clone, git, path)
        if linked:
            _link(source, target)
        else:
            _copy(source, target, clone.root.parent / "copied" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32])


def _checked(person: Layout, clone: Layout, git: Git, path: str) -> tuple[Path, Path]:
    source, target = person.root / path, clone.root / path
    inside = Path(os.path.normpath(source))
    if inside == person.root or not inside.is_relative_to(person.root):
        raise PreflightError(f"[loop] copy, link: {path!r} is not a path inside the worktree", "Name one below its root.")
    if not os.path.lexists(source):
        raise PreflightError(f"[loop] copy, link: {source} does not exist", "Install the dependencies there, or take it out.")
    if git.run("ls-files", "-z", "--", path).out:
        raise PreflightError(f"[loop] copy, link: {path} is tracked, so the clone has it already", "Take it out.")
    return source, target


def _ignore(person: Layout, clone: Layout, paths: tuple[str, ...]) -> None:
    """`info/exclude`: a link called `node_modules` is not matched by the usual pattern `node_modules/`."""
    try:
        theirs = (person.common_dir / "info/exclude").read_bytes()
    except OSError:
        theirs = b""
    lines = [_MARK, *("/" + _escape(os.path.normpath(path)) for path in paths)]
    text = theirs.rstrip(b"\n") + b"\n" + os.fsencode("\n".join(lines)) + b"\n"
    exclude = clone.git_dir / "info/exclude"
    if not exclude.exists() or exclude.read_bytes() != text:
        write_atomic(exclude, text, 0o644)


def _escape(path: str) -> str:
    return "".join("\\" + c if c in "*?[]\\!# " else c for c in path)


def _link(source: Path, target: Path) -> None:
    if target.is_symlink():
        if target.readlink() == source:
            return
        target.unlink()
    elif target.exists():
        return  # installed in the clone itself: it serves as well, and it is not ours to remove
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source)


def _copy(source: Path, target: Path, stamp: Path) -> None:
    now = hashlib.sha256(b"\0".join(_facts(source))).hexdigest().encode()
    if os.path.lexists(target) and stamp.exists() and stamp.read_bytes() == now:
        return
    fresh, old = stamp.with_suffix(".new"), stamp.with_suffix(".old")  # beside the clone: a kill leaves nothing in it
    for left in (fresh, old):
        _remove(left)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, fresh, symlinks=True)
        else:
            shutil.copy2(source, fresh, follow_symlinks=False)
    except (OSError, shutil.Error) as error:
        _remove(fresh)
        raise PreflightError(f"{source} cannot be copied into the clone: {error}", "Make room on the disk, or link it.") from error
    if os.path.lexists(target):
        target.rename(old)
    fresh.rename(target)
    _remove(old)
    write_atomic(stamp, now)


def _facts(source: Path) -> Iterator[bytes]:
    """Name, size and time of everything below: tells whether a copy is up to date without reading it."""
    yield _fact(source)
    for folder, folders, files in os.walk(source):
        folders.sort()
        for name in sorted([*folders, *files]):
            yield _fact(Path(folder) / name)


def _fact(path: Path) -> bytes:
    try:
        st = path.lstat()
    except OSError:
        return os.fsencode(path)
    size = 0 if path.is_dir() else st.st_size
    return b"%s %o %d %d" % (os.fsencode(path), st.st_mode, size, st.st_mtime_ns)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
