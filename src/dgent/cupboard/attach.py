"""Attaching a cupboard to a store of its own, and telling the store what to index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dgent.cupboard.builtin import DESCRIPTION
from dgent.cupboard.config import Config
from dgent.cupboard.definition import Defined, Definitions
from dgent.cupboard.record import CRUMB, CRUMB_INDEXES, ROOM, CrumbRecord
from dgent.errors import InputError, StorageError
from dgent.model import path
from dgent.model.schema import Schema
from dgent.system import files
from dgent.universe import universe as universes
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

MAX_INDEXED = 16
"""So many properties are found by their values; each costs every crumb an entry. The rest is looked at."""


class Attaching:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(
        self, cupboard: Cupboard | None, kind: type[Cupboard]
    ) -> Callable[[Config], Awaitable[Cupboard]]:
        async def attach(config: Config) -> Cupboard:
            """Open a store by a configuration and keep the cupboard there."""
            if not isinstance(config, Config):
                raise InputError(f"attach takes a Config, not {type(config).__name__}")
            return await (kind() if cupboard is None else cupboard)._attach(config)

        return attach


async def opened(config: Config) -> Universe:
    """The universe of a configuration, open."""
    place = config.place
    if config.backend != "memory":
        try:
            files.make_folder(str(Path(config.data_dir).expanduser()))
        except OSError as error:
            raise StorageError(f"the folder {config.data_dir} cannot be made: {error.strerror}") from None
    universe = universes.open(**place)
    await universe.open()
    return universe


def declare(universe: Universe, definitions: Definitions, known: frozenset[str]) -> frozenset[str]:
    """Have crumbs found by the values of their properties, and by each one of a list; not by long texts."""
    wanted = [_index_on(defined) for defined in definitions.of("crumb") if defined.id != DESCRIPTION]
    wanted = wanted[:MAX_INDEXED]
    if not known.issuperset(wanted):
        indexes = (*CRUMB_INDEXES, *wanted)
        universe.register(Schema(CRUMB.name, contract=CrumbRecord, indexes=indexes, owner=ROOM))
    return known.union(wanted)


def _index_on(defined: Defined) -> str:
    found = path.text(("properties", defined.id))
    return f"{found}.*" if defined.value_type == "list" else found
