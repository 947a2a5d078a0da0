"""The records of the membrane, their schemas, and the table that each kind is for SQL.

The fields of a record are the columns of its table, in this order. A record's id in the store is its schema
and its key, so that nothing else can have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgent import ids
from dgent.model.schema import Schema
from dgent.universe.room import Table

ROOM = "membrane"
SESSION_TYPES = ("interactive", "repl", "flow", "script")
SESSION_STATES = ("active", "completed", "failed", "interrupted")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A running program. Its heartbeats replace this record, which keeps no history and is not announced.

    `beat_us` is the time of the last heartbeat since the `boot`, for programs of the same boot: nobody can
    set that clock.
    """

    id: str
    hostname: str
    pid: int
    project_path: str | None = None
    project_hash: str | None = None
    started_at: datetime
    last_heartbeat: datetime
    status: str = "active"
    boot: str = ""
    beat_us: int = 0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An observed pattern."""

    id: str
    shape_type: str
    intensity: float = 1.0
    persistence: float = 1.0
    interpretation: str | None = None
    project_hash: str | None = None
    instance_id: str | None = None
    observed_at: datetime
    embedding_status: str = "none"


@dataclass(frozen=True, kw_only=True)
class Dream:
    """An insight that was drawn from shapes."""

    id: str
    content: str
    source_shapes: Any = None
    confidence: float = 1.0
    dreamed_at: datetime


@dataclass(frozen=True, kw_only=True)
class EmbeddingMetadata:
    """The model that a text of a source was embedded with."""

    source_id: str
    model_name: str
    dimensions: int
    created_at: datetime
    needs_reembed: bool = False
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """The state of an agent, which is replaced as a whole."""

    agent_id: str
    genus: str
    state: Any = None
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class PromptCheckpoint:
    """A version of a prompt; `parent_id` is the checkpoint that it followed."""

    id: str
    name: str
    content: str
    parent_id: str | None = None
    reason: str | None = None
    created_at: datetime
    metadata: Any = None


@dataclass(frozen=True, kw_only=True)
class CLISession:
    """A session of a command line."""

    id: str
    name: str
    session_type: str = "interactive"
    state: str = "active"
    started_at: datetime
    ended_at: datetime | None = None
    project_path: str | None = None
    project_hash: str | None = None
    flow_name: str | None = None
    flow_path: str | None = None
    budget_level: str = "medium"
    tokens_used: int = 0
    metadata: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CLISessionEvent:
    """An event within a session."""

    id: str
    session_id: str
    timestamp: datetime
    event_type: str
    source: str
    message: str
    data: Any = None


@dataclass(frozen=True, kw_only=True)
class CLISessionAgent:
    """An agent that was started in a session."""

    id: str
    session_id: str
    name: str
    genus: str
    status: str = "pending"
    started_at: datetime
    completed_at: datetime | None = None
    error: str | None = None
    metadata: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CLISessionArtifact:
    """An output of a session."""

    id: str
    session_id: str
    name: str
    path: str | None = None
    artifact_type: str
    created_at: datetime
    updated_at: datetime
    size_bytes: int | None = None
    content_preview: str | None = None
    metadata: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposed change of a prompt or of files: `data` has the new texts."""

    id: str
    data: Any
    content_hash: str
    context: str
    entity: str
    proposed_by: str
    proposed_at: datetime
    status: str = "draft"
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class Seedling:
    """A proposal that is tried out in the nursery, with how often it helped."""

    id: str
    proposal_id: str
    data: Any
    handle: str
    usage_count: int = 0
    success_count: int = 0
    failure_patterns: Any = field(default_factory=list)
    germinated_by: str
    germinated_at: datetime
    promoted_at: datetime | None = None
    pruned_at: datetime | None = None
    rollback_token: str | None = None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class RollbackToken:
    """The texts that a promotion replaced; None where there was none. `written` has the digests of the new.

    `checkpoint_id` is the checkpoint of the prompt before it, `used_at` when it was rolled back.
    """

    id: str
    handle: str
    promoted_at: datetime
    expires_at: datetime
    spec_path: str | None = None
    impl_path: str | None = None
    spec_content: str | None = None
    impl_content: str | None = None
    created_at: datetime
    written: Any = field(default_factory=dict)
    checkpoint_id: str | None = None
    used_at: datetime | None = None


