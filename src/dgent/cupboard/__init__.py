"""Work items that an agent can back out of: crumbs on trails that are completed or abandoned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.cupboard import errors
from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.cupboard.audit import Audit, Finding
    from dgent.cupboard.compare import Comparison, Side
    from dgent.cupboard.config import Config
    from dgent.cupboard.cupboard import Cupboard, Ended
    from dgent.cupboard.graph import Edge, Graph, Node
    from dgent.cupboard.queue import Readiness
    from dgent.cupboard.tables.crumb import Crumb
    from dgent.cupboard.tables.link import Link
    from dgent.cupboard.tables.metadata import Metadata, MetadataSchema
    from dgent.cupboard.tables.property import Category, Property
    from dgent.cupboard.tables.stash import Stash, StashHistoryEntry
    from dgent.cupboard.tables.table import Table
    from dgent.cupboard.tables.trail import Trail

_HOME = {
    "Audit": "dgent.cupboard.audit",
    "Category": "dgent.cupboard.tables.property",
    "Comparison": "dgent.cupboard.compare",
    "Config": "dgent.cupboard.config",
    "Crumb": "dgent.cupboard.tables.crumb",
    "Cupboard": "dgent.cupboard.cupboard",
    "Edge": "dgent.cupboard.graph",
    "Ended": "dgent.cupboard.cupboard",
    "Finding": "dgent.cupboard.audit",
    "Graph": "dgent.cupboard.graph",
    "Link": "dgent.cupboard.tables.link",
    "Metadata": "dgent.cupboard.tables.metadata",
    "MetadataSchema": "dgent.cupboard.tables.metadata",
    "Node": "dgent.cupboard.graph",
    "Property": "dgent.cupboard.tables.property",
    "Readiness": "dgent.cupboard.queue",
    "Side": "dgent.cupboard.compare",
    "Stash": "dgent.cupboard.tables.stash",
    "StashHistoryEntry": "dgent.cupboard.tables.stash",
    "Table": "dgent.cupboard.tables.table",
    "Trail": "dgent.cupboard.tables.trail",
}

__all__ = [
    "Audit",
    "Category",
    "Comparison",
    "Config",
    "Crumb",
    "Cupboard",
    "Edge",
    "Ended",
    "Finding",
    "Graph",
    "Link",
    "Metadata",
    "MetadataSchema",
    "Node",
    "Property",
    "Readiness",
    "Side",
    "Stash",
    "StashHistoryEntry",
    "Table",
    "Trail",
    "errors",
]

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
