"""The documentation says what the code does: generated pages are fresh, links lead somewhere, examples load."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from evolver.errors import ExitStatus
from evolver.loopfile import build, read_table
from evolver.ui import topics

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "examples/README.md", ROOT / "benchmarks/README.md"]
)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "environment.md", "events.md", "exit-codes.md", "loop-file.md"])
def test_the_reference_is_fresh(name: str, generator: ModuleType) -> None:
    committed, fresh = (DOCS / "reference" / name).read_text(encoding="utf-8"), generator.PAGES[name]()
    layout = r"<!-- Laid out by typer .* -->"
    if name == "cli.md" and re.findall(layout, committed) != re.findall(layout, fresh):
        # Another typer breaks lines elsewhere: then the commands and their options count.
        committed, fresh = (str(re.findall(r"^## .*|^  (?:-\w, )?--[\w-]+", text, re.M)) for text in (committed, fresh))
    assert committed == fresh, "run: python docs/generate.py"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", target):
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in DOCS.rglob("*.md"):
        assert str(path.relative_to(DOCS)) in nav, path


def test_the_exit_codes_of_help_reference_and_code_agree() -> None:
    help_ = topics.text("exit-codes")
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", help_, re.M) for code in row.split(",")}
    assert listed == {int(status) for status in ExitStatus}
    reference = (DOCS / "reference/exit-codes.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| `(\d+)` \|", reference, re.M)} == listed


def test_the_readme_lists_every_exit_code() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Exit codes")[1].split("\n## ")[0]
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.M) for code in row.split(",")}
    assert listed == {int(status) for status in ExitStatus}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.toml")), ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_load(path: Path) -> None:
    loaded = build(read_table(path), path.stem, path, path.parent)
    assert loaded.definition.loop.goal


def _repository(folder: Path, example: str, files: dict[str, str]) -> Path:
    shutil.copytree(ROOT / "examples" / example, folder / "loops" / example)
    for name, text in files.items():
        (folder / name).write_text(text)
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run(["git", *args], cwd=folder, check=True)
    return folder


def _evolver(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "evolver", *args], cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_callable_example_runs(tmp_path: Path) -> None:
    root = _repository(tmp_path, "callable", {"words.txt": "pear\napple\nfig\nplum\n"})
    done = _evolver(root, "run", "callable")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "words.txt").read_text() == "apple\nfig\npear\nplum\n"
    assert "goal" in done.stdout


def test_the_score_example_runs(tmp_path: Path) -> None:
    root = _repository(tmp_path, "score", {"page.html": "<p>one</p>\n" * 4 + "<title>t</title>\n"})
    done = _evolver(root, "run", "score")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "page.html").read_text().count("<p>") < 3
    assert "rolled back and verified" in done.stdout


def test_the_api_examples_run(tmp_path: Path) -> None:
    """Every Python block of docs/python-api.md, in order, in one process."""
    text = (DOCS / "python-api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 4
    root = tmp_path / "repository"
    root.mkdir()
    (root / "counter.txt").write_text("0\n")
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run(["git", *args], cwd=root, check=True)
    script = tmp_path / "examples.py"
    script.write_text("\n".join(blocks) + "\nassert (Path('repository') / 'counter.txt').read_text() == '1\\n'\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "1 3 max_iterations"


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="mkdocs-material is not installed (dependency group docs)"
)
def test_mkdocs_builds_the_site(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "site/index.html").is_file()
