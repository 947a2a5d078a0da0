"""Application tables beside the records: SQLAlchemy on the universe's own connections, rows as datums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.errors import Unsupported
from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.tables.place import Place, connect

_HOME = {
    "Place": "dgent.tables.place",
    "connect": "dgent.tables.place",
}

__all__ = ["Place", "connect"]

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
