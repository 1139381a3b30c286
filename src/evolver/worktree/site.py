"""What every part of the worktree package works with: where things are, the pinned git, the vault, the lifeboat."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.definition import RollbackSection
from evolver.git import Git, chosen_config
from evolver.layout import OWNER_FILE, Layout, baselines_in
from evolver.worktree.lifeboat import ATTRIBUTES, EXCLUDES, GITCONFIG, Lifeboat, make_folder
from evolver.worktree.vault import Vault, link_or_copy, write_over

OWN_STASH = "own-stash"
PINNED = (GITCONFIG, EXCLUDES, ATTRIBUTES)


@dataclass
class Site:
    """One worktree."""

    layout: Layout
    rollback: RollbackSection
    scope: str
    max_vault: int
    user_config: Mapping[str, str]  # the variables by which the user chose what configuration git reads
    home: Mapping[str, str]
    git: Git
    vault: Vault
    boat: Lifeboat
    pinned: bool = field(default=False)
    lived_in: set[str] = field(default_factory=set)  # worktrees that somebody else added since the baseline
    _copies: dict[str, bytes] = field(default_factory=dict)  # what the pinned files must say
    parsed: dict[bytes, list[bytes]] = field(default_factory=dict)  # config files by their bytes: what git makes of them

    @classmethod
    def make(cls, layout: Layout, rollback: RollbackSection, scope: str, max_vault: int, env: Mapping[str, str]) -> Site:
        user_config = chosen_config(env)
        boat = Lifeboat(layout.lifeboat, layout)
        git = Git.at(layout.root, layout.git_dir)
        site = cls(
            layout, rollback, scope, max_vault, user_config, env, git, Vault(layout.vault, layout.lifeboat / "vault"), boat
        )
        # Recovery and resume: the copy taken when that run started; from the vault where the repository was moved.
        for folder, alive in ((boat.folder, (boat.folder / OWNER_FILE).exists()), (layout.vault, bool(baselines_in(layout.vault)))):
            if alive and (folder / GITCONFIG).exists():
                for name in PINNED:
                    with suppress(OSError):
                        site._copies[name] = (folder / name).read_bytes()
                site._use_copies()
                break
        return site

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def private(self) -> Path:
        return self.layout.git_dir

    @property
    def common(self) -> Path:
        return self.layout.common_dir

    @property
    def linked(self) -> bool:
        """A linked worktree: its git folder lies in another repository's."""
        return self.layout.git_dir != self.layout.common_dir

    def write_own_stash(self, fingerprint: str, lines: tuple[bytes, ...]) -> None:
        """Which entries of the stash list this iteration's attempt made; outlives a kill. None: forget them."""
        path = self.vault.folder / OWN_STASH
        if not lines:
            for folder in (self.vault.folder, self.vault.mirror):
                (folder / OWN_STASH).unlink(missing_ok=True)
            return
        make_folder(path.parent)
        temporary = path.with_name(f"{OWN_STASH}.tmp")
        with open(temporary, "wb") as file:
            file.write(fingerprint.encode() + b"\n" + b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        make_folder(self.vault.mirror)
        link_or_copy(path, self.vault.mirror / OWN_STASH)

    def read_own_stash(self, fingerprint: str) -> tuple[bytes, ...]:
        for folder in (self.vault.folder, self.vault.mirror):
            try:
                first, *rest = (folder / OWN_STASH).read_bytes().split(b"\n")
            except OSError:
                continue
            if first == fingerprint.encode():
                return tuple(line + b"\n" for line in rest if line)
        return ()

    def pin_config(self) -> None:
        """Copy the configuration that lies outside the repository, with excludes and attributes: an agent may change it, evolver must
        not follow (hazards 29, 31). git itself says which files those are, in which order, and which conditional includes hold.
        Runs git, so nothing foreign may have run yet."""
        env = self.user_config
        plain = self.git.but(config=None, options=())
        listed = plain.run("config", "--includes", "--show-scope", "--list", "-z", env=env).fields()
        pairs = zip(listed[::2], listed[1::2], strict=True)
        self._write(GITCONFIG, b"".join(_section(item) for scope, item in pairs if scope in (b"system", b"global")))
        for name, key, default in (
            (EXCLUDES, "core.excludesFile", "ignore"),
            (ATTRIBUTES, "core.attributesFile", "attributes"),
        ):
            named = plain.run("config", "--type=path", "--get", key, env=env, check=False)
            base = self.home.get("XDG_CONFIG_HOME") or os.path.join(self.home.get("HOME", "/nonexistent"), ".config")
            path = os.fsdecode(named.out).strip("\n") if named.ok else os.path.join(base, "git", default)
            try:
                data = (self.root / path).read_bytes()
            except OSError:
                data = b""
            self._write(name, data)
        self._use_copies()

    def _write(self, name: str, data: bytes) -> None:
        self._copies[name] = data
        for folder in (self.boat.folder, self.vault.folder):
            write_over(folder / name, data)

    def unpin(self) -> None:
        """The run ended: the copies may hold what only the user is to read."""
        self.pinned = False
        for name in PINNED:
            (self.vault.folder / name).unlink(missing_ok=True)

    def repin(self) -> None:
        """After anything foreign ran, before git does: the copies lie where an agent can reach them, and git runs the filters
        they name, or, where they are gone, commits what the user's filters should have changed."""
        self.boat.launch()
        for name, data in self._copies.items():
            write_over(self.boat.folder / name, data)

    def _use_copies(self) -> None:
        folder = self.boat.folder
        self.git = self.git.but(
            config=folder / GITCONFIG,
            options=(f"core.excludesFile={folder / EXCLUDES}", f"core.attributesFile={folder / ATTRIBUTES}"),
        )
        self.pinned = True


def _section(item: bytes) -> bytes:
    """One `key\\nvalue` of `git config -z` as lines of a config file."""
    key, has_value, value = item.partition(b"\n")
    first, _, rest = key.partition(b".")
    middle, dot, last = rest.rpartition(b".")
    header = b"[" + first + (b' "' + middle.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' if dot else b"") + b"]\n"
    if first == b"include" or first == b"includeif":
        return b""
    if not has_value:
        return header + b"\t" + last + b"\n"
    quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    return header + b"\t" + last + b' = "' + quoted + b'"\n'
