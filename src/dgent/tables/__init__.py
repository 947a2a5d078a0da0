"""Application tables beside the records: SQLAlchemy on the universe's own connections, rows as datums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.errors import Unsupported
from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.tables.adapter import TableAdapter
    from dgent.tables.brain import Brain
    from dgent.tables.category import APP_STATE, Migration
    from dgent.tables.gardener import Gardener
    from dgent.tables.halves import find_halves, repair
    from dgent.tables.migrate import (
        ensure_migrations,
        get_current_revision,
        get_pending_migrations,
        list_revisions,
        make_revision,
        run_migrations,
    )
    from dgent.tables.place import Place, connect
    from dgent.tables.town import Town

_HOME = {
    "APP_STATE": "dgent.tables.category",
    "Brain": "dgent.tables.brain",
    "Gardener": "dgent.tables.gardener",
    "Migration": "dgent.tables.category",
    "Place": "dgent.tables.place",
    "TableAdapter": "dgent.tables.adapter",
    "Town": "dgent.tables.town",
    "connect": "dgent.tables.place",
    "ensure_migrations": "dgent.tables.migrate",
    "find_halves": "dgent.tables.halves",
    "get_current_revision": "dgent.tables.migrate",
    "get_pending_migrations": "dgent.tables.migrate",
    "list_revisions": "dgent.tables.migrate",
    "make_revision": "dgent.tables.migrate",
    "repair": "dgent.tables.halves",
    "run_migrations": "dgent.tables.migrate",
}

__all__ = [
    "APP_STATE",
    "Brain",
    "Gardener",
    "Migration",
    "Place",
    "TableAdapter",
    "Town",
    "connect",
    "ensure_migrations",
    "find_halves",
    "get_current_revision",
    "get_pending_migrations",
    "list_revisions",
    "make_revision",
    "repair",
    "run_migrations",
]

_load = load_on_use(__name__, _HOME)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"application tables need {error.name}", hint="pip install 'dgent[tables]'"
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