INSTANCE = Schema(
    "membrane.instance",
    contract=Instance,
    indexes=("status", "project_hash"),
    owner=ROOM,
    history="none",
    feed=False,
)
SHAPE = Schema(
    "membrane.shape",
    contract=Shape,
    indexes=("shape_type", "project_hash", "observed_at"),
    owner=ROOM,
    text={"interpretation": 2, "shape_type": 1},
)
DREAM = Schema("membrane.dream", contract=Dream, indexes=("dreamed_at",), owner=ROOM, text={"content": 1})
EMBEDDING = Schema(
    "membrane.embedding_metadata",
    contract=EmbeddingMetadata,
    indexes=("model_name", "needs_reembed"),
    owner=ROOM,
    history="none",
)
AGENT_STATE = Schema("membrane.agent_state", contract=AgentState, indexes=("genus",), owner=ROOM)
CHECKPOINT = Schema(
    "membrane.prompt_checkpoint",
    contract=PromptCheckpoint,
    indexes=("name",),
    owner=ROOM,
    text={"name": 3, "content": 1, "reason": 1},
)
SESSION = Schema(
    "membrane.cli_session",
    contract=CLISession,
    indexes=("state", "project_hash", "session_type", "started_at", "metadata.shell"),
    owner=ROOM,
    text={"name": 3, "flow_name": 1},
)
EVENT = Schema(
    "membrane.cli_session_event",
    contract=CLISessionEvent,
    indexes=("session_id", "event_type"),
    owner=ROOM,
    text={"message": 2, "event_type": 1, "source": 1},
)
AGENT = Schema(
    "membrane.cli_session_agent", contract=CLISessionAgent, indexes=("session_id", "status"), owner=ROOM
)
ARTIFACT = Schema(
    "membrane.cli_session_artifact",
    contract=CLISessionArtifact,
    indexes=("session_id",),
    owner=ROOM,
    text={"name": 2, "content_preview": 1},
)
PROPOSAL = Schema(
    "membrane.self_grow_proposal",
    contract=Proposal,
    indexes=("status", "context", "content_hash"),
    owner=ROOM,
)
SEEDLING = Schema(
    "membrane.self_grow_nursery", contract=Seedling, indexes=("handle", "proposal_id"), owner=ROOM
)
TOKEN = Schema(
    "membrane.self_grow_rollback_token", contract=RollbackToken, indexes=("handle", "expires_at"), owner=ROOM
)

SCHEMAS: tuple[Schema[Any], ...] = (
    *(INSTANCE, SHAPE, DREAM, EMBEDDING, AGENT_STATE, CHECKPOINT),
    *(SESSION, EVENT, AGENT, ARTIFACT),
    *(PROPOSAL, SEEDLING, TOKEN),
)
OF_SESSION = frozenset(each.name for each in (SESSION, EVENT, AGENT, ARTIFACT))
"""The schemas of sessions."""


def _table(name: str, schema: Schema[Any], hidden: tuple[str, ...] = ()) -> Table:
    columns = tuple(column for column in schema.shape.fields if column not in hidden)
    return Table(name, columns, schema.name, columns[0])


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table("instances", INSTANCE, ("boot", "beat_us")),
        _table("shapes", SHAPE),
        _table("dreams", DREAM),
        _table("embedding_metadata", EMBEDDING),
        _table("agent_state", AGENT_STATE),
        _table("prompt_checkpoints", CHECKPOINT),
        _table("cli_sessions", SESSION),
        _table("cli_session_events", EVENT),
        _table("cli_session_agents", AGENT),
        _table("cli_session_artifacts", ARTIFACT),
        _table("self_grow_proposals", PROPOSAL),
        _table("self_grow_nursery", SEEDLING),
        _table("self_grow_rollback_tokens", TOKEN, ("written", "checkpoint_id", "used_at")),
    )
}
"""The tables of the membrane, by name."""


def record_id(schema: Schema[Any], key: object) -> str:
    """Return the id in the store of the record with this key; InputError for a key that cannot be one."""
    name = next(iter(schema.shape.fields))
    return ids.check_id(f"{schema.name}/{ids.check_name(key, name)}", name)


def key_of(record: Any) -> str:
    """Return the key of a record: its first field."""
    found: str = getattr(record, next(iter(type(record).__dataclass_fields__)))
    return found
