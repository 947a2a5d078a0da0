"""Large states, saved as what changed: a version of the record, and a small record for each step since.

The parts of a version (`universe/parts.py`) are numbered. Each has a patch, and names all that was before it
by a hash, so one that is missing or altered is noticed. A step writes the next number, which must be free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dgent import clock, codec
from dgent.errors import Conflict, VersionConflict
from dgent.flow.keep import Kept, Mark
from dgent.flow.patch import apply_patch, copy_plain, find_patch
from dgent.flow.record import UniverseKeeper
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum, make_fresh, stamp
from dgent.model.query import Query
from dgent.store.backend import Check, Guard, Op, Put, Version
from dgent.store.upkeep import Finding
from dgent.universe import write
from dgent.universe.parts import (
    AGAIN,
    MOST,
    SCHEMA,
    can_have_parts,
    find_parts,
    part_id,
    split_id,
    version_key,
)
from dgent.universe.position import known_seq
from dgent.universe.universe import Universe

State: TypeAlias = dict[str, Any]

SMALL = 8_192  # bytes; a smaller state is written whole, which takes no longer
FEW = 8  # steps of others that are looked for at once
STEP = "step"  # in `extra`: the number of a step, where it is not the record's rev
_NO_TAGS: frozenset[str] = frozenset()


@dataclass
class Held:
    """A state in memory, and what it consists of in the store as of a commit."""

    datum: Datum
    data: State  # of nobody else: states are given to agents as copies
    key: str  # "" for a version that has no parts
    size: int
    seq: int
    number: int = 0
    grown: int = 0
    link: str = ""

    @property
    def step(self) -> int:
        """The number of the newest step."""
        return _step_of(self.datum, self.datum.rev or 0) + self.number

    def has_room(self, raw: bytes) -> bool:
        """Return whether a change is better saved by itself than with all of the state."""
        return bool(self.key) and self.number < MOST and self.grown + len(raw) <= self.size

    def add(self, patch: list[Any], raw: bytes) -> None:
        """Apply a change that is stored."""
        self.data = apply_patch(self.data, patch)
        self.number, self.grown = self.number + 1, self.grown + len(raw)
        self.link = _link(self.link, patch)

    def part(self, number: int) -> str:
        """Return the id of a part of the version."""
        return part_id(self.datum.id, self.key, number)


class DeltaKeeper(UniverseKeeper[State]):
    """Keeps a state that is a dict; a large one as what changed."""

    _held: Held | None = None

    async def load(self) -> Kept[State] | None:
        """Return the state as it is now; only what changed is read, where that is known."""
        held, self._held = self._held, None  # another task that loads meanwhile reads for itself
        if held is None or not await self._catch_up(held):
            held = await self._read()
        self._held = held
        return None if held is None else Kept(copy_plain(held.data), (held, held.number))

    async def _catch_up(self, held: Held) -> bool:
        """Apply steps of others since; False if the state must be read anew."""
        if held.seq == known_seq(self.universe.backend):
            return True
        if not held.key or not self._has_parts():
            return False
        while True:
            seq, number = await self.universe.seq(), held.number
            numbers = range(max(number, 1), number + FEW + 1)
            wanted = [held.datum.id, *map(held.part, numbers)]
            record, *parts = await self.universe.get_many(wanted, raw=True)
            if record is None or record.rev != held.datum.rev or held.number != number:
                return False
            if number:
                last = parts.pop(0)
                if last is None or _link_of(last) != held.link:
                    return False
            new = _follow(held.link, parts[: _count(parts)], number)
            if len(new) < sum(part is not None for part in parts):
                return False  # it is said by who reads everything
            for part in new:
                held.add(part.data["patch"], codec.encode(part.data))
            if len(new) < FEW:
                held.seq = seq
                return True

    async def _read(self) -> Held | None:
        seq = await self.universe.seq() if self._has_parts() else -1
        datum = await self.universe.get(self.id, raw=True)
        if datum is None:
            return None
        found = self.universe.contracts.crystal(datum)
        self.make_kept(found)
        assert isinstance(found, Crystal)
        held = self._hold(datum, copy_plain(found.value), seq)
        for part in await self._read_parts(held) if held.key else ():
            held.add(part.data["patch"], codec.encode(part.data))
        return held

    async def _read_parts(self, held: Held) -> list[Datum]:
        """Return the parts in their order; raises Conflict if one is missing or altered."""
        # All of one moment: read in pieces, what others add meanwhile would look like a gap.
        found = await self.universe.get_many([*map(held.part, range(1, MOST + 1))], raw=True)
        parts = [each for each in found if each is not None]
        if len(_follow(held.key, parts)) < len(parts):
            raise Conflict(
                f"a step of the state {self.name!r} was removed or altered, and later ones build on it",
                hint="undo that, or go on from an earlier step: history() lists them, resume(rev) does it",
                id=self.id,
            )
        return parts

    def _has_parts(self) -> bool:
        """Return whether this store can be asked what changed since: not one that may be unavailable."""
        return not hasattr(self.universe.backend, "degradation") and can_have_parts(self.id)

    def _hold(self, datum: Datum, data: State, seq: int) -> Held:
        raw = codec.encode(data)
        key = version_key(datum) if len(raw) >= SMALL and can_have_parts(self.id) else ""
        return Held(datum, data, key, len(raw), seq, link=key)

    # -- saving -----------------------------------------------------------------------------

    async def save(self, state: State, kept: Kept[State] | None, mark: Mark | None = None) -> None:
        """Write what changed, and the mark with it: both or neither."""
        if kept is None:
            await self.create(state, mark)
            return
        held, number = kept.held
        self._held = None  # until it is known what is stored: a commit may fail, or be cancelled
        if held.number != number:  # another task of this program looked, and found a newer state
            raise VersionConflict(f"the state {self.name!r} was changed meanwhile", id=self.id)
        try:
            done = await self._save(state, held, mark)
        except VersionConflict:
            self._held = held  # as it was: the next look catches up
            raise
        self._held = done

    async def _save(self, state: State, held: Held, mark: Mark | None) -> Held | None:
        if type(state) is not dict:
            self.schema.shape.settle(state)  # raises: it is not a state of this type
        patch = find_patch(held.data, state)
        if patch is None:
            if mark is not None:
                held.seq = (await self.commit(self._checks(held), mark)).seq or 0
        elif self._has_parts() and held.has_room(raw := codec.encode({"after": held.link, "patch": patch})):
            return await self._save_part(held, patch, raw, mark)
        else:
            datum = _with_step(held.datum, held.step + 1).replace(data=codec.plain(state))
            held = await self._save_whole(datum, held.datum.rev or 0, self._checks(held)[1:], mark)
        return held

    async def create(self, state: State, mark: Mark | None = None, parent: str | None = None) -> None:
        """Write a state that was not there."""
        self._held = None
        contracts = self.universe.contracts
        datum, _ = write.new_datum(contracts, state, schema=self.schema, id=self.id, parent=parent)
        self._held = await self._save_whole(datum, 0, [], mark)

    async def overwrite(self, state: State) -> None:
        """Write a state whatever was written since it was loaded."""
        self._held = None
        found = await self.universe.get(self.id, raw=True)
        if found is None:
            await self.create(state)
            return
        data, _ = self.schema.shape.settle(state)
        datum = _with_step(found, (await self.history(1))[0].rev + 1).replace(
            data=data, schema=self.schema.name, schema_version=self.schema.version
        )
        self._held = await self._save_whole(datum, found.rev, [], None)

    async def _save_part(self, held: Held, patch: list[Any], raw: bytes, mark: Mark | None) -> Held | None:
        number, author = held.number, self.universe.author
        data = {"after": held.link, "patch": patch}
        datum = make_fresh(held.part(number + 1), clock.now_us(), data, _NO_TAGS, author, SCHEMA, 1)
        named = {held.datum.id, held.part(number)} if number else {held.datum.id}
        done = await self.commit([Put(datum, 0, None, True, raw)], mark, Guard(held.seq, frozenset(named)))
        if held.number != number:
            return None  # another task caught up with this very step
        held.add(copy_plain(patch), raw)
        held.seq = done.seq or 0
        return held

    async def _save_whole(self, datum: Datum, rev: int, checks: Sequence[Op], mark: Mark | None) -> Held:
        held = self._hold(datum, datum.data, 0)
        if held.key and await self.universe.get(held.part(1), raw=True) is not None:
            # The same state was there before, and its parts must not become parts of this version.
            datum = datum.replace(extra={**(datum.extra or {}), AGAIN: await self.universe.seq()})
            held = self._hold(datum, datum.data, 0)
        done = await self.commit([Put(datum, rev, None, True), *checks], mark)
        written = done.written[0]
        held.datum = stamp(datum, written.rev, written.seq, written.at_us, self.universe.author)
        held.data, held.seq = copy_plain(datum.data), done.seq or 0
        return held

    def _checks(self, held: Held) -> list[Op]:
        """Return the ops that have a commit fail unless the state is as it was loaded."""
        checks: list[Op] = [Check(held.datum.id, held.datum.rev)]
        if held.key:
            checks.append(Check(held.part(held.number + 1), 0))
        if held.number:
            checks.append(Check(held.part(held.number)))
        return checks

    # -- earlier steps ----------------------------------------------------------------------

    async def history(self, limit: int | None = None) -> list[Version]:
        """Return the state after each step, newest first."""
        parts = await find_parts(self.universe, self.id)
        if not parts:
            versions = await super().history(limit)
            return [_number(version, _step_of(version.datum, version.rev)) for version in versions]
        return _join(await super().history(), parts)[:limit]


async def inspect_states(universe: Universe) -> list[Finding]:
    """Look for states that cannot be loaded since a step of theirs is missing or altered."""
    parts: dict[tuple[str, str], list[Datum]] = defaultdict(list)
    async for part in universe.iterate(Query(schema=SCHEMA, limit=None), raw=True):
        parts[split_id(part.id)].append(part)
    broken: list[str] = []
    for (id, key), found in sorted(parts.items()):
        record = await universe.get(id, raw=True)
        if record is None or version_key(record) != key:
            continue  # of an earlier version
        if len(_follow(key, sorted(found, key=_place))) < len(found):
            broken.append(id)
    if broken:
        names = ", ".join(broken[:10])
        message = f"{len(broken)} states cannot be loaded, because a step of theirs is missing: {names}"
        return [Finding("problem", "flow", message, "go on from an earlier step with resume(rev)")]
    return [Finding("ok", "flow", "the steps of large states follow one another")] if parts else []


async def read_whole(universe: Universe, id: str) -> Datum | None:
    """Return the record of a state with the data of its newest step; None if there is none."""
    record: Datum | None = await universe.get(id, raw=True)
    if record is None:
        return None
    key, data = version_key(record), copy_plain(record.data)
    found = await universe.get_many([part_id(id, key, number) for number in range(1, MOST + 1)], raw=True)
    for part in _follow(key, [each for each in found if each is not None]):
        data = apply_patch(data, copy_plain(part.data["patch"]))
    return record.replace(data=data, extra=None)


def _join(versions: Iterable[Version], parts: Iterable[Datum]) -> list[Version]:
    """Return versions of a record and the steps on each of them, newest first."""
    by_key: dict[str, list[Datum]] = defaultdict(list)
    for part in parts:
        by_key[split_id(part.id)[1]].append(part)
    ordered = sorted(versions, key=lambda version: version.seq)
    ends = [version.seq for version in ordered[1:]]
    steps: list[Version] = []
    for version, end in zip(ordered, [*ends, None], strict=True):
        number = max(_step_of(version.datum, version.rev), steps[-1].rev + 1 if steps else 1)
        datum = version.datum
        if datum is None:
            steps.append(_number(version, number))
            continue
        key = version_key(datum)
        chain = _follow(key, sorted(by_key.get(key, ()), key=_place))
        data = copy_plain(datum.data)
        early = [part for part in chain if (part.seq or 0) <= version.seq]  # an undo came back to these
        for part in early:
            data = apply_patch(data, copy_plain(part.data["patch"]))
        steps.append(_number(version, number, datum.replace(data=copy_plain(data))))
        for part in chain[len(early) :]:
            if end is not None and (part.seq or 0) >= end:
                break
            data = apply_patch(data, copy_plain(part.data["patch"]))
            steps.append(_version(steps[-1], part, copy_plain(data)))
    return steps[::-1]


def _version(before: Version, part: Datum, data: State) -> Version:
    assert before.datum is not None and part.seq is not None and part.updated_at is not None
    rev = before.rev + 1
    datum = before.datum.replace(
        data=data, rev=rev, seq=part.seq, updated_at=part.updated_at, author=part.author
    )
    return Version(before.id, rev, part.seq, part.updated_at, "put", datum, part.author)


def _number(version: Version, step: int, datum: Datum | None = None) -> Version:
    if datum is None and version.rev == step:
        return version
    datum = datum or version.datum
    numbered = None if datum is None else datum.replace(rev=step)
    return Version(
        version.id, step, version.seq, version.at, version.op, numbered, version.author, version.note
    )


def _count(parts: Sequence[Datum | None]) -> int:
    """Return how many parts are there before the first that is missing."""
    return next((number for number, part in enumerate(parts) if part is None), len(parts))


def _follow(link: str, parts: Iterable[Datum], after: int = 0) -> list[Datum]:
    """Return the parts that follow one another, as far as none is missing or altered."""
    chain: list[Datum] = []
    for number, part in enumerate(parts, after + 1):
        if _place(part) != number or part.data.get("after") != link or "patch" not in part.data:
            break
        chain.append(part)
        link = _link_of(part)
    return chain


def _link_of(part: Datum) -> str:
    return _link(str(part.data.get("after")), part.data.get("patch"))


def _link(before: str, patch: Any) -> str:
    return codec.blake2b(codec.canonical(patch), size=8, key=before.encode()[:64]).hexdigest()


def _place(part: Datum) -> int:
    number = part.id.rpartition(".")[2]
    return int(number) if number.isdigit() else 0


def _with_step(datum: Datum, step: int) -> Datum:
    """Return a datum for the record's next version, which says which step it is if that is not its rev."""
    extra = {key: value for key, value in (datum.extra or {}).items() if key not in (STEP, AGAIN)}
    if step != (datum.rev or 0) + 1:
        extra[STEP] = step
    return datum.replace(extra=extra or None)


def _step_of(datum: Datum | None, rev: int) -> int:
    step = None if datum is None else (datum.extra or {}).get(STEP)
    return step if type(step) is int else rev
