"""The texts behind `evolver help TOPIC`. The documentation site includes the same files."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "topic_texts"


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


def text(name: str) -> str:
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
