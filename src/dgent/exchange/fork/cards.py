"""Cards of blocks three ways: field by field, with a label that is free and a deletion that loses no work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from dgent import ids
from dgent.blocks.access import Card, Reader
from dgent.blocks.overlong import OVER_LIMIT
from dgent.blocks.record import BLOCK, BlockRecord
from dgent.exchange.fork.report import ForkClash
from dgent.model.query import Query

NAMES = tuple(each.name for each in fields(BlockRecord))


Planned = Mapping[str, BlockRecord]
"""Cards as they would be by now, if this were not only a trial."""


class Settled(NamedTuple):
    """A card as it shall be, and what could not be decided."""

    value: BlockRecord
    clashes: list[ForkClash]


async def settle(
    reader: Reader,
    card: Card,
    base: dict[str, Any],
    theirs: dict[str, Any],
    *,
    changed_here: bool,
    changed_there: bool,
    planned: Planned,
) -> Settled:
    """The card here with what the fork did to it; `changed_…` says whether a side edited the document."""
    ours = {name: getattr(card.value, name) for name in NAMES}
    clashes: list[ForkClash] = []
    made: dict[str, Any] = {}
    for name in NAMES:
        before, there, here = base.get(name), theirs.get(name, ours[name]), ours[name]
        if name == "extra":
            made[name] = _merged_extra(before or {}, there or {}, here or {})
        elif name == "active":
            made[name] = there if here == before else here
        elif there in (before, here):
            made[name] = here
        elif here == before:
            made[name] = there
        else:
            made[name] = here
            what = f"{name} changed on both sides"
            clashes.append(ForkClash(card.id, BLOCK.name, what, theirs={name: there}))
    edited_here = changed_here or _differs(base, ours)
    edited_there = changed_there or _differs(base, theirs)
    if base.get("active") and not theirs.get("active") and card.value.active and edited_here:
        made["active"] = True
        clashes.append(ForkClash(card.id, BLOCK.name, "deleted in the fork, changed here", made["label"]))
    if base.get("active") and theirs.get("active") and not card.value.active and edited_there:
        made["active"] = True
        clashes.append(ForkClash(card.id, BLOCK.name, "deleted here, changed in the fork", made["label"]))
    value = replace(card.value, **made)
    if value.active and (value.label != card.value.label or not card.value.active):
        label = await free_label(reader, value.owner, value.label, card.id, planned)
        if label != value.label:
            clashes.append(taken(card.id, value, label))
            value = replace(value, label=label)
    return Settled(value, clashes)


def taken(id: str, value: BlockRecord, label: str) -> ForkClash:
    """That another block has the label here."""
    return ForkClash(id, BLOCK.name, f"another block of {value.owner} has the label {value.label!r}", label)


async def free_label(reader: Reader, owner: str, label: str, id: str, planned: Planned) -> str:
    """A label that no other block of an owner has: this one, or one like it."""
    where = {"owner": owner, "active": True}
    cards = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
    used = {card.value.label for card in cards if card.id != id and card.id not in planned}
    used |= {each.label for other, each in planned.items() if _has(each, owner) and other != id}
    if label not in used:
        return label
    stem = label.encode()[: ids.MAX_NAME_BYTES - 16].decode(errors="ignore")
    names = (f"{stem}-fork" if step == 1 else f"{stem}-fork-{step}" for step in range(1, len(used) + 2))
    return next(name for name in names if name not in used)


def _has(card: BlockRecord, owner: str) -> bool:
    return card.active and card.owner == owner


def _differs(base: dict[str, Any], side: dict[str, Any]) -> bool:
    """Whether a side did more to a card than delete it."""
    return any(base.get(name) != side.get(name) for name in NAMES if name not in ("active", "extra"))


def _merged_extra(base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What else a card keeps, key by key; what both changed is as it is here."""
    made: dict[str, Any] = {}
    for key in {**ours, **theirs}:
        before, there, here = base.get(key), theirs.get(key), ours.get(key)
        chosen = here if key == OVER_LIMIT or here != before else there
        if chosen is not None:
            made[key] = chosen
    return made
