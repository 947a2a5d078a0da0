"""The table from errors to exit codes, HTTP status and MCP codes."""

from __future__ import annotations

from typing import NamedTuple

from dgent import errors


class Outcome(NamedTuple):
    """The codes that stand for an error at each door."""

    exit: int
    http: int
    mcp: int


TABLE: tuple[tuple[type[BaseException], Outcome], ...] = (
    # The first match counts, so the narrower classes come first.
    (errors.HistoryGone, Outcome(4, 410, -32002)),
    (errors.NotFound, Outcome(4, 404, -32002)),
    (errors.Ambiguous, Outcome(12, 409, -32602)),
    (errors.InputError, Outcome(2, 400, -32602)),
    (errors.Conflict, Outcome(5, 409, -32009)),
    (errors.Denied, Outcome(6, 403, -32003)),
    (errors.Unsupported, Outcome(7, 501, -32601)),
    (errors.Unreadable, Outcome(8, 422, -32022)),
    (errors.EmbedderFailed, Outcome(10, 503, -32050)),
    (errors.StorageFull, Outcome(11, 507, -32050)),
    (errors.Unavailable, Outcome(10, 503, -32050)),
    (errors.StorageError, Outcome(9, 500, -32603)),
    (errors.ConfigError, Outcome(3, 500, -32603)),
    (errors.DgentError, Outcome(1, 500, -32603)),
    (KeyboardInterrupt, Outcome(130, 499, -32000)),
)
UNFORESEEN = Outcome(70, 500, -32603)
"""A fault of dgent itself."""


def outcome_of(error: BaseException) -> Outcome:
    """Return the codes of an error."""
    for kind, outcome in TABLE:
        if isinstance(error, kind):
            return outcome
    return UNFORESEEN
