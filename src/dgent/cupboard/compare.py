"""Compare two trails: crumbs by state, properties, stashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.record import CRUMB, LINK, STASH
from dgent.cupboard.tables.crumb import Crumb
from dgent.cupboard.tables.stash import Stash
from dgent.cupboard.tables.trail import Trail
from dgent.errors import HistoryGone
from dgent.model.crystal import Crystal
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard


@dataclass(frozen=True)
class Side:
    """A trail as it is, or as it was when it ended.

    `known` is False when retention removed the history of an abandoned trail, so that its crumbs and stashes
    are no longer known.
    """

    trail: Trail
    crumbs: tuple[Crumb, ...]
    stashes: tuple[Stash, ...]
    branches_from: str | None = None
    known: bool = True

    @property
    def by_state(self) -> dict[str, list[Crumb]]:
        """Its crumbs by their states, oldest first."""
        found: dict[str, list[Crumb]] = {state: [] for state in CRUMB_STATES}
        for crumb in self.crumbs:
            found[crumb.state].append(crumb)
        return found

    @property
    def counts(self) -> dict[str, int]:
        """The number of its crumbs in each state."""
        return {state: len(crumbs) for state, crumbs in self.by_state.items()}


@dataclass(frozen=True)
class Comparison:
    """Two trails side by side."""

    a: Side
    b: Side

    @property
    def properties(self) -> dict[str, tuple[Any, Any]]:
        """The values of each property of trails, by its name."""
        left, right = self.a.trail.readable(), self.b.trail.readable()
        return {name: (left.get(name), right.get(name)) for name in {**left, **right}}

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """The properties in which they differ."""
        return {name: pair for name, pair in self.properties.items() if pair[0] != pair[1]}

    @property
    def stashes(self) -> dict[str, tuple[Any, Any]]:
        """The values of their stashes by name; None where one has none."""
        left = {stash.name: stash.value for stash in self.a.stashes}
        right = {stash.name: stash.value for stash in self.b.stashes}
        return {name: (left.get(name), right.get(name)) for name in {**left, **right}}


async def load_side(cupboard: Cupboard, trail: Trail) -> Side:
    """Load the crumbs and stashes of a trail; of an ended trail, those it had when it ended."""
    await cupboard._ready()
    if trail.state == "abandoned":
        try:
            return await _load_linked(cupboard, trail, await _find_seq_before_end(cupboard, trail))
        except HistoryGone:
            return Side(trail, (), (), known=False)
    now = await _load_linked(cupboard, trail, None)
    if trail.state != "completed":
        return now
    kept = await cupboard._universe.get_many(list(trail.crumbs))
    crumbs = {each.id: each for each in (*now.crumbs, *_build_entities(cupboard.crumbs, CRUMB.name, kept))}
    return Side(trail, tuple(crumbs.values()), now.stashes, now.branches_from)


async def _find_seq_before_end(cupboard: Cupboard, trail: Trail) -> int:
    """Return the last commit before the one that abandoned a trail; raises HistoryGone."""
    ended: int | None = None
    for version in await cupboard._universe.history(trail.id):  # newest first
        state = None if version.datum is None else version.datum.data.get("state")
        if state != "abandoned":
            break
        ended = version.seq
    if ended is None:
        raise HistoryGone(f"the history of {trail.id!r} no longer holds its end")
    return ended - 1


async def _load_linked(cupboard: Cupboard, trail: Trail, as_of: int | None) -> Side:
    """Load a trail with the crumbs and stashes linked to it, as of a commit."""
    universe = cupboard._universe
    ends: dict[str, list[str]] = {"belongs_to": [], "scoped_to": []}
    query = Query(schema=LINK.name, where={"to_id": trail.id}, descending=False, limit=None)
    for link in await universe.recall(query, as_of=as_of):
        if link.value.link_type in ends:
            ends[link.value.link_type].append(link.value.from_id)
    query = Query(schema=LINK.name, tags={"branches_from"}, where={"from_id": trail.id}, limit=1)
    branches = await universe.recall(query, as_of=as_of)
    crumbs = await universe.get_many(ends["belongs_to"], as_of=as_of)
    stashes = await universe.get_many(ends["scoped_to"], as_of=as_of)
    return Side(
        trail,
        _build_entities(cupboard.crumbs, CRUMB.name, crumbs),
        _build_entities(cupboard.stashes, STASH.name, stashes),
        branches[0].value.to_id if branches else None,
    )


def _build_entities(table: Any, schema: str, found: Sequence[Any]) -> tuple[Any, ...]:
    made = [table._build(each) for each in found if isinstance(each, Crystal) and each.schema_name == schema]
    return tuple(sorted(made, key=lambda each: (each.created_at, each.id)))
