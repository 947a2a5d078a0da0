"""Trust by origin: how far a tool call is trusted. `universe/origin.py` has the origins of records.

The trust of a batch is the lowest of what it read. A call that the model makes there has that trust or that
of its caller, whichever is lower, so a page from the web cannot act with the trust of the partner who asked
for it to be read.
"""

from __future__ import annotations

from dgent.universe.gate import TRUSTS, Principal, Trust
from dgent.universe.origin import check_trust, lowest_trust


def combine_trust(first: str, *more: str) -> Trust:
    """Return the lowest of some trusts; raises InputError for what is not a trust."""
    return lowest_trust(*map(check_trust, (first, *more)))


def is_at_least(trust: str, least: str) -> bool:
    """Check whether a trust is as high as another one, or higher."""
    return TRUSTS.index(check_trust(trust)) <= TRUSTS.index(check_trust(least))


def find_call_trust(batch: str, caller: str, *read: str) -> Trust:
    """Return the trust that a tool call runs at: the lowest of its batch, its caller and what it read."""
    return combine_trust(batch, caller, *read)


def lower_principal(principal: Principal, batch: str) -> Principal:
    """Return the principal that a tool call of a batch acts as: never more trusted than the batch."""
    trust = combine_trust(principal.trust, batch)
    return principal if trust == principal.trust else Principal(principal.name, trust)
