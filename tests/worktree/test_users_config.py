"""The user's git configuration, wherever git finds it: who commits and which filters run is what `git add` and `git commit` would take."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Repo

WHO = "[user]\n name = U\n email = {}@x\n"
FILTER = '[filter "up"]\n clean = tr a-z A-Z\n smudge = cat\n'
WITHHELD = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"), "")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("echo '*.up filter=up' >.gitattributes; git add .gitattributes; git commit -qm attributes")
    for name in (*WITHHELD, "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / ".config/git").mkdir(parents=True)
    repo.env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "GIT_CONFIG_NOSYSTEM": "1"}
    return repo


def place(repo: Repo, **texts: str) -> None:
    """`home`, `xdg`, `other`: what these files say."""
    home = Path(repo.env["HOME"])
    files = {"home": home / ".gitconfig", "xdg": home / ".config/git/config", "other": home / "other"}
    for name, text in texts.items():
        files[name].write_text(text)


def check(repo: Repo) -> None:
    expected = repo.sh("git var GIT_AUTHOR_IDENT").partition(">")[0] + ">"
    done = repo.run("echo hello >x.up", "true")
    assert done.code == 0, done.text
    assert repo.sh("git log -1 --format='%an <%ae>'").strip() == expected
    assert repo.sh("git cat-file -p HEAD:x.up") == "HELLO\n"
    assert repo.sh("git status --porcelain") == ""
    assert "filter.up" not in repo.sh("cat .git/config")


def test_xdg_beside_home(repo: Repo) -> None:
    place(repo, xdg=WHO.format("xdg") + FILTER, home="[color]\n ui = auto\n")
    check(repo)


def test_home_wins_over_xdg(repo: Repo) -> None:
    place(repo, xdg=WHO.format("xdg") + FILTER, home=WHO.format("home"))
    check(repo)


def test_what_an_agent_changes_in_them_is_not_followed(repo: Repo, tmp_path: Path) -> None:
    place(repo, xdg=FILTER, home=WHO.format("home"))
    planted = f"touch '{tmp_path}/planted'; cat"
    done = repo.run(f"git config --file ~/.config/git/config filter.up.clean \"{planted}\"; echo hello >x.up", "true")
    assert done.code == 0 and not (tmp_path / "planted").exists(), done.text
    assert repo.sh("git cat-file -p HEAD:x.up") == "HELLO\n"


@pytest.mark.parametrize("nosystem", [False, True])
def test_a_system_file_of_ones_own(repo: Repo, nosystem: bool) -> None:
    place(repo, other=WHO.format("system") + FILTER, home=WHO.format("home") + (FILTER if nosystem else ""))
    repo.env |= {"GIT_CONFIG_SYSTEM": repo.env["HOME"] + "/other", "GIT_CONFIG_NOSYSTEM": str(int(nosystem))}
    check(repo)


def test_a_global_file_of_ones_own(repo: Repo) -> None:
    place(repo, other=WHO.format("other") + FILTER, home=WHO.format("home"))
    repo.env |= {"GIT_CONFIG_GLOBAL": repo.env["HOME"] + "/other"}
    check(repo)


def test_pairs_in_the_environment(repo: Repo) -> None:
    pairs = {"user.name": "U", "user.email": "pair@x", "filter.up.clean": "tr a-z A-Z"}
    repo.env |= {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs.items()):
        repo.env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    check(repo)


@pytest.mark.parametrize(
    "condition", ["gitdir:{root}/", "onbranch:main", "hasconfig:remote.*.url:https://example.org/**"], ids=lambda c: c.partition(":")[0]
)
def test_conditional_includes(repo: Repo, condition: str) -> None:
    repo.sh("git remote add origin https://example.org/x")
    place(repo, other=WHO.format("work") + FILTER, home=WHO.format("home"))
    with (Path(repo.env["HOME"]) / ".gitconfig").open("a") as file:
        file.write(f'[includeIf "{condition.format(root=repo.root.parent)}"]\n path = other\n')
    assert "work@x" in repo.sh("git var GIT_AUTHOR_IDENT")
    check(repo)
