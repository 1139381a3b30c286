"""Takes the kept attempts of an isolated run to the person's repository, where `evolver attempts` looks for them.

In the clone they stay what they are (in mode stash, entries of its stash list); the person gets private refs, and no entry in
a stash list of theirs.
"""

from __future__ import annotations

from evolver.cloning import git_of
from evolver.layout import Layout
from evolver.worktree.kept import listed

_KEPT = "refs/evolver/attempts"


def carry(person: Layout, clone: Layout, run_id: str) -> int:
    """How many there were. The caller holds both run locks, and the clone is not held: git runs in it."""
    inside, theirs = git_of(clone), git_of(person)
    kept = [attempt for attempt in listed(inside) if attempt.iteration_id.startswith(f"{run_id}/")]
    if not kept:
        return 0
    # A fetch by commit id may be refused, by name it never is.
    lent = [f"{_KEPT}/{attempt.iteration_id}" for attempt in kept if attempt.in_stash]
    for attempt in kept:
        if attempt.in_stash:
            inside.run("update-ref", f"{_KEPT}/{attempt.iteration_id}", attempt.commit)
    specs = [f"+{_KEPT}/{name}/*:{_KEPT}/{name}/*" for name in (run_id, *(attempt.commit[:16] for attempt in kept))]
    theirs.run(
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--update-shallow"),
        *(str(clone.root), *specs),
    )
    for name in lent:
        inside.run("update-ref", "-d", name)
    return len(kept)
