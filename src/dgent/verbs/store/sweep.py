"""The verb that deletes expired records now."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dgent.errors import Denied, InputError
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, option, verb


class SweepStore(Ask):
    """Input of `store.sweep`."""

    limit: Annotated[int | None, option("at most so many", short="n")] = None


class Swept(msgspec.Struct, frozen=True):
    """The number of records that had expired and were deleted."""

    records: int


@verb("store.sweep", effect="destroy", errors=(InputError, Denied))
async def sweep(context: Context, ask: SweepStore) -> Swept:
    """Delete the records that have expired, which no read shows any more."""
    return Swept(await (await context.universe()).sweep(ask.limit))
