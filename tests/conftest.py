"""Every test gets a hermetic HOME, no GIT_* or EVOLVER_* variable, and its own state folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import support

GITCONFIG = """[user]
\tname = Test User
\temail = user@example.invalid
[init]
\tdefaultBranch = main
[safe]
\tdirectory = *
"""


@pytest.fixture(autouse=True, scope="session")
def coverage_by_choice() -> None:
    """Only some calls of `Repo.evolver` measure coverage: in a process that is killed, traced or short of disk, its files fail."""
    for name in [n for n in os.environ if n.startswith("COVERAGE_PROCESS_")]:
        support.COVERAGE[name] = os.environ.pop(name)


@pytest.fixture(autouse=True, scope="session")
def signals_as_on_a_terminal() -> None:
    """A runner started in the background has SIGINT and SIGHUP ignored, and so would every evolver that a test starts."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh HOME; returns it."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(GITCONFIG)
    for name in list(os.environ):
        # CI: evolver prints plain lines there; what a terminal gets is tested as on a terminal.
        if name.startswith(("GIT_", "EVOLVER_", "XDG_", "PYTEST_ADDOPTS")) or name == "CI":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    return home
