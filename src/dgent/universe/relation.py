"""Relations between records: causes, references and associations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import codec, ids
from dgent.errors import InputError, NotFound, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import LIVE, Backend, Check, Op, Put
from dgent.store.engine.check import check_limit
from dgent.universe import write
from dgent.universe.gate import Gate

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

MAX_CHAIN = 100_000


@dataclass(frozen=True)
class Association:
    """An untyped link between two records."""

    a: str
    b: str
    kind: str
    weight: float = 1.0

    def other(self, id: str) -> str:
        """Return the end of the link that is not this id."""
        return self.b if id == self.a else self.a


ASSOCIATION = Schema("dgent.association", contract=Association, indexes=("a", "b"))


class Resolved(msgspec.Struct, frozen=True):
    """The records that a record's refs lead to, by path, and the refs that lead nowhere."""

    found: dict[str, Any]
    dangling: dict[str, str]


async def causal_chain(universe: Universe, source: Backend, id: str, limit: int | None) -> list[Any]:
    """Return the record and its causes, oldest first; with a limit, the nearest causes."""
    check_limit(limit)
    most = MAX_CHAIN if limit is None else min(limit, MAX_CHAIN)
    adapters = universe._life.adapters
    # Rows have no gate and no past: they are for those who may run SQL, now.
    if adapters is not None and universe.past is None and not isinstance(universe.backend, Gate):
        from dgent.universe.adapters import follow_chain  # loads when it is used

        nearest_first = await follow_chain(adapters, source, ids.check_id(id), most)
    else:
        nearest_first = await source.ancestors(ids.check_id(id), most)
    return [universe.contracts.lenient(datum) for datum in reversed(nearest_first)]


async def resolve(universe: Universe, crystal: Crystal[Any]) -> Resolved:
    """Load everything a crystal refers to in one batch."""
    if not isinstance(crystal, Crystal):
        raise InputError(f"resolve takes a Crystal, not {type(crystal).__name__}")
    schema = universe.contracts.by_name(crystal.schema_name)
    if schema is None:
        raise InputError(f"the schema {crystal.schema_name!r} is not registered here")
    refs = schema.refs(schema.encode(crystal.value))
    wanted = list(dict.fromkeys(id for _, id in refs))
    loaded = dict(zip(wanted, await universe.backend.get_many(wanted), strict=True))
    found, dangling = {}, {}
    for path, id in refs:
        datum = loaded[id]
        if datum is None:
            dangling[path] = id
        else:
            found[path] = universe.contracts.lenient(datum)
    return Resolved(found, dangling)


def association_id(a: Any, b: Any, kind: str) -> str:
    """Return the id of the link of a kind from one record to another; the same for every writer."""
    ends = ids.check_id(write.id_of(a), "a"), ids.check_id(write.id_of(b), "b")
    text = "\0".join((*ends, ids.check_name(kind, "kind")))
    return codec.blake2b(text.encode(), size=16).hexdigest()


async def associate(universe: Universe, a: Any, b: Any, kind: str, weight: float) -> Crystal[Association]:
    """Link two records, or change the weight of their link; both must exist."""
    id = association_id(a, b, kind)
    if type(weight) not in (int, float):
        raise InputError(f"weight must be a number, not {type(weight).__name__}", field="weight")
    universe.register(ASSOCIATION)
    link = Association(str(write.id_of(a)), str(write.id_of(b)), kind, float(weight))
    datum, value = write.new_datum(universe.contracts, link, id=id, author=universe.author)
    checks: list[Op] = [Check(end, LIVE) for end in dict.fromkeys((link.a, link.b))]
    try:
        done = await universe.commit([*checks, Put(datum, None, None, True)])
    except VersionConflict as error:
        raise NotFound(f"{error.details['id']!r} does not exist, so it cannot be linked") from None
    (datum,) = await write.apply_written(universe.backend, (datum,), done, universe.author)
    return Crystal(datum, value, ASSOCIATION.name, ASSOCIATION.version)


async def list_associations(universe: Universe, id: Any, kind: str | None) -> list[Crystal[Association]]:
    """Return the links of a record at either end, heaviest first."""
    wanted = ids.check_id(write.id_of(id))
    universe.register(ASSOCIATION)
    links: dict[str, Crystal[Association]] = {}
    for end in ("a", "b"):
        where: dict[str, Any] = {end: wanted} if kind is None else {end: wanted, "kind": kind}
        for link in await universe.recall(Query(schema=ASSOCIATION.name, where=where, limit=None)):
            links[link.id] = link
    return sorted(links.values(), key=lambda link: (-link.value.weight, link.id))
