"""An attempt that goes for evolver's own folders: the lifeboat, the vault, the locks, the stream."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

PLANT = """for d in "$XDG_STATE_HOME"/evolver/*/; do
  printf '[filter "e"]\\n\\tclean = "touch %s/PWNED; cat"\\n' "$HOME" > "$d/gitconfig"; done
echo '* filter=e' > .gitattributes; echo bad > src/a.py"""
FILTER = (
    'git config --global filter.up.clean "tr a-z A-Z"; git config --global filter.up.smudge "tr A-Z a-z"; '
    'git config --global filter.up.required true; echo "*.up filter=up" > .gitattributes; git add -A; git commit -qm filter'
)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made.sh("echo mine > mine.txt; mkdir -p build; echo kept > build/kept")
    return made


def undone(repo: Repo, agent: str, *words: str, code: int = 1) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(agent, "false", *words)
    assert done.code == code, done.text
    assert differences(before, Snapshot.of(repo.root), stash=False) == []


def test_a_filter_planted_into_the_pinned_config_never_runs(repo: Repo, hermetic: Path) -> None:
    undone(repo, PLANT)
    assert not (hermetic / "PWNED").exists()


def test_the_users_global_filter_works_after_the_lifeboat_was_deleted(repo: Repo) -> None:
    repo.sh(FILTER)
    done = repo.run('rm -rf "$XDG_STATE_HOME"; echo word > new.up', "true")
    assert done.code == 0, done.text
    assert repo.sh("git show HEAD:new.up") == "WORD\n"


@pytest.mark.parametrize("mode", ["hard", "stash"])
def test_the_lifeboat_is_manned_again_for_the_next_iteration(repo: Repo, mode: str) -> None:
    agent = (
        'if [ $EVOLVER_ITERATION = 1 ]; then rm -rf "$XDG_STATE_HOME"; else rm -rf .git mine.txt build; fi; echo bad > src/a.py'
    )
    undone(repo, agent, "--max-iters", "2", "--rollback", mode)


def test_a_held_attempt_that_deleted_vault_and_lifeboat_can_be_rolled_back(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    assert repo.run('rm -rf .git/evolver "$XDG_STATE_HOME"; echo bad > src/a.py', "false", "--rollback", "none").code == 3
    done = repo.evolver("resume", "--rollback", "hard")
    assert done.code == 0, done.text
    assert differences(before, Snapshot.of(repo.root)) == []


@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
@pytest.mark.parametrize("name", ["run.lock", "resume.lock"])
def test_something_else_in_a_locks_place_does_not_keep_a_person_out(repo: Repo, make: str, name: str) -> None:
    before = Snapshot.of(repo.root)
    agent = f"rm -f .git/evolver/{name}; {make} .git/evolver/{name}; echo bad > src/a.py"
    assert repo.run(agent, "false", "--rollback", "none").code == 3
    done = repo.evolver("resume", "--rollback", "hard", timeout=30)
    assert done.code == 0, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.run("true", "true", timeout=30).code == 1


@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
def test_something_else_in_the_streams_place_is_told_and_blocks_no_reader(repo: Repo, make: str) -> None:
    log = ".git/evolver/events.jsonl"
    before = Snapshot.of(repo.root)
    done = repo.run(f"rm {log}; {make} {log}; echo bad > src/a.py", "false")
    assert done.code in (1, 8), done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert {"alert.log_tampered", "log.recovered"} & set(repo.kinds())
    assert json.loads(repo.evolver("audit", "verify", "--json", timeout=30).out)
    assert repo.run("echo bad > src/a.py", "false", timeout=30).code == 1


def test_stop_asked_for_by_the_attempt_itself_rolls_it_back(repo: Repo) -> None:
    undone(repo, f"echo bad > src/a.py; {sys.executable} -m evolver stop; sleep 5")
