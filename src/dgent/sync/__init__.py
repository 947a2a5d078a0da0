"""The same names for code without an event loop: every call blocks until it is answered.

`with sync.open("sqlite:///memory.db") as u: u.remember(...)`. The classes are made from the async ones
when this module loads; their types for editors and checkers are in `__init__.pyi`, also generated.
"""

from dgent.errors import (
    Conflict,
    Denied,
    DgentError,
    InputError,
    NotFound,
    StorageError,
    Unreadable,
    Unsupported,
    VersionConflict,
)
from dgent.model.crystal import Crystal, CrystalMeta
from dgent.model.datum import Datum
from dgent.model.lens import Lens
from dgent.model.query import Query
from dgent.model.ref import Ref
from dgent.model.schema import Schema
from dgent.sync.current import DataMixin, get_universe, set_universe
from dgent.sync.handle import Anywhere, anywhere
from dgent.sync.runner import BlockingWarning
from dgent.sync.stream import Stream
from dgent.sync.universe import Collection, Focus, Transaction, Universe, Vectors, copy, mirror, open

__all__ = [
    "Anywhere",
    "BlockingWarning",
    "Collection",
    "Conflict",
    "Crystal",
    "CrystalMeta",
    "DataMixin",
    "Datum",
    "Denied",
    "DgentError",
    "Focus",
    "InputError",
    "Lens",
    "NotFound",
    "Query",
    "Ref",
    "Schema",
    "StorageError",
    "Stream",
    "Transaction",
    "Universe",
    "Unreadable",
    "Unsupported",
    "Vectors",
    "VersionConflict",
    "anywhere",
    "copy",
    "get_universe",
    "mirror",
    "open",
    "set_universe",
]
