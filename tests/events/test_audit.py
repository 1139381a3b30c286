"""Checkpoints: signed by ssh-keygen, verified by ssh-keygen, with no evolver in between."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from evolver.audit import EVERY, Signer, check_key, make_key
from evolver.errors import LogError, UsageError
from evolver.events.log import EventLog

from .streams import evolver, lines, pause

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def test_keygen_makes_a_key_only_its_owner_reads_and_never_overwrites(tmp_path: Path) -> None:
    done = evolver("audit", "keygen", str(tmp_path / "key"), cwd=tmp_path)
    assert done.returncode == 0 and b"sign_key" in done.stdout and b"ssh-ed25519 " in done.stdout
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    before = (tmp_path / "key").read_bytes()
    again = evolver("audit", "keygen", str(tmp_path / "key"), cwd=tmp_path)
    assert again.returncode == 2 and (tmp_path / "key").read_bytes() == before
    assert evolver("audit", "keygen", str(tmp_path / "no/such/key"), cwd=tmp_path).returncode == 2
    assert evolver("audit", "keygen", cwd=tmp_path).returncode == 0
    assert stat.S_IMODE((Path.home() / ".config/evolver/audit-key").stat().st_mode) == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    check_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(UsageError, match="read by others"):
        check_key(tmp_path / "key")
    with pytest.raises(UsageError, match="No such file"):
        check_key(tmp_path / "none")


def verify_by_ssh(folder: Path, event: dict[str, object], public: str) -> subprocess.CompletedProcess[bytes]:
    """What an auditor does."""
    data = event["data"]
    assert isinstance(data, dict)
    (folder / "allowed").write_text(f'evolver namespaces="evolver-audit" {public}\n')
    (folder / "checkpoint.sig").write_text(data["signature"])
    message = f"{data['origin']}\n{data['at_sequence']}\n{data['at_hash']}\n".encode()
    words = ["ssh-keygen", "-Y", "verify", "-f", str(folder / "allowed"), "-I", "evolver", "-n", "evolver-audit"]
    return subprocess.run([*words, "-s", str(folder / "checkpoint.sig")], input=message, capture_output=True)


def test_ssh_keygen_accepts_a_checkpoint_and_rejects_a_changed_one(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    with EventLog.open(tmp_path / "events.jsonl", source="/test") as log:
        signer = Signer.open(log, tmp_path / "key")
        log.emit(pause())
        assert signer.checkpoint() is not None and signer.checkpoint() is None  # nothing new: not signed again
    event = json.loads(lines(log.path)[-1])
    assert event["data"]["at_hash"] == event["prevhash"] and event["data"]["public_key"] == public
    assert verify_by_ssh(tmp_path, event, public).returncode == 0
    for changed in ({"at_sequence": 1}, {"at_hash": "0" * 64}, {"origin": "evolver/other"}):
        assert verify_by_ssh(tmp_path, {"data": {**event["data"], **changed}}, public).returncode != 0
    assert verify_by_ssh(tmp_path, event, make_key(tmp_path / "other")).returncode != 0


def test_a_checkpoint_every_thousand_events(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    with EventLog.open(tmp_path / "events.jsonl", source="/test") as log:
        Signer.open(log, tmp_path / "key")
        for _ in range(2 * EVERY + 50):
            log.emit(pause())
    signed = [json.loads(line)["data"]["at_sequence"] for line in lines(log.path) if b"audit.checkpoint" in line]
    assert signed == [EVERY, 2 * EVERY + 1]


def test_an_agent_holds_the_key_and_only_the_public_half_is_named(tmp_path: Path) -> None:
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is not installed")
    public = make_key(tmp_path / "key")
    started = subprocess.run(["ssh-agent", "-s", "-a", str(tmp_path / "agent")], capture_output=True, check=True, text=True)
    pid = int(started.stdout.split("SSH_AGENT_PID=")[1].split(";")[0])
    try:
        os.environ["SSH_AUTH_SOCK"] = str(tmp_path / "agent")
        subprocess.run(["ssh-add", "-q", str(tmp_path / "key")], check=True, capture_output=True)
        (tmp_path / "key").unlink()
        with EventLog.open(tmp_path / "events.jsonl", source="/test") as log:
            signer = Signer.open(log, tmp_path / "key.pub")
            log.emit(pause())
            signer.checkpoint()
        assert verify_by_ssh(tmp_path, json.loads(lines(log.path)[-1]), public).returncode == 0
    finally:
        del os.environ["SSH_AUTH_SOCK"]
        os.kill(pid, 15)


def test_a_key_that_cannot_sign_is_found_before_the_run_and_one_that_goes_away_is_exit_8(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("no key")
    (tmp_path / "bad").chmod(0o600)
    make_key(tmp_path / "key")
    with EventLog.open(tmp_path / "events.jsonl", source="/test") as log:
        with pytest.raises(UsageError, match="cannot sign"):
            Signer.open(log, tmp_path / "bad")
        signer = Signer.open(log, tmp_path / "key")
        log.emit(pause())
        (tmp_path / "key").unlink()
        with pytest.raises(LogError) as caught:
            signer.checkpoint()
    assert caught.value.exit_code == 8
