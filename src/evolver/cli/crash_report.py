"""Where a bug's traceback goes: a file, with secrets removed, instead of a person's terminal."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from evolver._version import __version__


def write(error: Exception, words: Sequence[str]) -> Path:
    """The report's path."""
    from evolver.redact import Redactor

    lines = [
        f"evolver {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"arguments: {list(words)!r}",
        f"folder: {_folder()}",
        "",
        *traceback.format_exception(error),
    ]
    text = Redactor.from_environment(os.environ).redact_text("\n".join(lines))
    fd, name = tempfile.mkstemp(prefix="evolver-crash-", suffix=".txt")
    with os.fdopen(fd, "w", encoding=sys.getfilesystemencoding(), errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:  # it was removed: the report is wanted all the same
        return error.strerror or "unknown"
