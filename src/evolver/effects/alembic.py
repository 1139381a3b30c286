"""alembic: upgrade a database, and back to the revision it had before.

A downgrade alone is not enough. SQLite's driver does not put schema changes into a transaction, so a migration that fails
half-way leaves its first half behind while the revision says that nothing happened. Where the database is SQLite, its schema
is therefore compared with the one before, and where they differ after the downgrade, the content from before is put back;
what was there until then is kept aside.
"""

from __future__ import annotations

import configparser
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from evolver.effects import sqlite
from evolver.effects.host import Host, last_words
from evolver.effects.spec import ActionSpec, Arguments, Recorded, RollbackSpec, Undoing, Undone, UndoneKind

BASE = "base"
_CURRENT = re.compile(r"^(\w[\w.-]*)(?: \([\w, -]+\))*$")
_TRANSACTIONAL = ("postgresql", "mssql")  # schema changes of a failed migration are rolled back by the database itself


def _config(args: Mapping[str, str]) -> str:
    return args.get("config") or "alembic.ini"


def _argv(args: Arguments) -> tuple[str, ...]:
    args.text("database")
    if args.text("transactional") not in ("", "yes", "no"):
        raise args.wrong("transactional", "expected yes or no")
    config = args.text("config") or "alembic.ini"
    revision = args.word("revision") if args.text("revision") else "head"
    return ("alembic", "-c", config, "upgrade", revision)


def _url(host: Host, config: Path) -> str:
    """The ini file's own URL; env.py may use another one, so it is only believed when the database agrees."""
    parser = configparser.ConfigParser(defaults={"here": str(config.absolute().parent)})
    try:
        parser.read(config, encoding="utf-8")
        return parser.get("alembic", "sqlalchemy.url", fallback="")
    except (configparser.Error, UnicodeDecodeError):
        return ""


def _database(host: Host, args: Mapping[str, str]) -> tuple[Path | None, str]:
    """The SQLite file, if it is one, and the dialect's name."""
    if args.get("database"):
        return host.cwd / args["database"], "sqlite"
    url = _url(host, host.cwd / _config(args))
    dialect = urlsplit(url).scheme.partition("+")[0]
    if dialect != "sqlite":
        return None, dialect
    # sqlite:///relative, sqlite:////absolute; none or :memory: is no file.
    name = unquote(url.partition("://")[2].partition("?")[0]).removeprefix("/")
    return (host.cwd / name if name and name != ":memory:" else None), dialect


