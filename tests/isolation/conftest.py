from __future__ import annotations

from pathlib import Path

import pytest

from isolation.person import Person


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person.make(tmp_path / "project", {"app.txt": "0\n", ".gitignore": "node_modules/\n*.log\n"})
