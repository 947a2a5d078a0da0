"""Sessions of people at this machine: a link that works once gives a cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict

LINK_S = 3600.0  # how long a link waits to be opened
IDLE_S = 12 * 3600.0  # how long a session lasts without a request
MOST = 32  # sessions and links that are kept


class Sessions:
    """The links that were handed out, and the sessions of those that were opened."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._links: OrderedDict[str, float] = OrderedDict()  # codes, and until when they work
        self._open: OrderedDict[str, float] = OrderedDict()  # cookies, and until when they work

    def create_link(self) -> str:
        """Return a code that opens one session."""
        return _add(self._links, LINK_S)

    def open(self, code: str) -> str | None:
        """Return the cookie of a new session; None for a code that is wrong, old or was used."""
        known = _find(self._links, code)
        if known is None or self._links.pop(known) < time.monotonic():
            return None
        return _add(self._open, IDLE_S)

    def find(self, cookie: str) -> str | None:
        """Return the agent that a session acts as unless it names another; None if there is none."""
        known = _find(self._open, cookie)
        if known is None:
            return None
        if self._open[known] < time.monotonic():
            del self._open[known]
            return None
        self._open[known] = time.monotonic() + IDLE_S
        return self._agent

    def close(self, cookie: str) -> None:
        """End a session."""
        known = _find(self._open, cookie)
        if known is not None:
            del self._open[known]


def _add(kept: OrderedDict[str, float], seconds: float) -> str:
    made = secrets.token_urlsafe(32)
    kept[made] = time.monotonic() + seconds
    while len(kept) > MOST:
        kept.popitem(last=False)
    return made


def _find(kept: OrderedDict[str, float], given: str) -> str | None:
    """Return the text that is kept, compared with all so that the time says nothing of them."""
    found = None
    for each in kept:
        if hmac.compare_digest(each.encode(), given.encode()):
            found = each
    return found
