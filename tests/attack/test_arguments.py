"""Arguments and loop files nobody would write by hand: told as usage errors, never as a bug."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support import EVOLVER, Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


@pytest.mark.parametrize(
    "words", [("show", "9" * 5000), ("run", "--max-iters", "9" * 24, "--codegen", "true", "--validate", "true", "--dry-run")]
)
def test_a_huge_number_is_a_usage_error(repo: Repo, words: tuple[str, ...]) -> None:
    assert repo.evolver(*words).code == 2


@pytest.mark.parametrize(
    "make", ["mkfifo loops/e.toml", "mkdir loops/e.toml", "printf 'a = %05000d' 0 | tr 0 '[' > loops/e.toml"]
)
def test_a_loop_file_that_is_none_is_a_usage_error(repo: Repo, make: str) -> None:
    repo.sh(f"mkdir -p loops; {make}")
    assert repo.evolver("run", "e", timeout=20).code == 2


NOT_TEXT = "echo x >n\udcff"  # a byte that is no UTF-8, as Python hands it on
RUN = ("run", "--max-iters", "1", "--codegen", "echo x >>src/a.py", "--validate", "false")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
@pytest.mark.parametrize(
    "words, env, told",
    [
        (("run", "--codegen", NOT_TEXT, "--validate", "false"), {}, "--codegen"),
        (("run", "--codegen", "true", "--validate", NOT_TEXT), {}, "--validate"),
        (("run", "--agent", "claude", "--prompt", NOT_TEXT, "--validate", "false"), {}, "--prompt"),
        (("run", "--validate", "false"), {"EVOLVER_CODEGEN": NOT_TEXT}, "EVOLVER_CODEGEN"),
        (RUN, {"EVOLVER_ROLLBACK_MODE": NOT_TEXT}, "EVOLVER_ROLLBACK_MODE"),
        (("run", "loops/b\udcffd.toml"), {}, "loops/b"),
        (("run", "bytes"), {}, "bytes.toml"),
    ],
)
def test_bytes_that_are_no_text_are_a_usage_error(
    repo: Repo, words: tuple[str, ...], env: dict[str, str], told: str, locale: dict[str, str]
) -> None:
    repo.sh(
        "mkdir loops; printf '[codegen]\\ncommand = \"true\"\\n' | tee loops/default.toml >$'loops/b\\377d.toml';"
        "printf '[codegen]\\ncommand = \"\\377\"\\n' >loops/bytes.toml"
    )
    done = repo.evolver(*words, env=env | locale)
    assert done.code == 2 and told in done.err and "Traceback" not in done.err, done.text


def test_a_dotenv_file_that_is_no_text_is_a_usage_error(repo: Repo) -> None:
    repo.sh("printf 'EVOLVER_MAX_ITERS=\\377\\n' >.env")
    done = repo.evolver(*RUN)
    assert done.code == 2 and ".env" in done.err, done.text


@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("log",), ("revert", "1"), RUN])
def test_a_folder_that_is_gone_is_told(repo: Repo, words: tuple[str, ...]) -> None:
    command = " ".join(map(shlex.quote, (*EVOLVER, *words)))
    out = repo.sh(f"mkdir gone; cd gone; rmdir ../gone; {command} 2>&1; echo exit $?")
    assert "is gone" in out and out.endswith("exit 2\n"), out


REVISIONS = "HEAD HEAD~1 main refs stash last FETCH_HEAD"


@pytest.mark.parametrize("mode", ["hard", "stash"])
def test_files_named_like_revisions(repo: Repo, mode: str) -> None:
    """Git asks whether a word that is both is meant as a revision, and ends."""
    repo.sh(f"for n in {REVISIONS}; do echo mine >$n; done; git add .; git commit -qm names")
    repo.sh("for n in $(git rev-list HEAD) $(git rev-parse HEAD^{tree} HEAD^^{tree}); do echo mine >$n; done")  # untracked
    done = repo.run("echo y >>src/a.py; echo y >>HEAD; git commit -qam agent; echo z >>main", "false", "--rollback", mode)
    assert done.code == 1, done.text
    assert repo.run("echo y >>src/a.py; git commit -qam agent; echo z >>main", "true").code == 0
    repo.sh("for n in $(git rev-list HEAD) $(git rev-parse HEAD^{tree}); do echo mine >$n; done")
    for words in (("show", "last"), ("diff", "last"), ("log",), ("status",), ("attempts", "list"), ("revert", "last")):
        done = repo.evolver(*words)
        assert done.code == 0 and "ambiguous" not in done.text, (words, done.text)
    if mode == "stash":
        assert repo.evolver("attempts", "show", "last").code == 0
        repo.sh("echo other >>src/a.py; git commit -qam other")
        done = repo.evolver("attempts", "apply", "last")
        assert done.code == 2 and "does not merge" in done.err, done.text


def test_files_named_like_revisions_beside_an_isolated_run(repo: Repo, tmp_path: Path) -> None:
    repo.env["EVOLVER_STATE_DIR"] = str(tmp_path / "state")
    repo.sh(f"for n in {REVISIONS}; do echo mine >$n; done; git add .; git commit -qm names; echo x >f")
    flags = ("--isolation", "clone")
    assert repo.run("echo x >f", "true", *flags).code == 0  # does not land: f is in the way
    repo.sh("rm f; git commit -q --allow-empty -m later")
    done = repo.evolver("land", "--rebase")
    assert done.code == 0 and "landed 1" in done.out, done.text
    assert repo.evolver("revert", "last").code == 0


@pytest.mark.parametrize("encoding", ["utf16", "latin1"])
def test_messages_are_read_whatever_encoding_the_log_is_shown_in(repo: Repo, encoding: str) -> None:
    repo.sh(f"git config i18n.logOutputEncoding {encoding}; git config i18n.commitEncoding {encoding}")
    assert repo.run("echo é >é; echo x >>src/a.py", "false", "--rollback", "stash").code == 1
    for words in (("attempts", "list"), ("attempts", "apply", "last")):
        done = repo.evolver(*words)
        assert done.code == 0 and "no attempts" not in done.out, done.text
    repo.sh("git reset -q --hard; git clean -fdq")
    assert repo.run("echo é >é; echo ok >>src/a.py; git -c i18n.commitEncoding=utf8 commit -qam ä", "true").code == 0
    assert "ä" in repo.sh("git -c i18n.logOutputEncoding=utf8 log -1")
    assert repo.evolver("revert", "last").code == 0
