"""Run the revisions of the tables: forward, and back only in development.

All of a run is one transaction: a revision that fails leaves the tables as they were. `folder` names a folder
with revisions of a program's own. They are counted apart from the shipped ones, so that neither waits for
the other, and a dgent with more revisions changes nothing about them.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.engine import Connection

from dgent.errors import Denied, InputError, NotFound

if TYPE_CHECKING:
    from dgent.tables.place import Place

R = TypeVar("R")

HEAD = "head"

# Not Alembic's own name, `alembic_version`: a program may run Alembic by itself in the same database.
VERSION_TABLE, OWN_VERSION_TABLE = "alembic_version_dgent", "alembic_version_own"
"""The tables with the revision that a place has, of the shipped ones and of a program's own."""

_SHIPPED = Path(__file__).parent / "migrations"
_held, _PAUSE_S = Lock(), 0.01
_LOCK = 0x6467656E74  # one run at a time on Postgres; SQLite has a lock of its own


class Revision(NamedTuple):
    """A revision: its id, the one before it, its title, and whether the place has it."""

    id: str
    after: str | None
    title: str
    applied: bool


def get_alembic_config(folder: str | Path | None = None) -> Config:
    """Return the configuration of Alembic for the shipped revisions, or for those in a folder."""
    config = Config(cmd_opts=Namespace(quiet=True, x=None))
    config.set_main_option("script_location", _escape(_SHIPPED))
    config.set_main_option("path_separator", "newline")  # a folder may have a blank or a colon in its name
    versions = _SHIPPED / "versions" if folder is None else Path(folder).absolute()
    config.set_main_option("version_locations", _escape(versions))
    config.attributes["version_table"] = VERSION_TABLE if folder is None else OWN_VERSION_TABLE
    return config


async def run_migrations(
    place: Place, target: str = HEAD, *, development: bool = False, folder: str | Path | None = None
) -> str | None:
    """Bring the tables of a place to a revision, and return the one that it has then.

    `target` is `head`, a revision, `+1`, or, with `development`, also an earlier revision, `-1` or `base`.
    Raises Denied for a step back without `development`: it drops columns and tables with what is in them.
    """
    if not target:
        raise InputError("the target is empty", hint="say head, or a revision", field="target")
    config = get_alembic_config(folder)

    def run(connection: Connection) -> str | None:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        current = _current(config, connection)
        script = _load(config, current)
        config.attributes["connection"] = connection
        if _is_back(script, current, target):
            if not development:
                raise Denied(
                    f"{target!r} is a step back, which drops tables with their rows",
                    hint="in development, say development=True, or --development at the command line",
                )
            _call(lambda: command.downgrade(config, target))
        else:
            _call(lambda: command.upgrade(config, target))
        return _current(config, connection)

    engine = place.engine
    if engine.dialect.name == "sqlite":
        # The lock before the first look: another process may run the same revisions.
        engine = engine.execution_options(isolation_level="SERIALIZABLE")
    async with _alone(), engine.begin() as opened:
        return await opened.run_sync(run)


@contextmanager
def hold_alembic() -> Iterator[bool]:
    """Hold Alembic for work that does not wait, and give whether nobody else holds it."""
    held = _held.acquire(blocking=False)
    try:
        yield held
    finally:
        if held:
            _held.release()


@asynccontextmanager
async def _alone() -> AsyncIterator[None]:
    """Hold Alembic, whose `op` and `context` are one for the whole process, whatever its tasks and loops."""
    while not _held.acquire(blocking=False):
        await asyncio.sleep(_PAUSE_S)
    try:
        yield
    finally:
        _held.release()


async def get_current_revision(place: Place, folder: str | Path | None = None) -> str | None:
    """Return the revision that a place has; None before the first."""
    config = get_alembic_config(folder)
    async with place.engine.connect() as opened:
        return await opened.run_sync(lambda connection: _current(config, connection))


async def list_revisions(place: Place, folder: str | Path | None = None) -> list[Revision]:
    """Return all revisions, the first one first, with those marked that the place has."""
    current = await get_current_revision(place, folder)
    script = _load(get_alembic_config(folder), current)
    applied = {each.revision for each in _upto(script, current)}
    found = [
        Revision(each.revision, _before(each), (each.doc or "").splitlines()[0], each.revision in applied)
        for each in script.walk_revisions()
    ]
    return found[::-1]


async def get_pending_migrations(place: Place, folder: str | Path | None = None) -> list[str]:
    """Return the revisions that a place does not have yet, in the order in which they run."""
    return [each.id for each in await list_revisions(place, folder) if not each.applied]


async def ensure_migrations(place: Place, folder: str | Path | None = None) -> bool:
    """Run the revisions that a place does not have; return whether there were any."""
    if not await get_pending_migrations(place, folder):
        return False
    await run_migrations(place, folder=folder)
    return True


def make_revision(title: str, folder: str | Path) -> Path:
    """Write the file of a new, empty revision into a folder, and return its path."""
    if not title.strip():
        raise InputError("a revision needs a title", hint="say what it changes", field="title")
    target = Path(folder).absolute()
    target.mkdir(parents=True, exist_ok=True)
    config = get_alembic_config(target)
    count = sum(1 for _ in ScriptDirectory.from_config(config).walk_revisions())
    made = _call(lambda: command.revision(config, message=title, rev_id=f"{count + 1:03}"))
    assert isinstance(made, Script)
    return Path(made.path)


def _current(config: Config, connection: Connection) -> str | None:
    table = config.attributes["version_table"]
    return MigrationContext.configure(connection, opts={"version_table": table}).get_current_revision()


def _load(config: Config, current: str | None) -> ScriptDirectory:
    """Return the revisions; raises NotFound for one that the place has and nobody here knows."""
    script = ScriptDirectory.from_config(config)
    if current is not None and current not in {each.revision for each in script.walk_revisions()}:
        raise NotFound(
            f"the tables are at revision {current!r}, which is not known here",
            hint="it comes from a newer dgent, or from another folder of revisions",
            revision=current,
        )
    return script


def _upto(script: ScriptDirectory, current: str | None) -> list[Script]:
    """Return the revisions that a place at `current` has."""
    return [] if current is None else list(script.iterate_revisions(current, "base"))


def _before(script: Script) -> str | None:
    found = script.down_revision
    return found if found is None or isinstance(found, str) else ", ".join(found)


def _is_back(script: ScriptDirectory, current: str | None, target: str) -> bool:
    """Return whether a target comes before what a place has."""
    if target == "base" or target.startswith("-"):
        return True
    if target in ("head", "heads") or target.startswith("+"):
        return False
    wanted = _call(lambda: script.get_revision(target))
    return wanted is not None and wanted.revision != current and wanted in _upto(script, current)


def _call(work: Callable[[], R]) -> R:
    """Run a command of Alembic; what it refuses is an InputError."""
    try:
        return work()
    except CommandError as error:
        raise InputError(str(error), hint="`dgent tables history` lists the revisions") from None


def _escape(path: Path) -> str:
    return str(path).replace("%", "%%")
