"""Shows: a real alembic migration on SQLite, failing half-way and rejected later: the schema equals the earlier one."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from support import in_fork

from .conftest import World

PROGRAM = Path(sys.executable).with_name("alembic")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="alembic is not installed beside this Python")

ENV = """
from alembic import context
from sqlalchemy import create_engine
with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
MIGRATION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = {revision!r}, {down!r}
def upgrade():
    {upgrade}
def downgrade():
    {downgrade}
"""
TABLE = 'op.create_table("{0}", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text))'
MIGRATE = EffectSection(name="migrate", action="alembic")


class Project:
    """A database at revision r1 with a row in it, and migrations r2 and r3 to come."""

    def __init__(self, root: Path, *, database: str = "app.db") -> None:
        self.root, self.database = root, root / database
        folder = root / "migrations/versions"
        folder.mkdir(parents=True)
        (root / "alembic.ini").write_text(f"[alembic]\nscript_location = migrations\nsqlalchemy.url = sqlite:///{database}\n")
        (root / "migrations/env.py").write_text(ENV)
        (root / "migrations/script.py.mako").write_text("")
        self.migration("r1", None, TABLE.format("users"), 'op.drop_table("users")')

    def migration(self, revision: str, down: str | None, upgrade: str, downgrade: str = "pass") -> None:
        file = self.root / f"migrations/versions/{revision}.py"
        file.write_text(MIGRATION.format(revision=revision, down=down, upgrade=upgrade, downgrade=downgrade))

    def at_r1(self) -> None:
        import subprocess

        subprocess.run([PROGRAM, "upgrade", "r1"], cwd=self.root, check=True, capture_output=True)
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("INSERT INTO users (name) VALUES ('ann')")

    def schema(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.database)) as database:
            return sorted(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())

    def rows(self) -> list[tuple[str]]:
        with closing(sqlite3.connect(self.database)) as database:
            return database.execute("SELECT name FROM users ORDER BY id").fetchall()

    def revision(self) -> list[tuple[str]]:
        with closing(sqlite3.connect(self.database)) as database:
            return database.execute("SELECT version_num FROM alembic_version").fetchall()


@pytest.fixture
def project(world: World) -> Project:
    world.env["PATH"] = f"{PROGRAM.parent}:{world.env['PATH']}"
    found = Project(world.root)
    found.at_r1()
    return found


def test_a_migration_that_fails_half_way_leaves_the_earlier_schema(world: World, project: Project) -> None:
    """SQLite's first half stays although the revision says that nothing happened: a downgrade alone would not see it."""
    project.migration("r2", "r1", f'{TABLE.format("half")}; raise RuntimeError("boom")')
    before = project.schema()
    verdict, person = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and "exit 1" in verdict.reason and not person
    assert project.schema() == before and project.revision() == [("r1",)] and project.rows() == [("ann",)]
    name, data = world.told()[-1]
    assert (name, data["to"]) == ("effect.rolled_back", "rolled_back")


def test_one_whole_and_one_half_migration_leave_the_earlier_schema(world: World, project: Project) -> None:
    project.migration("r2", "r1", TABLE.format("whole"), 'op.drop_table("whole")')
    project.migration("r3", "r2", f'{TABLE.format("half")}; raise RuntimeError("boom")')
    before = project.schema()
    verdict, person = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and not person
    assert project.schema() == before and project.revision() == [("r1",)] and project.rows() == [("ann",)]


def test_a_migration_rejected_later_is_downgraded_and_rows_written_since_are_kept(world: World, project: Project) -> None:
    project.migration("r2", "r1", TABLE.format("more"), 'op.drop_table("more")')
    before, runner = project.schema(), world.runner(MIGRATE)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert project.schema() != before
    with closing(sqlite3.connect(project.database)) as database, database:
        database.execute("INSERT INTO users (name) VALUES ('bob')")
    assert runner.compensate(world.iteration).ok
    assert project.schema() == before and project.revision() == [("r1",)] and project.rows() == [("ann",), ("bob",)]
    assert world.told()[-1][1]["rollback_ref"] == "alembic downgrade r1"


