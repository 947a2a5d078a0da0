"""Sessions, running programs, states of agents, and proposed changes that can be rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.membrane.catalog import Catalog, CatalogAgent
    from dgent.membrane.growth import SelfGrow
    from dgent.membrane.instance import Instances
    from dgent.membrane.membrane import Membrane
    from dgent.membrane.project import project_hash
    from dgent.membrane.record import (
        AgentState,
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
        Shape,
    )
    from dgent.membrane.session import CLISessionService, SessionHit, create_cli_session_service

_RECORDS = (
    *("AgentState", "CLISession", "CLISessionAgent", "CLISessionArtifact", "CLISessionEvent", "Dream"),
    *("EmbeddingMetadata", "Instance", "PromptCheckpoint", "Proposal", "RollbackToken", "Seedling", "Shape"),
)
_HOME = {
    "CLISessionService": "dgent.membrane.session",
    "Catalog": "dgent.membrane.catalog",
    "CatalogAgent": "dgent.membrane.catalog",
    "Instances": "dgent.membrane.instance",
    "Membrane": "dgent.membrane.membrane",
    "SelfGrow": "dgent.membrane.growth",
    "SessionHit": "dgent.membrane.session",
    "create_cli_session_service": "dgent.membrane.session",
    "project_hash": "dgent.membrane.project",
    **dict.fromkeys(_RECORDS, "dgent.membrane.record"),
}

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

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
