"""Merge the headers of blocks field by field, and find labels that are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import msgspec

from dgent import ids
from dgent.blocks.access.actor import Header, Reader
from dgent.blocks.history.join import OVER_LIMIT
from dgent.blocks.record import BLOCK, BlockRecord
from dgent.exchange.fork.report import ForkClash, Side
from dgent.exchange.fork.resolve import OPEN, Resolver
from dgent.model.query import Query

NAMES = tuple(each.name for each in fields(BlockRecord))


Planned = Mapping[str, BlockRecord]
"""Headers as they would be by now if this were no dry run."""


class MergedHeader(NamedTuple):
    """A merged header, and the conflicts of its fields."""

    value: BlockRecord
    clashes: list[ForkClash]

    @property
    def is_open(self) -> bool:
        """True when a conflict in it is not decided."""
        return any(each.choice == OPEN for each in self.clashes)


class HeaderMerge:
    """Merges headers of blocks, three-way and field by field."""

    def __init__(self, resolver: Resolver, side: Side, planned: Planned) -> None:
        self._resolver, self._side, self._planned = resolver, side, planned

    async def merge(
        self,
        reader: Reader,
        card: Header,
        base: dict[str, Any],
        theirs: dict[str, Any],
        *,
        changed_here: bool,
        changed_there: bool,
    ) -> MergedHeader:
        """Merge the other side's header into the one here; `changed_…`: that side edited the document."""
        ours = {name: getattr(card.value, name) for name in NAMES}
        made, clashes = await self._merge_fields(card.id, base, theirs, ours)
        what = _describe_deletion(base, theirs, ours, changed_here, changed_there, self._side.where)
        if what:
            clash = await self._resolve(ForkClash(card.id, BLOCK.name, what, made["label"]))
            kept = {"theirs": bool(theirs.get("active")), "both": True}
            made["active"] = kept.get(clash.choice, ours["active"])
            clashes.append(clash)
        value = replace(card.value, **made)
        if value.active and (value.label != card.value.label or not card.value.active):
            label = await self.find_free_label(reader, value.owner, value.label, card.id)
            if label != value.label:
                clashes.append(make_label_clash(card.id, value, label))
                value = replace(value, label=label)
        return MergedHeader(value, clashes)

    async def _merge_fields(
        self, id: str, base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]
    ) -> tuple[dict[str, Any], list[ForkClash]]:
        """Merge fields one by one; where both sides changed one, ours stays unless `theirs` is chosen."""
        clashes: list[ForkClash] = []
        made: dict[str, Any] = {}
        for name in NAMES:
            before, there, here = base.get(name), theirs.get(name, ours[name]), ours[name]
            if name == "extra":
                made[name] = _merge_extra(before or {}, there or {}, here or {})
            elif name == "active":
                made[name] = there if here == before else here
            elif there in (before, here):
                made[name] = here
            elif here == before:
                made[name] = there
            else:
                what = f"{name} changed on both sides"
                clash = await self._resolve(ForkClash(id, BLOCK.name, what, theirs={name: there}))
                made[name] = there if clash.choice == "theirs" else here
                clashes.append(clash)
        return made, clashes

    async def _resolve(self, clash: ForkClash) -> ForkClash:
        return msgspec.structs.replace(clash, choice=await self._resolver.resolve(clash))

    async def find_free_label(self, reader: Reader, owner: str, label: str, id: str) -> str:
        """Return a label that no other block of an owner has: this one, or it with a suffix."""
        where = {"owner": owner, "active": True}
        cards = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
        used = {card.value.label for card in cards if card.id != id and card.id not in self._planned}
        used |= {
            each.label for other, each in self._planned.items() if _is_active_of(each, owner) and other != id
        }
        if label not in used:
            return label
        stem = label.encode()[: ids.MAX_NAME_BYTES - 16].decode(errors="ignore") + f"-{self._side.suffix}"
        names = (stem if step == 1 else f"{stem}-{step}" for step in range(1, len(used) + 2))
        return next(name for name in names if name not in used)


def make_label_clash(id: str, value: BlockRecord, label: str) -> ForkClash:
    """Return the conflict for a label that another block has here."""
    return ForkClash(id, BLOCK.name, f"another block of {value.owner} has the label {value.label!r}", label)


def _is_active_of(card: BlockRecord, owner: str) -> bool:
    return card.active and card.owner == owner


def _describe_deletion(
    base: dict[str, Any],
    theirs: dict[str, Any],
    ours: dict[str, Any],
    changed_here: bool,
    changed_there: bool,
    where: str,
) -> str:
    """Say which side deleted a block that the other one changed; empty if neither did."""
    if not base.get("active") or bool(theirs.get("active")) == bool(ours["active"]):
        return ""
    if ours["active"]:
        return f"deleted {where}, changed here" if changed_here or _differs(base, ours) else ""
    return f"deleted here, changed {where}" if changed_there or _differs(base, theirs) else ""


def _differs(base: dict[str, Any], change: dict[str, Any]) -> bool:
    """Check whether a side did more to a header than delete it."""
    return any(base.get(name) != change.get(name) for name in NAMES if name not in ("active", "extra"))


def _merge_extra(base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Merge the extra fields of a header key by key; where both changed one, ours wins."""
    made: dict[str, Any] = {}
    for key in {**ours, **theirs}:
        before, there, here = base.get(key), theirs.get(key), ours.get(key)
        chosen = here if key == OVER_LIMIT or here != before else there
        if chosen is not None:
            made[key] = chosen
    return made
