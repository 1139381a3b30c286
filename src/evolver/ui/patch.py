"""Prints a patch. Coloured by us: what it contains is an agent's, and may hold escape sequences."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from evolver.ui import words

_STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def print_patch(patch: bytes, out: Console) -> None:
    """Escaped and coloured on a terminal; byte for byte in a pipe, so that `git apply` takes it."""
    if not out.is_terminal:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        return
    for line in words.plain(patch.decode(errors="replace")).splitlines():
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        out.print(Text(line, style), soft_wrap=True)
