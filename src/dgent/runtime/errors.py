"""The errors of consent, each also a DgentError of its general kind."""

from __future__ import annotations

from dgent.errors import Denied


class ConsentDenied(Denied):
    """The partner did not allow a call."""

    code = "consent_denied"


class ConsentExpired(Denied):
    """Nobody answered in time, or an answer came after the time-out."""

    code = "consent_expired"
