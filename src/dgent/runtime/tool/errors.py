"""The errors of tools, each also a DgentError of its general kind."""

from __future__ import annotations

import msgspec

from dgent.errors import Denied


class ConsentRequest(msgspec.Struct, frozen=True):
    """A question to the partner: may this tool do this? `scope` names what a yes would cover."""

    tool: str
    action: str
    target: str
    scope: str
    reason: str = ""


class ConsentNeeded(Denied):
    """A tool may do this only with the partner's consent; `request` is what to ask."""

    code = "consent_needed"

    request: ConsentRequest | None = None


def make_consent_error(request: ConsentRequest) -> ConsentNeeded:
    """Return the error of a call that needs consent."""
    error = ConsentNeeded(
        f"{request.tool} needs consent to {request.action} {request.target}",
        hint="ask the partner; call again with the scope in `Call.consents`",
    )
    error.request = request
    return error
