"""Hostile logs by the thousand: nothing outside the root is written or deleted, and no exception escapes.

300 of each kind here, 10,000 in the nightly marker. `EVOLVER` is called as a function; what it may do is the same.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolver.changes.kept import Keep
from evolver.changes.prepare import prepare
from evolver.changes.report import ChangesReport
from evolver.changes.rollback import rollback_changes

from .conftest import LOG, Place, snapshot

NAMES = [
    "a",
    "b",
    "f",
    "d",
    "d/f",
    "d/e/g",
    "link",
    "link/secret",
    "dlink",
    "dlink/x",
    ".rollback",
    ".rollback/f",
    ".rollback/l",
]
EVIL = [
    "..",
    "../outside",
    "../outside/secret",
    "/etc/passwd",
    "",
    ".",
    "./",
    ".git",
    ".git/config",
    ".GIT/HEAD",
    "d/../../outside/secret",
    "link/../secret",
    "d//./f",
    "d/f/",
    "f/f",
    "hard",
    ".bug-changes.json",
    "\udcff",
    "\ud800",
    "x\0y",
    "x\ny",
    "x" * 300,
    "~/.gitconfig",
    "-rf",
    "$(touch pwned)",
    "dist",
    "fifo",
]
GIT = shutil.which("git") or "git"
PATHS = st.one_of(st.sampled_from(NAMES), st.sampled_from(EVIL), st.text(max_size=12))
COMMANDS = st.one_of(
    st.sampled_from(
        [
            "pnpm install",
            "pnpm build",
            "git add .",
            "git add f",
            "git add -A",
            "git commit -m x",
            "touch ../outside/pwned",
            "rm -rf /",
        ]
    ),
    st.builds("git add {}".format, PATHS),
    st.text(max_size=20),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def either(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nearly always what belongs there."""
    return st.one_of(good, good, good, good, good, good, good, JSON)


BACKUP = st.fixed_dictionaries(
    {"path": either(PATHS), "backup": either(PATHS)},
    optional={"sha256": either(st.just("0" * 64)), "mode": either(st.sampled_from(["644", "755", "777", "000"])), "x": JSON},
)
LOGS = st.fixed_dictionaries(
    {
        "phase": either(st.sampled_from(["bug-fixing", "../../outside/x", "a/b", "x\n"])),
        "timestamp": either(st.just("2025-10-18T14:30:00Z")),
        "files_modified": either(st.lists(either(BACKUP), max_size=4)),
        "files_created": either(st.lists(either(PATHS), max_size=4)),
        "commands_executed": either(st.lists(either(COMMANDS), max_size=3)),
        "git_commits": either(st.lists(either(st.sampled_from(["abc123", "HEAD", "0000", "--abort", "f" * 40])), max_size=3)),
    },
    optional={
        "artifacts": either(st.lists(either(PATHS), max_size=3)),
        "plan_files": either(st.lists(either(PATHS), max_size=3)),
        "metadata": either(
            st.fixed_dictionaries(
                {
                    "evolver": st.fixed_dictionaries(
                        {},
                        optional={"recording": either(st.just("0" * 16)), "created_dirs": st.lists(either(PATHS), max_size=3)},
                    )
                }
            )
        ),
        "other": JSON,
    },
)


def furnish(place: Path) -> Path:
    """A root with traps in it, and beside it what must stay as it is. Returns the root."""
    root = place / "root"
    (place / "bin").mkdir(exist_ok=True)
    if not (place / "bin/git").exists():
        (place / "bin/git").symlink_to(GIT)
    for folder in ("outside/sub", "root/d/e", "root/.rollback", "root/.git/objects", "root/.git/refs", "root/dist"):
        (place / folder).mkdir(parents=True)
    for name in (
        "outside/secret",
        "outside/sub/inner",
        "root/a",
        "root/b",
        "root/f",
        "root/d/f",
        "root/d/e/g",
        "root/.rollback/f",
    ):
        (place / name).write_text(f"{name}\n")
    for name in ("root/.git/config", "root/.git/HEAD", "root/dist/app.js"):
        (place / name).write_text(f"{name}\n")
    (root / "link").symlink_to("../outside")
    (root / "dlink").symlink_to("d")
    (root / ".rollback/l").symlink_to("../../outside/secret")
    (root / "d/up").symlink_to("../../outside/sub")
    os.link(place / "outside/secret", root / "hard")
    os.mkfifo(root / "fifo")
    return root


@contextmanager
def bare_path(place: Path) -> Iterator[None]:
    """A PATH without package managers: a fuzzer may well say `npm install`."""
    old = os.environ["PATH"]
    os.environ["PATH"] = str(place / "bin")
    try:
        yield
    finally:
        os.environ["PATH"] = old


def attack(place: Path, data: bytes) -> ChangesReport:
    """Roll back one log in a fresh root; compare everything outside it, and the git folder in it."""
    shutil.rmtree(place / "root", ignore_errors=True)
    shutil.rmtree(place / "outside", ignore_errors=True)
    root = furnish(place)
    (root / ".bug-changes.json").write_bytes(data)
    outside, git = snapshot(place, skip=("root",)), snapshot(root / ".git", skip=())
    with bare_path(place):
        report = rollback_changes(root / ".bug-changes.json", confirm=None, clean=True)
    assert snapshot(place, skip=("root",)) == outside
    assert snapshot(root / ".git", skip=("evolver",)) == git
    json.loads(report.to_json().encode())  # what is printed is JSON, and UTF-8
    assert report.success or report.errors
    return report


