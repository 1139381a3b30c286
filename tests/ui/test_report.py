"""The report: small, self-contained, harmless whatever an agent wrote, and usable in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .stream import EVIL, Recorded, Writer, mixed

ROOT = Path(__file__).parents[2]
NODE_MODULES = ROOT / ".ci/node/node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def evolver(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "evolver", *args], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """1,000 iterations, 60 of them real commits."""
    root = tmp_path_factory.mktemp("large")
    before = dict(os.environ)
    os.environ.update(
        HOME=str(root), XDG_STATE_HOME=str(root / "state"), GIT_AUTHOR_NAME="T", GIT_AUTHOR_EMAIL="t@t.invalid",
        GIT_COMMITTER_NAME="T", GIT_COMMITTER_EMAIL="t@t.invalid", GIT_CONFIG_NOSYSTEM="1",
    )  # fmt: skip
    try:
        return mixed(root / "repo", 1000)
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_one_thousand_iterations_stay_under_a_megabyte_and_load_nothing(large: Recorded, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    done = evolver("report", "-o", str(page), cwd=large.root)
    assert done.returncode == 0, done.stderr
    html = page.read_text()
    assert len(html.encode()) < 1_000_000
    assert len(re.findall(r'<details id="i\d+">', html)) == 1000
    addresses = set(re.findall(r"""(?:src|href|url|action)\s*[=(]\s*["']?([^"'\s>)]+)""", html))
    assert not [address for address in addresses if not address.startswith("#")]
    assert "default-src &#39;none&#39;" in html
    for part in (
        "intact,",
        "Failures by cause",
        "Accepted commits",
        "git worktree add --detach",
        "evolver run tune",
        'aria-label="score',
    ):
        assert part in html


def test_what_an_agent_wrote_stays_text(tmp_path: Path) -> None:
    recorded = mixed(tmp_path / "repo", 12)
    html = evolver("report", "-o", "-", cwd=recorded.root).stdout
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "\x1b" not in html
    assert html.count("<script>") == 1  # the page's own
    markdown = evolver("report", "--md", cwd=recorded.root).stdout
    assert "@everyone" not in markdown
    assert "<script>" not in markdown
    assert "\x1b" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and "Improve" in line]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}  # no cell was split by what it holds


def test_a_broken_chain_is_the_first_thing_said(tmp_path: Path) -> None:
    recorded = mixed(tmp_path / "repo", 6)
    events = recorded.layout.events()
    raw = events.read_bytes().replace(b'"exit 0"', b'"exit 1"', 1)
    events.write_bytes(raw)
    html = evolver("report", "-o", "-", cwd=recorded.root).stdout
    assert "The event stream cannot be relied on" in html
    assert "BROKEN" in html


def test_a_held_run_says_what_to_do(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "repo", mode="none")
    writer.held(1, f"tests: exit 1 {EVIL}")
    recorded = writer.finish("held", 3)
    markdown = evolver("report", "--md", cwd=recorded.root).stdout
    assert "Stopped and held" in markdown
    html = evolver("report", "-o", "-", cwd=recorded.root).stdout
    assert "evolver resume" in html


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    Writer(root).finish()
    done = evolver("report", "--run", "nosuch", cwd=root)
    assert done.returncode == 2
    assert "no run nosuch" in done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (apt-get install chromium)")
@pytest.mark.skipif(
    not (NODE_MODULES / "playwright-core").is_dir(), reason="no playwright-core and axe-core: .ci/run installs them"
)
def test_chromium_opens_the_report_of_a_1000_iteration_run(large: Recorded, tmp_path: Path) -> None:
    """No console error, no external request, no violation axe-core finds, folding and keyboard work; phone, dark, print."""
    seen = opened(large.root, tmp_path, tmp_path)
    assert seen["console"] == []
    assert seen["requests"] == []
    assert seen["violations"] == {"light": [], "dark": []}
    assert (seen["before"], seen["keyboard"], seen["again"]) == (False, True, False)
    assert seen["unfolded"] == seen["printed"] == seen["folds"] > 1000
    assert seen["folded"] == 0
    assert seen["jumped"] is True
    assert seen["skip"] == "To the iterations"
    assert seen["overflow"] == 0
    assert seen["background"] == "rgb(13, 17, 23)"
    assert (tmp_path / "report.png").stat().st_size > 10_000
    if "SCREENSHOTS" in os.environ:  # for the README: the demo's report
        assert evolver("demo", "--quiet", "demo", cwd=tmp_path).returncode == 0
        opened(tmp_path / "demo", tmp_path, Path(os.environ["SCREENSHOTS"]))


def opened(root: Path, tmp_path: Path, shots: Path) -> dict[str, Any]:
    """What Chromium saw of the report of the last run in `root`."""
    page = tmp_path / "r.html"
    assert evolver("report", "-o", str(page), cwd=root).returncode == 0
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("browser.mjs")), str(page), str(shots), str(NODE_MODULES)],
        env={**os.environ, "CHROMIUM": CHROMIUM or "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
