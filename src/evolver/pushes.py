"""Pushes from inside a run: made to fail, and found when they happened all the same. evolver itself never pushes.

The block is injected git configuration: it rewrites every URL that git would push to into one that has no transport, and
leaves fetching and the user's hooks alone. It stops accidents. A step that empties its environment gets past it, which is
why attempts are looked at afterwards as well.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolver.errors import EvolverError
from evolver.events.types import AlertPushedAttempt, Emitter
from evolver.git import Git
from evolver.process import run_simple
from evolver.worktree.values import Attempt

NOWHERE = "evolver-blocks-push://"  # no such transport: git names it in its error
LS_REMOTE_MS = 20_000
_REMOTES = "refs/remotes/"


def push_block_env(git: Git, env: Mapping[str, str]) -> dict[str, str]:
    """What to add to a step's environment so that `git push` fails. `env` is the environment it is added to.

    Git rewrites a push URL by the longest prefix that matches, and of equal ones the user's own comes first; so each known
    URL is named whole besides the empty prefix. A remote with a `pushurl` of its own is rewritten for fetching as well, if
    its two URLs are the same: git has no other way.
    """
    pairs = [(f"url.{NOWHERE}.pushInsteadOf", "")]
    for key, value in _config(git):
        name = key.rpartition(".")[2]
        if name == "url":
            pairs.append((f"url.{NOWHERE}.pushInsteadOf", value))
        elif name == "pushurl":
            pairs.append((f"url.{NOWHERE}.insteadOf", value))
        elif name == "pushinsteadof" and value:
            # The user's rule would win over the empty prefix; one more character after it, and ours is the longer one.
            pairs += [
                (f"url.{NOWHERE}.pushInsteadOf", value + more) for more in string.ascii_letters + string.digits + "/._-~@:%+"
            ]
    count = int(env["GIT_CONFIG_COUNT"]) if env.get("GIT_CONFIG_COUNT", "").isdigit() else 0
    added = {"GIT_CONFIG_COUNT": str(count + len(pairs))}
    for number, (key, value) in enumerate(pairs, count):
        added[f"GIT_CONFIG_KEY_{number}"] = key
        added[f"GIT_CONFIG_VALUE_{number}"] = value
    return added


def _config(git: Git) -> Iterator[tuple[str, str]]:
    """The user's remotes and push rewrites, as git would see them in a step."""
    done = git.run(
        "config", "--includes", "-z", "--get-regexp", r"^(remote\..*\.(url|pushurl)|url\..*\.pushinsteadof)$", check=False
    )
    for entry in done.fields():
        key, _, value = entry.decode("utf-8", "surrogateescape").partition("\n")
        yield key, value


@dataclass(frozen=True, slots=True)
class Pushed:
    """Something of an attempt that a remote has."""

    remote: str
    refs: tuple[str, ...]
    commits: tuple[str, ...]


def find_pushed(git: Git, attempt: Attempt, *, ls_remote: bool = False) -> tuple[Pushed, ...]:
    """What of the attempt is on a remote: by remote-tracking refs that moved, and by asking the remotes when allowed."""
    remotes = tuple(
        sorted(git.run("remote", check=False).out.decode("utf-8", "surrogateescape").split("\n"), key=len, reverse=True)
    )
    remotes = tuple(name for name in remotes if name)
    mine = {*attempt.commits, *(c.new for c in attempt.refs if c.new and not c.name.startswith(_REMOTES))}
    if attempt.post_ref and attempt.commits:
        mine.add(attempt.post_ref)
    found: dict[str, tuple[set[str], set[str]]] = {}
    for change in attempt.refs:
        if not change.name.startswith(_REMOTES) or change.new is None:
            continue
        if change.new in mine or _moved_by_push(git, change.name):
            rest = change.name.removeprefix(_REMOTES)
            remote = next((name for name in remotes if rest.startswith(f"{name}/")), rest.partition("/")[0])
            refs, commits = found.setdefault(remote, (set(), set()))
            refs.add(change.name)
            commits.add(change.new)
    if ls_remote and mine:
        for remote in remotes:
            for commit, ref in _listed(git, remote):
                if commit in mine:
                    refs, commits = found.setdefault(remote, (set(), set()))
                    refs.add(ref)
                    commits.add(commit)
    return tuple(
        Pushed(remote, tuple(sorted(refs)), tuple(sorted(commits))) for remote, (refs, commits) in sorted(found.items())
    )


def _moved_by_push(git: Git, ref: str) -> bool:
    """Git's own note in the reflog; a fetch leaves another one."""
    return git.run("log", "-g", "-1", "--format=%gs", ref, "--", check=False).text == "update by push"


def _listed(git: Git, remote: str) -> Iterator[tuple[str, str]]:
    argv = git.argv("-c", "protocol.ext.allow=never", "ls-remote", "--", remote)
    done = run_simple(argv, timeout_ms=LS_REMOTE_MS, env=_remote_environment(git), cwd=git.root)
    if not done.ok:
        return  # away, or not ours to read: then nothing is known of it
    for line in done.stdout.decode("utf-8", "surrogateescape").split("\n"):
        commit, _, ref = line.partition("\t")
        if ref:
            yield commit, ref


def _remote_environment(git: Git) -> dict[str, str]:
    import os

    return {**os.environ, **git.environment({"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10"})}


def alert_pushed(git: Git, events: Emitter, iteration_id: str, number: int, attempt: Attempt, *, ls_remote: bool) -> int:
    """Raise one alert a remote; how many. A remote that cannot be asked is no reason to stop."""
    try:
        found = find_pushed(git, attempt, ls_remote=ls_remote)
    except EvolverError:
        return 0
    for pushed in found:
        event = AlertPushedAttempt(iteration_id=iteration_id, remote=pushed.remote, refs=pushed.refs, commits=pushed.commits)
        events.emit(event, iteration=number)
    return len(found)
