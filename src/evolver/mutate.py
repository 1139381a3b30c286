"""A codegen step that needs no model: change one operator, constant or condition of a Python source tree.

    python -m evolver.mutate [--seed N] [--list] [PATH ...]

Which edit is made depends only on the seed, `EVOLVER_ITERATION` and the sources, so a run can be repeated. The edit is
textual and as small as the change itself: nothing else of the file is touched, whatever its encoding or line ends.
Standard library only: this runs once an iteration, and its start is most of what it costs.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evolver.mutations import KINDS, Mutation, is_valid, mutations

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages", "docs", "doc"})
_TEST_FOLDERS = frozenset({"test", "tests", "testing"})
_SKIPPED_FILES = frozenset({"setup.py", "conftest.py", "noxfile.py", "conf.py", "_version.py"})


@dataclass(frozen=True, slots=True)
class Source:
    """A decoded source file. `text` keeps the line ends, so that encoding it gives the file's bytes again."""

    path: Path
    text: str
    encoding: str

    @classmethod
    def read(cls, path: Path) -> Source | None:
        """None for a file that is no valid Python in its own encoding, or would not come back byte for byte."""
        try:
            raw = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
            text = raw.decode(encoding)
        except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
            return None
        return cls(path, text, encoding) if text.encode(encoding) == raw else None

    def write(self, text: str) -> None:
        """Overwrite in place: mode and hard links stay as they are."""
        self.path.write_bytes(text.encode(self.encoding))


def python_files(root: Path) -> Iterator[Path]:
    """The sources below a folder, sorted: no tests, no packaging, no environments, nothing hidden, no symlinks."""
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS | _TEST_FOLDERS
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / ".git").exists()
        )
        for name in sorted(names):
            path = here / name
            if not name.endswith(".py") or name in _SKIPPED_FILES or name.startswith("test_") or name.endswith("_test.py"):
                continue
            if path.is_file() and not path.is_symlink():
                yield path


def mutate(paths: list[Path], seed: str, kinds: tuple[str, ...] = KINDS) -> tuple[Source, Mutation] | None:
    """Write one mutation, chosen by `seed`. None, and nothing written, when there is nothing to change.

    Files are drawn by their size, then a place in the file: about every place in the tree is equally likely, and a large
    tree costs one parse.
    """
    rng = random.Random(seed)
    files = dict.fromkeys(found for root in paths for found in python_files(root))
    for path in sorted(files, key=lambda path: rng.random() ** (1 / (path.stat().st_size + 1)), reverse=True):
        source = Source.read(path)
        changes = [change for change in mutations(source.text) if change.kind in kinds] if source else []
        rng.shuffle(changes)
        for change in changes:
            if source and is_valid(text := change.apply(source.text)):
                source.write(text)
                return source, change
    return None


def describe(source: Source, change: Mutation) -> str:
    old = " ".join(source.text[change.start : change.end].split())
    return f"{source.path}:{change.line}: {change.kind} `{old}` -> `{' '.join(change.new.split())}`"


def main(argv: list[str] | None = None) -> int:
    """Exit 0 when a file was changed (or listed), 1 when there is nothing to change."""
    parser = argparse.ArgumentParser(prog="python -m evolver.mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: the current folder)")
    parser.add_argument("--seed", default="0", help="any text; the iteration's number is mixed into it")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--list", action="store_true", help="print every possible change, make none")
    options = parser.parse_args(argv)
    paths: list[Path] = options.paths or [Path()]
    missing = [path for path in paths if not path.exists()]
    if missing:
        print(f"mutate: {missing[0]}: no such file or folder", file=sys.stderr)
        return 1
    kinds = tuple(options.kind or KINDS)
    if options.list:
        for path in dict.fromkeys(found for root in paths for found in python_files(root)):
            source = Source.read(path)
            for change in mutations(source.text) if source else []:
                if source and change.kind in kinds:
                    print(describe(source, change))
        return 0
    done = mutate(paths, f"{options.seed}:{os.environ.get('EVOLVER_ITERATION', '0')}", kinds)
    if done is None:
        print(f"mutate: nothing to change in {', '.join(map(str, paths))}", file=sys.stderr)
        return 1
    print(describe(*done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
