"""Filters of a merge: the blocks and records that it considers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dgent.blocks.record import AGENT, ARCHIVE_SHARE, BLOCK, CHECKPOINT, ENTRY, SHARE
from dgent.errors import InputError, NotFound
from dgent.exchange.fork.baseline import EVERYTHING, Base, BaseEntry, hash_record
from dgent.exchange.fork.origin import Origin
from dgent.exchange.fork.selection import ROSTER
from dgent.model.datum import Datum
from dgent.universe.universe import Universe

OF_BLOCKS = frozenset((CHECKPOINT.name, SHARE.name))


class MergeFilter:
    """Everything, or only the blocks of some labels and agents with their checkpoints and shares.

    A label also stands for the folder of that name. Agents without labels bring their archival entries, too.
    """

    def __init__(self, labels: Sequence[str] = (), agents: Sequence[str] = ()) -> None:
        for name, given in (("labels", labels), ("agents", agents)):
            if isinstance(given, str):
                raise InputError(f"expected a list for {name!r}, got {given!r}", field=name)
        self._labels = tuple(each.rstrip("/") for each in labels)
        self._agents = frozenset(agents)
        self._blocks: set[str] = set()
        self._owners: set[str] = set(agents)

    async def prepare(self, source: Universe, target: Universe, base: Base) -> None:
        """Find the blocks that the filter is about, on both sides; raises NotFound where there are none."""
        if not self._is_narrow:
            return
        for universe in (source, target):
            async for card in universe.iterate(EVERYTHING.replace(schema=BLOCK.name), raw=True):
                if self._names(card.data):
                    self._blocks.add(card.id)
        self._blocks |= {id for id, each in base.items() if each.card is not None and self._names(each.card)}
        if self._labels and not self._blocks:
            whose = f" of {', '.join(sorted(self._agents))}" if self._agents else ""
            raise NotFound(f"no block{whose} has the label {', '.join(self._labels)!r} on either side")

    @property
    def _is_narrow(self) -> bool:
        return bool(self._labels or self._agents)

    def _names(self, card: dict[str, object]) -> bool:
        label, owner = str(card.get("label", "")), str(card.get("owner", ""))
        if self._agents and owner not in self._agents:
            return False
        fits = any(label == each or label.startswith(f"{each}/") for each in self._labels)
        if fits:
            self._owners.add(owner)
        return fits or not self._labels

    def wants(self, datum: Datum) -> bool:
        """Check whether a record of the source is considered."""
        if not self._is_narrow:
            return True
        if datum.schema == BLOCK.name:
            return datum.id in self._blocks
        if datum.schema in OF_BLOCKS:
            return datum.data.get("block") in self._blocks
        if datum.schema == AGENT.name:
            return datum.data.get("name") in self._owners
        named = {ENTRY.name: "agent", ARCHIVE_SHARE.name: "owner"}.get(datum.schema or "")
        return named is not None and not self._labels and datum.data.get(named) in self._agents

    def wants_deleted(self, id: str, was: BaseEntry) -> bool:
        """Check whether a record that the source does not have any more is considered."""
        if not self._is_narrow:
            return True
        return was.schema in (BLOCK.name, *OF_BLOCKS) and id.split("/", 1)[0] in self._blocks


class PullFilter(MergeFilter):
    """A filter that also keeps a fork within its scope: one of core blocks gets no other records.

    `made` is the base of the source if that is a fork itself: then its commits are not those of home.
    """

    def __init__(
        self, scope: Origin, made: Base | None, labels: Sequence[str] = (), agents: Sequence[str] = ()
    ) -> None:
        super().__init__(labels, agents)
        self._scope, self._made = scope, made
        self._known: Collection[str] = ()
        self._core: set[str] = set()

    async def prepare(self, source: Universe, target: Universe, base: Base) -> None:
        """Find the blocks that the filter is about, on both sides."""
        await super().prepare(source, target, base)
        self._known = base.keys()
        if self._scope.scope == "core":
            query = EVERYTHING.replace(schema=BLOCK.name, where={"kind": "core", "active": True})
            self._core = {card.id async for card in source.iterate(query, raw=True)}

    def wants(self, datum: Datum) -> bool:
        """Check whether a record of the source is considered."""
        if not super().wants(datum):
            return False
        if self._is_narrow or self._scope.scope == "all" or datum.id in self._known:
            return True
        if datum.schema in ROSTER:
            return True
        if self._scope.scope == "core":
            block = datum.data.get("block") if datum.schema in OF_BLOCKS else datum.id
            return block in self._core or block in self._known
        if self._made is not None:
            was = self._made.get(datum.id)
            return was is None or was.fingerprint != hash_record(datum)
        return (datum.seq or 0) > self._scope.after
