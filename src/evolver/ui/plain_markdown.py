"""Markdown as plain text for pipes and files: as much of it as our own topics use. A terminal gets rich's rendering instead."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import groupby

from evolver.ui.words import columns

WIDTH = 80
NARROWEST = 12  # a table's columns are not squeezed below it
_ITEM = re.compile(r"( *)([-*]|\d+\.) +(.*)")


def plain_markdown(text: str, width: int = WIDTH) -> str:
    """Headings underlined, paragraphs filled, tables aligned, code as it stands."""
    return "\n\n".join("\n".join(block) for block in _blocks(text, width)) + "\n"


def inline(text: str) -> str:
    """Without backticks and stars; a link's address behind its text."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part[1:-1] if part[:1] == "`" and len(part) > 1 else _plain(part) for part in parts)


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", r"\1 (\2)", re.sub(r"\*\*?([^*]+)\*\*?", r"\1", text))


def _blocks(text: str, width: int) -> Iterator[list[str]]:
    for is_blank, group in groupby(_unfenced(text), lambda line: not line.strip()):
        lines = list(group)
        if is_blank:
            continue
        if lines[0].startswith("#"):
            heading = inline(lines[0].lstrip("# "))
            yield [heading, ("=" if lines[0].startswith("# ") else "-") * len(heading)]
            lines = lines[1:]
        if not lines:
            continue
        if all(line.startswith("    ") for line in lines):
            yield lines
        elif lines[0].startswith("|"):
            yield table([_cells(line) for line in lines if not re.fullmatch(r"[|\s:-]+", line)], width)
        else:
            yield [out for paragraph in _paragraphs(lines) for out in _filled(paragraph, width)]


def _unfenced(text: str) -> Iterator[str]:
    """Fenced code as indented code."""
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        else:
            yield f"    {line}" if inside and line else line


def _cells(line: str) -> tuple[str, ...]:
    return tuple(inline(cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """A paragraph each, or an item of a list each; what continues an item is joined to it."""
    current = ""
    for line in lines:
        if current and not _ITEM.match(line):
            current += " " + line.strip()
        else:
            if current:
                yield current
            current = line.rstrip()
    yield current


def _filled(paragraph: str, width: int) -> list[str]:
    item = _ITEM.match(paragraph)
    first = f"{item[1]}{item[2]} " if item else ""
    body = item[3] if item else paragraph
    return textwrap.wrap(
        inline(body), width, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def table(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Columns side by side. Where they do not fit, the widest give way and their cells take several lines."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    head, *body = rows
    out: list[tuple[str, ...]] = []
    for row in (head, tuple("-" * cell for cell in widths), *body):
        cells = [
            textwrap.wrap(text, size, break_long_words=False, break_on_hyphens=False) or [""]
            for text, size in zip(row, widths, strict=True)
        ]
        out += [tuple(cell[n] if n < len(cell) else "" for cell in cells) for n in range(max(map(len, cells)))]
    return columns(out)
