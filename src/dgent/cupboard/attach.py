"""Attach a cupboard to a store that it opens itself, and declare its indexes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dgent.cupboard.builtin import DESCRIPTION
from dgent.cupboard.config import Config
from dgent.cupboard.definition import Definition, Definitions
from dgent.cupboard.record import CRUMB, CRUMB_INDEXES
from dgent.errors import InputError, StorageError
from dgent.model import path
from dgent.system import files
from dgent.universe import universe as universes
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

MAX_INDEXED = 16
"""The most properties that are indexed: each costs every crumb an index entry. Others are scanned."""


class AttachMethod:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(
        self, cupboard: Cupboard | None, kind: type[Cupboard]
    ) -> Callable[[Config], Awaitable[Cupboard]]:
        async def attach(config: Config) -> Cupboard:
            """Open the store of a configuration and attach the cupboard to it."""
            if not isinstance(config, Config):
                raise InputError(f"expected a Config to attach, got {type(config).__name__}")
            return await (kind() if cupboard is None else cupboard)._attach(config)

        return attach


async def open_universe(config: Config) -> Universe:
    """Open the universe of a configuration."""
    place = config.place
    if config.backend != "memory":
        try:
            files.make_folder(str(Path(config.data_dir).expanduser()))
        except OSError as error:
            raise StorageError(f"the folder {config.data_dir} cannot be made: {error.strerror}") from None
    universe = universes.open(**place)
    await universe.open()
    return universe


def declare_indexes(universe: Universe, definitions: Definitions, known: frozenset[str]) -> frozenset[str]:
    """Index crumbs by the values of their properties and by each item of a list, but not by descriptions."""
    wanted = [_index_on(definition) for definition in definitions.of("crumb") if definition.id != DESCRIPTION]
    wanted = wanted[:MAX_INDEXED]
    if not known.issuperset(wanted):
        indexes = (*CRUMB_INDEXES, *wanted)
        universe.register(replace(CRUMB, indexes=indexes))
    return known.union(wanted)


def _index_on(definition: Definition) -> str:
    found = path.text(("properties", definition.id))
    return f"{found}.*" if definition.value_type == "list" else found
