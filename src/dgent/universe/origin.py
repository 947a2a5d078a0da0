"""The origin of a record: the trust of those whose words it was made from.

`find_origins` decides it, and doors draw what it says. A record says by its `source` where it came from, a
message by its trust. What is made of several records, as a block is of its versions, has marks beside it
(`dgent.origin/<trust>/<id>`), which stay until a partner vouches for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.errors import InputError
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.backend import Delete
from dgent.universe.gate import TRUSTS, Gate, Trust

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

ORIGIN = "dgent.origin"  # the schema of marks, and the beginning of their ids
MAX_PLACE = 500  # characters of a place that are kept
_MARK = "origin:"


class Origin(NamedTuple):
    """The class of what a record came from, and the place where that was; empty for the agent itself."""

    trust: Trust
    place: str = ""


def check_trust(trust: object) -> Trust:
    """Return a trust; raises InputError for anything else."""
    if not isinstance(trust, str) or trust not in TRUSTS:
        raise InputError(
            f"{trust!r:.60} is not a valid trust", hint=f"use one of {', '.join(TRUSTS)}", field="trust"
        )
    return trust


def lowest_trust(*trusts: Any) -> Trust:
    """Return the least of some trusts."""
    return TRUSTS[max(map(TRUSTS.index, trusts))]


def write_source(trust: str, place: str = "") -> str | None:
    """Return the `source` of a record that is written at a trust; None where a partner vouches for it.

    `write_source("untrusted", "https://example.org")` is `origin:untrusted https://example.org`.
    """
    if check_trust(trust) == "partner":
        return None
    said = " ".join(place.split())[:MAX_PLACE]
    return f"{_MARK}{trust} {said}".rstrip()


def read_source(source: str | None) -> Origin:
    """Return the origin that a record's `source` names; any other source is the partner's own word."""
    if source is None or not source.startswith(_MARK):
        return Origin("partner")
    trust, _, place = source.removeprefix(_MARK).partition(" ")
    try:
        return Origin(check_trust(trust), place)
    except InputError:
        return Origin("untrusted", place)  # a class that this version does not know is not believed


def lower_source(source: str | None, trust: str, place: str = "") -> str | None:
    """Return the source of a record that is written at a trust: never one that claims more than that.

    A source that was given becomes the place, where there is no other.
    """
    before = read_source(source)
    if lowest_trust(before.trust, trust) != trust or trust == "partner":
        return source
    marked = source is not None and source.startswith(_MARK)
    return write_source(trust, place or (before.place if marked else source or ""))


def whole_of(datum: Datum) -> str | None:
    """Return the id of the thing that a record is a part of; None for a record that stands for itself."""
    if reserved.OWNERS.get(datum.schema or "") != "blocks" or datum.schema in reserved.SINGLE:
        return None
    return datum.id.partition("/")[0]


def read_origin(datum: Datum) -> Trust:
    """Return the trust that a record names itself, as it is in this version of it."""
    said: Trust = read_source(datum.source).trust
    if reserved.OWNERS.get(datum.schema or "") == "messages":  # which have a trust of their own
        own = datum.data.get("trust", "partner")
        said = lowest_trust(said, own if own in TRUSTS else "untrusted")
    return said


async def find_origins(universe: Universe, datums: Sequence[Datum]) -> list[Trust]:
    """Return the class of origin of each of some records, whoever asks; that of a part is its whole's."""
    wholes = [whole_of(each) for each in datums]
    marked = await find_marks(universe, dict.fromkeys(each for each in wholes if each is not None))
    return [
        read_origin(each) if whole is None else marked.get(whole, "partner")
        for each, whole in zip(datums, wholes, strict=True)
    ]


# -- marks beside what is made of several records ---------------------------------------------------


def mark_id(id: str, trust: str) -> str:
    """Return the id of the record which says that something was written to at a trust."""
    return f"{ORIGIN}/{trust}/{id}"


async def find_marks(universe: Universe, ids: Iterable[str]) -> dict[str, Trust]:
    """Return the lowest trust at which each of some things was written to; not those of partners alone."""
    wanted = [(id, trust) for id in ids for trust in TRUSTS[:0:-1]]
    if not wanted:
        return {}
    # Marks are not for principals to read, yet each may know them of what it sees.
    source = universe.backend.universe if isinstance(universe.backend, Gate) else universe.present()
    found = await source.get_many([mark_id(*each) for each in wanted], raw=True, partial=True)
    lowest: dict[str, Trust] = {}
    for (id, trust), datum in zip(wanted, found, strict=True):
        if datum is not None:
            lowest.setdefault(id, trust)
    return lowest


async def drop_marks(universe: Universe, id: str) -> None:
    """Forget at which trust something was written to: somebody vouches for it as it is now."""
    await universe.commit([Delete(mark_id(id, trust)) for trust in TRUSTS[1:]], note=f"vouch for {id}")
