"""`git push` from a step fails, whatever the remote is called by; and what was pushed all the same is found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from evolver.git import Git
from evolver.pushes import NOWHERE, Pushed, find_pushed, push_block_env
from evolver.worktree.values import Attempt, RefChange


class Repo:
    def __init__(self, folder: Path) -> None:
        self.root, self.bare = folder / "work", folder / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", str(self.bare)], check=True)
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.run("commit", "-q", "--allow-empty", "-m", "one")
        self.run("remote", "add", "origin", str(self.bare))
        self.run("push", "-q", "origin", "main")
        self.run("commit", "-q", "--allow-empty", "-m", "two")
        self.git = Git.at(self.root, self.root / ".git")

    def run(self, *words: str, check: bool = True, env: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(["git", *words], cwd=self.root, env={**os.environ, **env}, capture_output=True, text=True)
        assert done.returncode == 0 or not check, done
        return done

    def refs(self) -> str:
        return subprocess.run(["git", "for-each-ref"], cwd=self.bare, capture_output=True, text=True, check=True).stdout

    def head(self) -> str:
        return self.run("rev-parse", "HEAD").stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


def blocked(repo: Repo, *words: str) -> None:
    before = repo.refs()
    done = repo.run("push", *words, check=False, env=push_block_env(repo.git, os.environ))
    assert done.returncode != 0 and NOWHERE.rstrip(":/") in done.stderr, done
    assert repo.refs() == before
    assert repo.run("push", "--dry-run", *words).returncode == 0  # without the block it would have worked


def test_a_named_remote_its_path_and_its_url(repo: Repo) -> None:
    for target in ("origin", str(repo.bare), "../remote.git", f"file://{repo.bare}"):
        blocked(repo, target, "main")
        blocked(repo, "--no-verify", target, "main:refs/heads/other")
    repo.run("config", "branch.main.remote", "origin")
    repo.run("config", "branch.main.merge", "refs/heads/main")
    blocked(repo)


def test_a_remote_with_a_pushurl_of_its_own(repo: Repo) -> None:
    repo.run("remote", "set-url", "--push", "origin", f"file://{repo.bare}")
    blocked(repo, "origin", "main")
    assert repo.run("fetch", "origin", env=push_block_env(repo.git, os.environ)).returncode == 0


def test_rules_of_the_user_that_rewrite_push_urls(repo: Repo) -> None:
    repo.run("config", f"url.file://{repo.bare.parent}/.pushInsteadOf", "home:")
    repo.run("config", f"url.file://{repo.bare.parent}/.insteadOf", "home:")
    repo.run("remote", "add", "short", "home:remote.git")
    blocked(repo, "short", "main")
    blocked(repo, "home:remote.git", "main")


def test_fetching_and_the_users_own_injected_config_and_hooks_stay(repo: Repo) -> None:
    mine = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Injected"}
    env = {**mine, **push_block_env(repo.git, {**os.environ, **mine})}
    hook = repo.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho hook-ran >&2\n")
    hook.chmod(0o755)
    assert "hook-ran" in repo.run("commit", "--allow-empty", "-m", "x", env=env).stderr
    assert repo.run("log", "-1", "--format=%an", env=env).stdout == "Injected\n"
    assert repo.run("fetch", "origin", env=env).returncode == 0
    assert repo.run("ls-remote", "origin", env=env).returncode == 0


# ---------------------------------------------------------------- finding


def attempt(repo: Repo, before: dict[str, str], pre: str) -> Attempt:
    after = refs_of(repo)
    changes = tuple(
        RefChange(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
    commits = tuple(repo.run("rev-list", "--reverse", f"{pre}..HEAD").stdout.split())
    return Attempt(post_ref=repo.head(), branch="refs/heads/main", refs=changes, commits=commits)


def refs_of(repo: Repo) -> dict[str, str]:
    pairs = (line.split(" ", 1) for line in repo.run("for-each-ref", "--format=%(refname) %(objectname)").stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs}


def test_a_pushed_commit_is_found_by_the_remote_tracking_ref(repo: Repo) -> None:
    before, pre = refs_of(repo), repo.head()
    repo.run("commit", "--allow-empty", "-m", "agent")
    repo.run("push", "-q", "origin", "main:topic")
    found = find_pushed(repo.git, attempt(repo, before, pre))
    assert found == (Pushed("origin", ("refs/remotes/origin/topic",), (repo.head(),)),)


def test_a_pushed_branch_that_was_deleted_again_is_found(repo: Repo) -> None:
    before, pre = refs_of(repo), repo.head()
    repo.run("checkout", "-q", "-b", "tmp")
    repo.run("commit", "--allow-empty", "-m", "agent")
    tip = repo.head()
    repo.run("push", "-q", "origin", "tmp")
    repo.run("checkout", "-q", "main")
    repo.run("branch", "-q", "-D", "tmp")
    assert [p.commits for p in find_pushed(repo.git, attempt(repo, before, pre))] == [(tip,)]


def test_a_fetch_is_no_push(repo: Repo, tmp_path: Path) -> None:
    before, pre = refs_of(repo), repo.head()
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", str(repo.bare), str(other)], check=True)
    subprocess.run(["git", "-C", str(other), "commit", "-q", "--allow-empty", "-m", "colleague"], check=True)
    subprocess.run(["git", "-C", str(other), "push", "-q", "origin", "HEAD:main"], check=True)
    repo.run("fetch", "-q", "origin")
    assert find_pushed(repo.git, attempt(repo, before, pre), ls_remote=True) == ()


def test_a_push_to_a_bare_url_is_found_by_ls_remote_alone(repo: Repo) -> None:
    before, pre = refs_of(repo), repo.head()
    repo.run("commit", "--allow-empty", "-m", "agent")
    repo.run("push", "-q", f"file://{repo.bare}/.", "main:sneaky")
    assert find_pushed(repo.git, attempt(repo, before, pre)) == ()
    found = find_pushed(repo.git, attempt(repo, before, pre), ls_remote=True)
    assert found == (Pushed("origin", ("refs/heads/sneaky",), (repo.head(),)),)


def test_a_remote_that_is_away_says_nothing(repo: Repo) -> None:
    before, pre = refs_of(repo), repo.head()
    repo.run("remote", "add", "gone", "/nowhere/at/all")
    repo.run("commit", "--allow-empty", "-m", "agent")
    assert find_pushed(repo.git, attempt(repo, before, pre), ls_remote=True) == ()


def test_a_remote_whose_name_holds_a_slash(repo: Repo) -> None:
    repo.run("remote", "add", "team/fork", str(repo.bare))
    before, pre = refs_of(repo), repo.head()
    repo.run("commit", "--allow-empty", "-m", "agent")
    repo.run("push", "-q", "team/fork", "main:topic")
    assert [p.remote for p in find_pushed(repo.git, attempt(repo, before, pre))] == ["team/fork"]
