"""What `--version` and `status` cost: neither imports git, watchfiles or rich, and status does not grow with the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("git", "watchfiles", "rich", "httpx", "jinja2", "jsonschema", "pygal", "tenacity")
PROBE = f"""
import sys
from evolver.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code in (0, None), end.code
print("imported:", [name for name in {HEAVY!r} if name in sys.modules])
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", *args], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("arguments", [["--version"], ["status"], ["status", "--json"]], ids=" ".join)
def test_version_and_status_import_neither_git_nor_watchfiles_nor_rich(arguments: list[str], repository: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_importing_evolver_does_nothing(tmp_path: Path) -> None:
    """No folder, no `.env`, no output, no module but its own version."""
    (tmp_path / ".env").write_text("EVOLVER_ROLLBACK_MODE=none\n")
    code = (
        "import sys; before = set(sys.modules); import evolver;"
        "print(sorted(n for n in set(sys.modules) - before if n.startswith('evolver')), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['evolver', 'evolver._version']"
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


def test_the_public_names_load_when_they_are_used() -> None:
    code = "import evolver; from evolver import Loop, run, resume, read_events; import evolver.resuming; assert callable(evolver.resume)"
    subprocess.run([sys.executable, "-c", code], check=True)
