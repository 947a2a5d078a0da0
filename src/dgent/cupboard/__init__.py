"""Work items that an agent can back out of: crumbs on trails that are completed or abandoned."""

from dgent.cupboard import errors
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
