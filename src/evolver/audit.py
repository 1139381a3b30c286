"""Checkpoints of the stream, signed with an SSH key: what a process of the same user cannot forge without that key.

`ssh-keygen -Y sign` makes the signature, so an auditor needs `ssh-keygen -Y verify` and no evolver. The signed message is
three lines: origin (the stream's identity and source), sequence, hash.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import GitError, LogError, UsageError
from evolver.events import paths
from evolver.events.envelope import Envelope
from evolver.events.head import Head
from evolver.events.log import EventLog
from evolver.events.types import AuditCheckpoint
from evolver.events.verify import Anchor
from evolver.layout import Layout
from evolver.process import SimpleFinished, run_simple

NAMESPACE = "evolver-audit"
EVERY = 1000  # events between two checkpoints
_TIMEOUT_MS = 20_000  # an agent may ask its user to touch a token


def message(origin: str, sequence: int, hash_: str) -> bytes:
    """What is signed."""
    return f"{origin}\n{sequence}\n{hash_}\n".encode()


def _keygen(*args: str, input: bytes = b"", cwd: Path | None = None) -> SimpleFinished:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise UsageError("ssh-keygen is not installed", "Install OpenSSH's client, or leave [audit] sign_key out.")
    return run_simple([program, *args], input=input, timeout_ms=_TIMEOUT_MS, cwd=cwd)


def make_key(path: Path) -> str:
    """A new Ed25519 key at `path` (0600) and `path`.pub; the public line. Never overwrites. Raise `UsageError`."""
    if os.path.lexists(path) or os.path.lexists(f"{path}.pub"):
        raise UsageError(f"{path} exists already", "Name another file; a key is never overwritten.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.absolute().parent}: no such folder", "Make it first, where only you can read.")
    done = _keygen("-q", "-t", "ed25519", "-N", "", "-C", NAMESPACE, "-f", str(path.absolute()))
    if not done.ok:
        raise UsageError(f"ssh-keygen made no key at {path}: {_words(done)}", "Is the folder writable?")
    path.chmod(0o600)
    return Path(f"{path}.pub").read_text().strip()


def check_key(path: Path) -> None:
    """Raise `UsageError` when the key is missing, or others than its owner can read it. A public key (agent) passes."""
    try:
        st = path.stat()
        public = path.read_bytes()[:400].startswith((b"ssh-", b"sk-ssh-"))
    except OSError as error:
        raise UsageError(f"[audit] sign_key {path}: {error.strerror}", "Make one with `evolver audit keygen PATH`.") from error
    if not public and stat.S_IMODE(st.st_mode) & 0o077:
        raise UsageError(
            f"[audit] sign_key {path} can be read by others (mode {stat.S_IMODE(st.st_mode):04o})", f"chmod 600 {path}"
        )


def _words(done: SimpleFinished) -> str:
    last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return done.error or (last[-1] if last else done.describe())


def sign(key: Path, data: bytes) -> str:
    """The armored signature of `data`. Raise `LogError`: a stream that must be signed and is not is not what was asked for."""
    with tempfile.TemporaryDirectory(prefix="evolver-sign-") as folder:
        target = Path(folder) / "checkpoint"
        target.write_bytes(data)
        done = _keygen("-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(target))
        if not done.ok:
            raise LogError(
                f"the checkpoint could not be signed with {key}: {_words(done)}", "Is the key usable without a passphrase?"
            )
        return target.with_name("checkpoint.sig").read_text()


def _public_line(key: Path) -> str:
    beside = Path(f"{key}.pub")
    if beside.is_file():
        return beside.read_text().strip()
    done = _keygen("-y", "-f", str(key))
    return done.stdout.decode().strip() if done.ok else ""


@dataclass
class Signer:
    """Signs the log's end: every thousand events by itself, and by `checkpoint` at each end of a run."""

    log: EventLog
    key: Path
    _signed: int = 0  # the sequence of the last checkpoint

    @classmethod
    def open(cls, log: EventLog, key: Path) -> Signer:
        """Raise `UsageError` for a key that is missing, open to others, or cannot sign without asking somebody."""
        check_key(key)
        try:
            sign(key, b"can you?\n")
        except LogError as error:
            raise UsageError(f"[audit] sign_key {key} cannot sign", error.message) from error
        signer = cls(log, key, log.head.sequence if log.head is not None else 0)
        log.after.append(signer.checkpoint_when_due)
        return signer

    def checkpoint(self, run_id: str | None = None) -> Envelope | None:
        """Sign where the log ends now and append that as an event. None: nothing new since the last one."""
        head = self.log.head
        if head is None or head.sequence <= self._signed:
            return None
        origin = origin_of(head)
        signature = sign(self.key, message(origin, head.sequence, head.hash))
        event = AuditCheckpoint(
            origin=origin, at_sequence=head.sequence, at_hash=head.hash, signature=signature, public_key=_public_line(self.key)
        )
        written = self.log.emit(event, run_id=run_id)
        self._signed = written.sequence
        return written

    def checkpoint_when_due(self) -> None:
        """Sign when a thousand events came since the last checkpoint."""
        if self.log.head is not None and self.log.head.sequence - self._signed >= EVERY:
            self.checkpoint()


def origin_of(head: Head) -> str:
    return f"evolver/{head.log}"


# ---------------------------------------------------------------- the ref


def anchor_bytes(head: Head) -> bytes:
    """The blob that `refs/evolver/audit/<log>` points at: the same three lines that a checkpoint signs."""
    return message(origin_of(head), head.sequence, head.hash)


def move_anchor_ref(layout: Layout, path: Path, head: Head) -> None:
    """Let the ref remember where the log ends. Raise `GitError`."""
    from evolver.git import Git

    git = Git.at(layout.root, layout.git_dir)
    blob = git.run("hash-object", "-w", "--stdin", input=anchor_bytes(head)).text
    git.run("update-ref", "-m", "evolver: end of the event stream", paths.anchor_ref_name(path), blob)


def read_anchor_ref(layout: Layout, path: Path) -> list[Anchor]:
    """What the ref remembers; empty when there is none. Raise `EvolverError` when git cannot be asked."""
    from evolver.git import Git

    name = paths.anchor_ref_name(path)
    git = Git.at(layout.root, layout.git_dir)
    done = git.run("cat-file", "blob", name, check=False)
    if not done.ok:
        return []
    lines = done.out.decode(errors="replace").splitlines()
    if len(lines) != 3 or not lines[1].isdigit():
        raise GitError(f"{name} is no anchor of evolver's")
    return [Anchor(name, int(lines[1]), lines[2])]