@pytest.mark.parametrize("downgrade", ["pass", 'raise NotImplementedError("no way back")'])
def test_a_downgrade_that_does_not_undo_is_noticed_and_the_content_put_back(
    world: World, project: Project, downgrade: str
) -> None:
    project.migration("r2", "r1", TABLE.format("more"), downgrade)
    before, runner = project.schema(), world.runner(MIGRATE)
    runner.run("after_validate", world.context())
    with closing(sqlite3.connect(project.database)) as database, database:
        database.execute("INSERT INTO users (name) VALUES ('bob')")
    assert runner.compensate(world.iteration).ok
    assert project.schema() == before and project.rows() == [("ann",)]
    aside = next((world.layout.state / "effects").rglob("replaced-*.sqlite"))
    with closing(sqlite3.connect(aside)) as database:  # nothing that was in it is lost
        assert database.execute("SELECT name FROM users ORDER BY id").fetchall() == [("ann",), ("bob",)]
    assert str(aside) in str(world.told()[-1][1]["reason"])


def test_an_upgrade_that_changed_nothing_rolls_nothing_back(world: World, project: Project) -> None:
    project.migration("r2", "r1", 'raise RuntimeError("at once")')
    before = project.database.read_bytes()
    verdict, person = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and "nothing was rolled back" in verdict.reason and not person
    assert project.database.read_bytes() == before
    assert world.edges()[-1] == ("rolling_back", "failed")


def test_a_database_that_did_not_exist_does_not_exist_again(world: World, project: Project) -> None:
    project.database.unlink()
    runner = world.runner(MIGRATE)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert project.database.exists()
    assert runner.compensate(world.iteration).ok
    assert not project.database.exists()


def test_killed_in_the_middle_of_a_migration_the_next_run_restores_the_schema(world: World, project: Project) -> None:
    marker = world.root / "half-done"
    project.migration("r2", "r1", f'{TABLE.format("half")}; import time; open({str(marker)!r}, "w").close(); time.sleep(600)')
    before, context = project.schema(), world.context()

    def doomed() -> None:
        os.setpgid(0, 0)
        world.runner(MIGRATE).run("after_validate", context)

    pid = in_fork(doomed)
    import time

    from evolver.process import sweep_dead_run

    deadline = time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sweep_dead_run(world.run_id, [])  # as recovery does before it touches anything
    assert project.schema() != before
    assert world.runner().compensate(world.iteration).ok
    assert project.schema() == before and project.rows() == [("ann",)]


def test_twice_in_a_row(world: World, project: Project) -> None:
    project.migration("r2", "r1", f'{TABLE.format("half")}; raise RuntimeError("boom")')
    before, runner = project.schema(), world.runner(MIGRATE)
    for number in (1, 2):
        verdict, person = runner.run("after_validate", world.context(number))
        assert verdict is not None and not person
        assert project.schema() == before


def test_a_database_that_alembic_does_not_upgrade_is_refused(world: World, project: Project) -> None:
    """env.py may take its URL elsewhere; comparing the wrong file would prove nothing."""
    shutil.copy(project.database, world.root / "real.db")
    env = world.root / "migrations/env.py"
    env.write_text(ENV.replace('context.config.get_main_option("sqlalchemy.url")', '"sqlite:///real.db"'))
    with closing(sqlite3.connect(project.database)) as database, database:
        database.execute("DELETE FROM alembic_version")
    project.migration("r2", "r1", TABLE.format("more"), 'op.drop_table("more")')
    verdict, _ = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and "args.database" in verdict.reason and "not run" in verdict.reason
    named = EffectSection(name="migrate", action="alembic", args={"database": "real.db"})
    runner = world.runner(named)
    assert runner.run("after_validate", world.context(2)) == (None, False)
    assert runner.compensate(f"{world.run_id}/2").ok


def test_where_half_a_migration_cannot_be_seen_a_person_is_asked(world: World, project: Project) -> None:
    ini = world.root / "alembic.ini"
    ini.write_text(ini.read_text().replace("sqlite:///app.db", "mysql://db/x"))
    env = world.root / "migrations/env.py"
    env.write_text(ENV.replace('context.config.get_main_option("sqlalchemy.url")', '"sqlite:///app.db"'))
    project.migration("r2", "r1", f'{TABLE.format("half")}; raise RuntimeError("boom")')
    verdict, person = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and person and "half a migration" in verdict.reason


def test_without_a_configuration_nothing_is_run(world: World) -> None:
    world.env["PATH"] = f"{PROGRAM.parent}:{world.env['PATH']}"
    verdict, person = world.runner(MIGRATE).run("after_validate", world.context())
    assert verdict is not None and "not run" in verdict.reason and not person
