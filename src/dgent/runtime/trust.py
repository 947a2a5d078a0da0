"""Trust by origin: how far a tool call is trusted, and what a record written by it says of its origin.

The trust of a batch is the lowest of what it read. A call that the model makes there has that trust or that
of its caller, whichever is lower, so a page from the web cannot act with the trust of the partner who asked
for it to be read.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from dgent.errors import InputError
from dgent.messages.message import check_trust
from dgent.messages.record import lowest_trust
from dgent.universe.gate import TRUSTS, Principal, Trust

_MARK = "origin:"
MAX_ORIGIN = 500  # characters of a place that are kept


class Origin(NamedTuple):
    """The class of what a record came from, and the place where that was; empty for the agent itself."""

    trust: Trust
    place: str = ""


def combine_trust(first: str, *more: str) -> Trust:
    """Return the lowest of some trusts; raises InputError for what is not a trust."""
    return cast(Trust, lowest_trust(*map(check_trust, (first, *more))))


def is_at_least(trust: str, least: str) -> bool:
    """Check whether a trust is as high as another one, or higher."""
    return TRUSTS.index(cast(Trust, check_trust(trust))) <= TRUSTS.index(cast(Trust, check_trust(least)))


def find_call_trust(batch: str, caller: str, *read: str) -> Trust:
    """Return the trust that a tool call runs at: the lowest of its batch, its caller and what it read."""
    return combine_trust(batch, caller, *read)


def lower_principal(principal: Principal, batch: str) -> Principal:
    """Return the principal that a tool call of a batch acts as: never more trusted than the batch."""
    trust = combine_trust(principal.trust, batch)
    return principal if trust == principal.trust else Principal(principal.name, trust)


def write_source(trust: str, place: str = "") -> str | None:
    """Return the `source` of a record that is written at a trust; None where a partner vouches for it.

    `write_source("untrusted", "https://example.org")` is `origin:untrusted https://example.org`.
    """
    if check_trust(trust) == "partner":
        return None
    said = " ".join(place.split())[:MAX_ORIGIN]
    return f"{_MARK}{trust} {said}".rstrip()


def lower_source(source: str | None, trust: str, place: str = "") -> str | None:
    """Return the source of a record that is written at a trust: never one that claims more than before."""
    made = write_source(trust, place)
    before = read_source(source)
    if made is None or not is_at_least(before.trust, trust):
        return source
    return made


def read_source(source: str | None) -> Origin:
    """Return the origin that a record's `source` names; any other source is the partner's own word."""
    if source is None or not source.startswith(_MARK):
        return Origin("partner")
    trust, _, place = source.removeprefix(_MARK).partition(" ")
    try:
        return Origin(cast(Trust, check_trust(trust)), place)
    except InputError:
        return Origin("untrusted", place)  # a class that this version does not know is not believed
