"""dgent: where AI agents keep what they know.

The names load when they are first used, so that importing dgent costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgent.errors import Conflict, Denied, DgentError, InputError, NotFound, StorageError, Unreadable
    from dgent.errors import Unsupported as Unsupported
    from dgent.errors import VersionConflict as VersionConflict
    from dgent.exchange.copy import copy
    from dgent.model.crystal import Crystal, CrystalMeta
    from dgent.model.datum import Datum
    from dgent.model.lens import Lens
    from dgent.model.query import Query
    from dgent.model.ref import Ref
    from dgent.model.schema import Schema
    from dgent.universe.collection import Collection
    from dgent.universe.current import DataMixin, get_universe, set_universe
    from dgent.universe.transaction import Transaction
    from dgent.universe.universe import Universe, open

_HOME = {
    "Collection": "dgent.universe.collection",
    "Conflict": "dgent.errors",
    "Crystal": "dgent.model.crystal",
    "CrystalMeta": "dgent.model.crystal",
    "DataMixin": "dgent.universe.current",
    "Datum": "dgent.model.datum",
    "Denied": "dgent.errors",
    "DgentError": "dgent.errors",
    "InputError": "dgent.errors",
    "Lens": "dgent.model.lens",
    "NotFound": "dgent.errors",
    "Query": "dgent.model.query",
    "Ref": "dgent.model.ref",
    "Schema": "dgent.model.schema",
    "StorageError": "dgent.errors",
    "Transaction": "dgent.universe.transaction",
    "Universe": "dgent.universe.universe",
    "Unreadable": "dgent.errors",
    "Unsupported": "dgent.errors",
    "VersionConflict": "dgent.errors",
    "copy": "dgent.exchange.copy",
    "get_universe": "dgent.universe.current",
    "open": "dgent.universe.universe",
    "set_universe": "dgent.universe.current",
}

__all__ = [
    "Collection",
    "Conflict",
    "Crystal",
    "CrystalMeta",
    "DataMixin",
    "Datum",
    "Denied",
    "DgentError",
    "InputError",
    "Lens",
    "NotFound",
    "Query",
    "Ref",
    "Schema",
    "StorageError",
    "Transaction",
    "Universe",
    "Unreadable",
    "Unsupported",
    "VersionConflict",
    "copy",
    "get_universe",
    "open",
    "set_universe",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'dgent' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
