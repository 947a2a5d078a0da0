"""Serve one editor on standard input and output, until it is gone."""

from __future__ import annotations

import gc
from typing import Any

from acp.agent.connection import AgentSideConnection

from dgent.doors.acp.agent import AcpAgent
from dgent.doors.acp.transport import open_standard
from dgent.universe.universe import Universe


async def serve_editor(universe: Universe, agent: str, **more: Any) -> None:
    """Serve an editor; what it leaves unfinished can be resumed. `more` is for `AcpAgent`."""
    served: Any = AcpAgent(universe, agent, **more)
    gc.freeze()  # what was loaded stays, and the collector need not look at it with every prompt
    async with open_standard() as transport:
        # Resume and close are in the protocol, and not yet in what the SDK calls stable.
        connection = AgentSideConnection(served, transport, listening=False, use_unstable_protocol=True)
        try:
            await connection.listen()
        finally:
            await connection.close()
            await served.close()
