"""`evolver events` with filters that nothing can pass: an error that names what there is, never just silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evolver.cli.filters import STATES
from support import Repo


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Accepted, rolled back, without a change, held and resumed."""
    repo = Repo.make(tmp_path_factory.mktemp("filters") / "repo")
    repo.run("case $EVOLVER_ITERATION in 1) echo x >>src/a.py;; 2) echo y >bad;; esac", "! test -e bad", "--max-iters", "3")
    repo.run("echo y >bad", "false", "--rollback", "none")
    repo.evolver("resume", "--rollback", "hard")
    return repo


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "rollback"), "'rollback.*'"),
        (("--type", "rollback.finishd"), "rollback.finished"),
        (("--type", "run.*", "--type", "dev.evolver.step.finish"), "step.finished"),
        (("--type", "zzz.*"), "iteration.*"),
        (("--status", "foo"), "rolled_back"),
        (("--status", "Fail"), "inconclusive"),
        (("-f", "--status", "foo"), "needs_person"),
        (("--since", "2030-01-02", "--until", "2030-01-01"), "--until"),
    ],
)
def test_a_filter_that_nothing_can_pass_is_exit_2(repo: Repo, words: tuple[str, ...], said: str) -> None:
    done = repo.evolver("events", *words, timeout=30)
    assert done.code == 2, done
    assert done.out == ""
    assert said in done.err


def test_every_value_that_occurs_is_allowed(repo: Repo) -> None:
    names = {event["type"].removeprefix("dev.evolver.") for event in repo.events()}
    done = repo.evolver("events", *(word for name in names for word in ("--type", name, "--type", f"dev.evolver.{name}")))
    assert done.code == 0
    assert done.out.count("\n") == len(repo.events())
    found = {
        value for e in repo.events() for value in (e["data"].get("to"), e["data"].get("judgement"), e["severity"]) if value
    }
    assert {"held", "resumed", "rolled_back", "accepted", "no_change", "pass", "fail", "alert"} <= found
    assert found - {"pass", "fail", "debug", "info", "warning", "alert"} <= set(STATES)
    for value in ("held", "resumed", "fail"):
        assert repo.evolver("events", "--status", value).out


def test_a_value_that_could_occur_but_does_not_is_no_error(repo: Repo) -> None:
    assert repo.evolver("events", "--status", "needs_person").code == 0
    assert repo.evolver("events", "--type", "sink.gap").code == 0
    assert repo.evolver("events", "--type", "*.resumed").out


def test_what_a_newer_version_wrote_can_be_asked_for(repo: Repo, tmp_path: Path) -> None:
    copy = tmp_path / "newer.jsonl"
    lines = repo.log.read_text().splitlines(keepends=True)
    event = json.loads(lines[0])
    event["type"], event["data"] = "dev.evolver.iteration.pondered", {"to": "pondering"}
    copy.write_text("".join(lines) + json.dumps(event, separators=(",", ":")) + "\n")
    env = {"EVOLVER_EVENTS": str(copy)}
    for words in (("--type", "iteration.pondered"), ("--type", "*pond*"), ("--status", "pondering")):
        done = repo.evolver("events", "-o", "json", *words, env=env)
        assert done.code == 0, done
        assert done.out.count("\n") == 1, done
