"""A process the agent left behind changes the tree while it is rolled back: what was checked must be what is used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from evolver.changes.rollback import rollback_changes

from .conftest import Place, snapshot, stand_in

# Swaps `d` and `.rollback` for links to the outside and back, as fast as it can.
SWAPPER = """
import os, shutil, sys
os.chdir(sys.argv[1])
print("ready", flush=True)
def attempt(act, *words):
    try:
        act(*words)
    except OSError:
        return False
    return True
while True:
    for name in ("d", ".rollback"):
        attempt(os.rename, name, name + ".aside")
        attempt(os.symlink, "../outside", name)
        attempt(os.unlink, name)
        if not attempt(os.rename, name + ".aside", name):
            shutil.rmtree(name, ignore_errors=True)  # made meanwhile
"""


def furnish(place: Place) -> str:
    for n in range(20):
        place.write(f"d/f{n}", "changed\n")
        place.write(f"d/new/{n}/x", "created\n")
        place.write(f".rollback/f{n}", "original\n")
    return place.log(
        files_modified=[{"path": f"d/f{n}", "backup": f".rollback/f{n}"} for n in range(20)],
        files_created=["d/new", *(f"d/made{n}" for n in range(5))],
        artifacts=["d/f-artifact"],
        commands_executed=["pnpm build"],
    )


def test_folders_swapped_for_links_under_a_rollback_lead_nowhere(plain: Place) -> None:
    outside = plain.root.parent / "outside"
    for n in range(20):
        (outside / f"f{n}").write_text("precious\n")
    (outside / "new").mkdir()
    (outside / "new/x").write_text("precious\n")
    before = snapshot(outside)
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, str(plain.root)], stdout=subprocess.PIPE)
    assert swapper.stdout is not None
    try:
        assert swapper.stdout.readline() == b"ready\n"
        deadline, rounds, met = time.monotonic() + 3, 0, 0
        while time.monotonic() < deadline:
            try:
                log = furnish(plain)
            except OSError:
                continue  # we write through the links ourselves now and then: put the outside back below
            finally:
                for name in ("made", ".aside"):
                    (outside / name).unlink(missing_ok=True)
            reset(outside, before)
            report = rollback_changes(plain.root / log, confirm=None)
            assert snapshot(outside) == before
            rounds += 1
            met += bool(report.errors)
        assert rounds > 3, met
    finally:
        swapper.kill()
        swapper.wait()
        swapper.stdout.close()


def reset(outside: Path, wanted: dict[str, tuple[object, ...]]) -> None:
    """Undo what the test's own set-up wrote through a link."""
    import shutil

    shutil.rmtree(outside)
    outside.mkdir()
    for name, entry in sorted(wanted.items()):
        if len(entry) == 3:
            (outside / name).parent.mkdir(parents=True, exist_ok=True)
            assert isinstance(entry[2], bytes)
            (outside / name).write_bytes(entry[2])
        else:
            (outside / name).mkdir(parents=True, exist_ok=True)


def test_folders_that_became_links_between_check_and_act_are_errors(plain: Place) -> None:
    """The question is asked after the check: whoever answers it has the time an attacker would need."""
    outside = snapshot(plain.root.parent / "outside")
    plain.write("d/secret", "changed\n")
    plain.write("e/secret", "changed\n")
    plain.write(".rollback/f", "original\n")
    log = plain.log(
        files_modified=[{"path": "d/secret", "backup": ".rollback/f"}, {"path": "e/secret", "backup": ".rollback/f"}],
        files_created=["d/sub"],
        artifacts=["d/secret", "d/sub/inner"],
    )

    def swap(question: str) -> bool:
        (plain.root / "d").rename(plain.root / "aside")
        (plain.root / "d").symlink_to("../outside")
        return True

    report = rollback_changes(plain.root / log, confirm=swap)
    assert snapshot(plain.root.parent / "outside") == outside
    assert report.actions_taken == ("Restored e/secret from .rollback/f",)
    assert "Failed to restore d/secret: leads through a symlink" in report.errors
    assert "Failed to delete d/sub: leads through a symlink" in report.errors
    assert "Failed to remove artifact d/sub/inner: leads through a symlink" in report.errors


def test_backups_that_became_links_between_check_and_act_are_errors(plain: Place) -> None:
    for n in range(3):
        plain.write(f"f{n}", "changed\n")
        plain.write(f".rollback/f{n}", "original\n")
    log = plain.log(files_modified=[{"path": f"f{n}", "backup": f".rollback/f{n}"} for n in range(3)])

    def swap(question: str) -> bool:
        secret = plain.root.parent / "outside/secret"
        for n in range(2):
            (plain.root / f".rollback/f{n}").unlink()
        (plain.root / ".rollback/f0").symlink_to(secret)
        os.link(secret, plain.root / ".rollback/f1")
        return True

    report = rollback_changes(plain.root / log, confirm=swap)
    assert [plain.read(f"f{n}") for n in range(3)] == ["changed\n", "changed\n", "original\n"]
    assert report.errors == (
        "Failed to restore f0: backup .rollback/f0: is no regular file",
        "Failed to restore f1: backup .rollback/f1: has other hard links",
    )


def test_a_reverted_command_cannot_lead_the_rest_astray(plain: Place, tmp_path: Path) -> None:
    stand_in(
        tmp_path / "bin",
        "npm",
        "mv d aside; ln -s ../outside d; mv .rollback r; ln -s ../outside .rollback; cp r/f ../outside/f",
    )
    outside = snapshot(plain.root.parent / "outside")
    plain.write("d/secret", "x")
    plain.write("f", "changed\n")
    plain.write(".rollback/f", "original\n")
    plain.env["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    log = plain.log(
        files_modified=[{"path": "f", "backup": ".rollback/f"}], commands_executed=["npm install"], artifacts=["d/secret"]
    )
    report = plain.rollback(log)
    assert report["errors"] == ["Failed to remove artifact d/secret: leads through a symlink"]
    (plain.root.parent / "outside/f").unlink()
    assert snapshot(plain.root.parent / "outside") == outside


def test_a_log_that_changes_while_it_is_asked_about_is_refused(plain: Place) -> None:
    plain.write("mine", "x")
    log = plain.log(files_created=["made"])

    def swap(question: str) -> bool:
        plain.log(files_created=["mine"])
        return True

    report = rollback_changes(plain.root / log, confirm=swap)
    assert not report.success and "was changed meanwhile" in report.errors[0]
    assert plain.read("mine") == "x"
