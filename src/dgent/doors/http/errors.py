"""Reasons to refuse a request before any verb is called; none of these leaves the server."""

from __future__ import annotations

from dgent.errors import Denied


class UnknownVisitor(Denied):
    """Nobody known sent the request."""

    code = "unknown_visitor"


class TooMany(Exception):
    """A visitor sends too many requests; `after_s` is when the next one is taken."""

    def __init__(self, after_s: float) -> None:
        super().__init__(after_s)
        self.after_s = after_s


class TooLarge(Exception):
    """A body is larger than the server takes."""


class TooSlow(Exception):
    """A body did not arrive in time."""


class Gone(Exception):
    """The client left before its request was whole."""
