"""The membrane for code without an event loop: `from dgent.sync.membrane import CLISessionService`.

The same names as in `dgent.membrane`; the services block until they are answered.
"""

from __future__ import annotations

from typing import Any

from dgent.membrane import (
    AgentState,
    Catalog,
    CatalogAgent,
    CLISession,
    CLISessionAgent,
    CLISessionArtifact,
    CLISessionEvent,
    Dream,
    EmbeddingMetadata,
    Instance,
    PromptCheckpoint,
    Proposal,
    RollbackToken,
    Seedling,
    SessionHit,
    Shape,
    growth,
    instance,
    membrane,
    project_hash,
    session,
)
from dgent.sync.twin import Twin, copy_signature, make_twin
from dgent.sync.universe import open as open_universe

__all__ = [
    "AgentState",
    "CLISession",
    "CLISessionAgent",
    "CLISessionArtifact",
    "CLISessionEvent",
    "CLISessionService",
    "Catalog",
    "CatalogAgent",
    "Dream",
    "EmbeddingMetadata",
    "Instance",
    "Instances",
    "Membrane",
    "PromptCheckpoint",
    "Proposal",
    "RollbackToken",
    "Seedling",
    "SelfGrow",
    "SessionHit",
    "Shape",
    "create_cli_session_service",
    "project_hash",
]


def _stay(self: Twin) -> Any:
    return self


def _exit(self: Any, *_error: Any) -> None:
    self.close()


def _close(self: Twin) -> None:
    if self._source.owns_universe:
        self._home.close()


Membrane = make_twin(membrane.Membrane, module=__name__)
Instances = make_twin(instance.Instances, module=__name__)
SelfGrow = make_twin(growth.SelfGrow, module=__name__)
CLISessionService = make_twin(
    session.CLISessionService,
    instead={"close": _close, "__aenter__": _stay, "__aexit__": _exit},
    module=__name__,
)


def _create(url: str | None = None, *, author: str = "system") -> Any:
    universe = open_universe(url, author=author)
    try:
        return CLISessionService(universe, owns=True)
    except BaseException:
        universe.close()
        raise


create_cli_session_service = copy_signature(
    _create, session.create_cli_session_service, "create_cli_session_service", __name__
)
