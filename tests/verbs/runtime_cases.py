"""Cases of the verbs of agents that run, and what they start from."""

from __future__ import annotations

from dgent.runtime.tool.consent import LONGEST_S, Consents
from dgent.universe.universe import Universe
from tests.verbs.case import Case

ASKED, GRANT = "87eba6ef76465b1a5c57d332", "bbe387bc283f15ead409d9bb"
"""The ids of the open request and of the grant: digests of what they are for."""

RUNTIME_CASES: dict[str, list[Case]] = {
    "agent.context": [Case({"name": "scout"}, ["scout"])],
    "consent.list": [Case({"of_agent": "scout"}, ["--of", "scout"])],
    "consent.answer": [
        Case({"id": ASKED[:6], "answer": "deny"}, [ASKED[:6], "deny"]),
        Case({"id": "nothing", "answer": "once"}, ["nothing", "once"], "not_found"),
        Case({"id": ASKED, "answer": "once", "lasts": "8h"}, [ASKED, "once", "--for", "8h"], "input"),
    ],
    "consent.grants": [Case({}, [])],
    "consent.revoke": [Case({"id": GRANT}, [GRANT]), Case({"id": "nothing"}, ["nothing"], "not_found")],
}


async def fill_consents(universe: Universe) -> None:
    """A request that waits, and a grant that lasts."""
    consents = Consents(universe)
    asked = await consents.ask("scout", "web", key="waits", wait_s=LONGEST_S)
    granted = await consents.ask("scout", "shell", key="granted", wait_s=LONGEST_S)
    await consents.answer(granted.id, "duration", by="ann", for_s=LONGEST_S)
    (grant,) = await consents.list_grants()
    assert (asked.id, grant.id) == (ASKED, GRANT)