def encoded(log: Any) -> bytes:
    return json.dumps(log).encode()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A valid log, damaged as files are: bytes flipped, cut, doubled, tokens exchanged."""
    raw = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(7):
            case 0 if at < len(raw):
                raw[at] = rng.randrange(256)
            case 1:
                del raw[at : at + rng.randint(1, 20)]
            case 2:
                raw[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
            case 3:
                raw[at:at] = rng.choice(
                    [b"../", b"/", b"\\u0000", b"[" * 70, b'"', b"\\ud800", b"9" * 200, b".git/", b"null", b"\n"]
                )
            case 4:
                raw[at:at] = raw[at : at + rng.randint(1, 40)]
            case 5:
                old, new = rng.sample(
                    [b'"f"', b'"path"', b'"backup"', b'"a"', b'"d/f"', b'".rollback/f"', b'"link/secret"', b"[", b"{"], 2
                )
                raw = raw.replace(old, new, 1)
            case _:
                raw = raw.replace(b"root", b"..", 1)
    return bytes(raw)


SEED = encoded(
    {
        **LOG,
        "files_modified": [{"path": "f", "backup": ".rollback/f"}, {"path": "d/f", "backup": ".rollback/f", "mode": "755"}],
        "files_created": ["a", "d/e", "link"],
        "commands_executed": ["git add a", "pnpm build", "make x"],
        "git_commits": ["abc123"],
        "artifacts": ["b"],
        "metadata": {"evolver": {"recording": "0" * 16, "created_dirs": ["d"]}},
    }
)


def mutate_many(place: Path, count: int, seed: int) -> dict[bool, int]:
    rng = random.Random(seed)
    outcomes = {True: 0, False: 0}
    for _ in range(count):
        outcomes[attack(place, mutated(SEED, rng)).success] += 1
    return outcomes


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(log=LOGS)
@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
def test_300_generated_logs(tmp_path: Path, log: Any) -> None:
    attack(tmp_path, encoded(log))


@given(log=LOGS, left=st.lists(st.sampled_from(["d", "dlink", "link", "f", "..", "dist", "no/such"]), max_size=3))
@settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
def test_150_logs_inside_a_loop(tmp_path: Path, log: Any, left: list[str]) -> None:
    """The two stages around a loop's restore; what the baseline covers is never written by a log."""
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    shutil.rmtree(tmp_path / "outside", ignore_errors=True)
    root = furnish(tmp_path)
    (root / ".bug-changes.json").write_bytes(encoded(log))
    before = snapshot(tmp_path, skip=())
    with bare_path(tmp_path):
        keep = Keep(tmp_path / "kept", "fingerprint")
        prepared = prepare(root / ".bug-changes.json", root, left_out=left, keep=keep)
        assert snapshot(tmp_path, skip=("kept",)) == before  # changes nothing yet
        if prepared is not None:
            report = prepared.execute()
            json.loads(report.to_json())
    assert not (tmp_path / "kept").exists()
    after = snapshot(tmp_path, skip=())
    ours = tuple(f"root/{name.strip('/')}" for name in left)
    assert {k: v for k, v in after.items() if not k.startswith(ours)} == {
        k: v for k, v in before.items() if not k.startswith(ours)
    }


def test_300_mutated_logs(tmp_path: Path) -> None:
    outcomes = mutate_many(tmp_path, 300, seed=20251018)
    assert min(outcomes.values()) > 15  # both kinds were met: the fuzzer gets past the parser, and does not always


def test_the_fuzzer_would_notice(tmp_path: Path) -> None:
    """A test must be able to fail: an attack that does get out is seen."""
    root = furnish(tmp_path)
    before = snapshot(tmp_path, skip=("root",))
    (root / "link/secret").write_text("x")
    assert snapshot(tmp_path, skip=("root",)) != before


def test_mutated_logs_in_a_real_repository(repo: Place) -> None:
    sha = repo.commit("Empty") if repo.git("status", "--porcelain") else repo.git("rev-parse", "HEAD")
    rng = random.Random(7)
    log = {**LOG, "git_commits": [sha], "commands_executed": ["git add src/app.ts", "git add ."], "files_created": ["src/new"]}
    outside = snapshot(repo.root.parent, skip=("root",))
    for _ in range(12):
        (repo.root / ".bug-changes.json").write_bytes(mutated(encoded(log), rng))
        rollback_changes(repo.root / ".bug-changes.json", confirm=None)
        assert snapshot(repo.root.parent, skip=("root",)) == outside
        assert repo.git("fsck", "--no-dangling") == ""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@given(log=LOGS)
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
def test_10000_generated_logs(tmp_path: Path, log: Any) -> None:
    attack(tmp_path, encoded(log))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_10000_mutated_logs(tmp_path: Path) -> None:
    mutate_many(tmp_path, 10_000, seed=random.SystemRandom().randrange(1 << 30))
