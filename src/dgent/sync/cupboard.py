"""The cupboard for code without an event loop: `from dgent.sync.cupboard import Cupboard`.

The same names as in `dgent.cupboard`; `Cupboard` and the tables block until they are answered.
"""

from __future__ import annotations

import contextlib
from typing import Any

from dgent.cupboard import (
    Audit,
    Category,
    Comparison,
    Config,
    Crumb,
    Edge,
    Ended,
    Finding,
    Graph,
    Link,
    Metadata,
    MetadataSchema,
    Node,
    Property,
    Readiness,
    Side,
    Stash,
    StashHistoryEntry,
    Trail,
    errors,
)
from dgent.cupboard import cupboard as cupboards
from dgent.cupboard.tables import crumb, link, metadata, property, stash, table, trail
from dgent.errors import Closed, DgentError, InputError
from dgent.sync.call import BlockingCall
from dgent.sync.home import LoopHome
from dgent.sync.twin import Twin, copy_signature, make_twin
from dgent.sync.universe import Universe

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


class Own(LoopHome):
    """The home of a cupboard that opens its own store: closed while it is not attached."""

    def __init__(self, cupboard: cupboards.Cupboard) -> None:
        super().__init__(None)
        self._cupboard = cupboard
        self._closed = True

    def attach(self, config: Config) -> None:
        """Attach the cupboard; a second caller waits for the first."""
        self.runner.check()
        with self._closing:
            BlockingCall(self.runner).run(self._attach, config)

    async def _attach(self, config: Config) -> None:
        await self._cupboard.attach(config)
        self._closed = False
        self.close_at_exit()

    async def _close_store(self) -> None:
        await self._cupboard.detach()

    def _closed_error(self) -> DgentError:
        return errors.Detached("the cupboard is not attached")


class AttachMethod:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(self, twin: Twin | None, kind: type[Twin]) -> Any:
        def attach(config: Config) -> Any:
            cupboard = kind() if twin is None else twin
            own = cupboard._home if isinstance(cupboard._home, Own) else Own(cupboard._source)
            own.attach(config)
            cupboard._home = own
            return cupboard

        return copy_signature(attach, cupboards.Cupboard.attach, "Cupboard.attach", __name__)


def _init(self: Twin, universe: Any = None) -> None:
    if universe is not None and not isinstance(universe, Universe):
        raise InputError(
            f"this Cupboard takes a universe of dgent.sync, not a {type(universe).__name__}",
            hint="with dgent.open use dgent.cupboard",
        )
    self._source = cupboards.Cupboard(None if universe is None else universe._source)
    self._home = Own(self._source) if universe is None else universe._home


def _detach(self: Twin) -> None:
    if isinstance(self._home, Own):
        self._home.close()
        return
    with contextlib.suppress(Closed):  # closing the universe has detached it, too
        self._home.begin().run(self._source.detach)


def _exit(self: Any, *_error: Any) -> None:
    self.detach()


def _twin(source: type) -> Any:
    return make_twin(source, module=__name__)


Table = _twin(table.Table)
Crumbs = _twin(crumb.Crumbs)
Trails = _twin(trail.Trails)
Properties = _twin(property.Properties)
Categories = _twin(property.Categories)
Links = _twin(link.Links)
Stashes = _twin(stash.Stashes)
Metadatas = _twin(metadata.Metadatas)
MetadataSchemas = _twin(metadata.MetadataSchemas)
Cupboard = make_twin(
    cupboards.Cupboard,
    # It must know when a store of its own opens and closes; everything else follows from the class.
    instead={"__init__": _init, "attach": AttachMethod(), "detach": _detach, "__aexit__": _exit},
    module=__name__,
)