def _current(host: Host, config: str) -> tuple[str, ...] | str:
    """The revisions the database is at (none: `base`). A text says why they cannot be known."""
    done = host.ask(("alembic", "-c", config, "current"))
    if not done.ok:
        return f"`alembic current`: {done.describe()}{last_words(done.stderr or done.stdout)}"
    found = (_CURRENT.match(line.strip()) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return tuple(sorted(match[1] for match in found if match is not None))


def _record(host: Host, args: Mapping[str, str], earlier: Sequence[Mapping[str, str]]) -> Recorded:
    config = _config(args)
    database, dialect = _database(host, args)
    absent = database is not None and not database.exists()  # asking alembic creates it
    found = _current(host, config)
    if database is not None and absent:
        sqlite.remove_empty(database)
    if isinstance(found, str):
        return Recorded({}, found)
    if len(found) > 1:
        return Recorded(
            {}, f"the database is at several revisions ({', '.join(found)}): there is no one revision to go back to"
        )
    values = {"config": config, "revision": found[0] if found else BASE}
    values["transactional"] = args.get("transactional") or ("yes" if dialect in _TRANSACTIONAL else "no")
    if database is None:
        return Recorded(values)
    if (sqlite.revisions(database) or ()) != found:
        return Recorded({}, f"{database} is not the database that alembic upgrades; name it with args.database")
    values["database"] = str(database)
    try:
        values["schema"] = sqlite.ABSENT if absent else sqlite.schema(database)
        if not absent and database.stat().st_size <= sqlite.LARGEST:
            kept = host.scratch / "before.sqlite"
            kept.unlink(missing_ok=True)
            sqlite.copy(database, kept)
            values["kept"] = str(kept)
    except (sqlite3.Error, OSError) as error:
        return Recorded({}, f"{database} cannot be kept aside: {error}")
    return Recorded(values)


def _same_schema(recorded: Mapping[str, str]) -> bool | None:
    """None: nobody can tell."""
    if "database" not in recorded:
        return None
    if recorded["schema"] == sqlite.ABSENT:
        sqlite.remove_empty(Path(recorded["database"]))
    return sqlite.schema(Path(recorded["database"])) == recorded["schema"]


def _put_back(host: Host, recorded: Mapping[str, str]) -> str:
    """The content from before; what there is now is kept aside first. Returns where."""
    database = Path(recorded["database"])
    aside = host.scratch / f"replaced-{time.time_ns()}.sqlite"
    if database.exists():
        sqlite.copy(database, aside)
    if recorded["schema"] == sqlite.ABSENT:
        sqlite.remove(database)
    else:
        sqlite.copy(Path(recorded["kept"]), database)
    return str(aside)


def _undo(host: Host, undoing: Undoing) -> Undone:
    try:
        return _revert(host, undoing, undoing.recorded)
    except (sqlite3.Error, OSError) as error:
        return Undone(UndoneKind.FAILED, f"{undoing.recorded.get('database', 'database')}: {error}")


def _revert(host: Host, undoing: Undoing, recorded: Mapping[str, str]) -> Undone:
    config, revision = recorded["config"], recorded["revision"]
    wanted = () if revision == BASE else (revision,)
    before = _current(host, config)
    same = _same_schema(recorded)
    if before == wanted and same:
        return Undone(UndoneKind.UNCHANGED, f"revision and schema are as before ({revision})")
    problem, ref = "", ""
    if before != wanted:
        ref = f"alembic downgrade {revision}"
        problem = host.act(("alembic", "-c", config, "downgrade", revision))
    if same is not None:
        return _sqlite_reverted(host, recorded, problem, ref)
    after = _current(host, config)
    if problem or after != wanted:
        return Undone(UndoneKind.FAILED, problem or f"the database is at {after}, not at {revision}", ref)
    if not undoing.act_succeeded and recorded["transactional"] != "yes":
        return Undone(
            UndoneKind.FAILED, f"the database is at {revision} as before, but half a migration may be left in it", ref
        )
    return Undone(UndoneKind.DONE if ref else UndoneKind.UNCHANGED, f"the database is at {revision}, as before", ref)


def _sqlite_reverted(host: Host, recorded: Mapping[str, str], problem: str, ref: str) -> Undone:
    if not problem and _same_schema(recorded):
        return Undone(UndoneKind.DONE, f"the database is at {recorded['revision']} again and has its earlier schema", ref)
    if recorded["schema"] != sqlite.ABSENT and "kept" not in recorded:
        return Undone(
            UndoneKind.FAILED, problem or "the schema differs from before, and the database was too large to keep", ref
        )
    aside = _put_back(host, recorded)
    ref = "; ".join(filter(None, (ref, "earlier content put back")))
    if not _same_schema(recorded):
        return Undone(UndoneKind.FAILED, "the schema differs from the earlier one after it was put back", ref)
    return Undone(UndoneKind.DONE, f"the database has its earlier content; what that replaced is {aside}", ref)


ACTION = ActionSpec(
    name="alembic",
    family="alembic",
    summary="upgrade to args.revision (default head) by args.config (default alembic.ini)",
    argv=_argv,
    risk="medium",
    rollback=RollbackSpec(ref="alembic downgrade", record=_record, undo=_undo),
    note="on SQLite half a migration is reverted too; elsewhere the database's own transactions must do that",
)
