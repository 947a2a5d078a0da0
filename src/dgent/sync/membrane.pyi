"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from dgent.membrane import AgentState as AgentState
from dgent.membrane import Catalog as Catalog
from dgent.membrane import CatalogAgent as CatalogAgent
from dgent.membrane import CLISession as CLISession
from dgent.membrane import CLISessionAgent as CLISessionAgent
from dgent.membrane import CLISessionArtifact as CLISessionArtifact
from dgent.membrane import CLISessionEvent as CLISessionEvent
from dgent.membrane import Dream as Dream
from dgent.membrane import EmbeddingMetadata as EmbeddingMetadata
from dgent.membrane import Instance as Instance
from dgent.membrane import PromptCheckpoint as PromptCheckpoint
from dgent.membrane import Proposal as Proposal
from dgent.membrane import RollbackToken as RollbackToken
from dgent.membrane import Seedling as Seedling
from dgent.membrane import SessionHit as SessionHit
from dgent.membrane import Shape as Shape
from dgent.membrane import project_hash as project_hash
from dgent.membrane.growth import WINDOW
from dgent.membrane.instance import HEARTBEAT_S, KEPT_S, STALE_S
from dgent.model.datum import Datum
from dgent.store.backend import Forgotten, Op
from dgent.sync import Universe

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
R = TypeVar("R")

class Membrane:
    """The membrane of a universe: `Membrane(u)`. Its services stand on this."""

    @property
    def universe(self) -> Universe: ...
    def __init__(self, universe: Universe) -> None: ...
    def put(self, *records: Any, new: bool = False, note: str | None = None) -> None:
        """Store records in one commit, each in place of the one with its key; with `new` that is a Conflict.

        Raises NotFound unless the session or proposal that a record belongs to is there, or comes with it.
        """

    def datum_of(self, record: Any) -> Datum:
        """Return the datum of a record as it is stored."""

    def commit(self, ops: Sequence[Op], *, note: str | None = None) -> None:
        """Do all ops or none; raises Conflict for a key that is taken, NotFound for one that is needed."""

    def change(
        self, kind: type[R], key: str, work: Callable[[R], Sequence[Any]], *, note: str | None = None
    ) -> R | None:
        """Store what `work` makes of a record: its new version, and new records beside it.

        Of two who change it at once, the slower one works on what the other wrote. Nothing is stored, and
        None returned, where `work` returns nothing. Raises NotFound.
        """

    def get(self, kind: type[R], key: str) -> R | None:
        """Return the record of a kind with this key; None when there is none."""

    def list(self, kind: type[R], *, limit: int | None = 100, newest: bool = True, **where: Any) -> list[R]:
        """Return records of a kind whose fields have these values; None is any value."""

    def delete(self, kind: type[Any], *keys: str) -> None:
        """Delete the records with these keys, where there are any."""

    def forget(self, kind: type[Any], *keys: str) -> Forgotten:
        """Erase records and all their versions for good."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False) -> int:
        """Insert rows as SQL gives them, in one commit; return how many. A key that is there is a Conflict.

        Missing columns get their defaults. JSON objects and lists may be given as text, times as ISO text or
        as seconds since 1970.
        """

class Instances:
    """The running programs of a universe: `Instances(u)`."""

    def __init__(self, universe: Universe) -> None: ...
    def register(
        self, *, project_path: str | Path | None = None, project_hash: str | None = None
    ) -> Instance:
        """Register this process; the hash of the project follows from its path unless given."""

    def heartbeat(self, instance_id: str) -> bool:
        """Record that a program runs; one that was swept as stale is active again. False if it has ended."""

    def end(self, instance_id: str) -> bool:
        """Record that a program has ended; False if that was recorded already."""

    def list(
        self, *, status: str | None = None, project_hash: str | None = None, limit: int | None = 100
    ) -> list[Instance]:
        """Return programs, those that started last first."""

    def sweep(self, *, stale_s: float = STALE_S, kept_s: float = KEPT_S) -> int:
        """Mark active programs without a heartbeat for `stale_s` as stale; return how many.

        Those that ended or were stale `kept_s` ago are deleted.
        """

    def running(
        self, *, project_path: str | Path | None = None, heartbeat_s: float = HEARTBEAT_S
    ) -> AbstractContextManager[Instance]:
        """Register this process while a block of code runs, send its heartbeats, and sweep stale ones.

        A heartbeat that fails never disturbs the block: the next one may succeed.
        """

class SelfGrow:
    """The proposals of a universe: `SelfGrow(u, root)`; files are read and written below `root` only."""

    def __init__(self, universe: Universe, root: str | Path | None = None) -> None: ...
    def propose(
        self, entity: str, data: Mapping[str, str], *, context: str = "", proposed_by: str | None = None
    ) -> Proposal:
        """Propose new texts for an entity: `{"prompt": "…"}`, `{"spec": "…", "impl": "…"}` or all three."""

    def proposals(self, *, status: str | None = None, limit: int | None = 100) -> list[Proposal]:
        """Return proposals, newest first."""

    def germinate(
        self, proposal_id: str, handle: str | None = None, *, germinated_by: str | None = None
    ) -> Seedling:
        """Put a draft into the nursery, under the name of what it would change."""

    def nursery(self, *, handle: str | None = None, limit: int | None = 100) -> list[Seedling]:
        """Return what is or was tried, newest first."""

    def record_use(self, seedling_id: str, *, success: bool, pattern: str | None = None) -> Seedling:
        """Count a use of what is tried, and how it failed if it did."""

    def prune(self, seedling_id: str) -> Seedling:
        """Give up what is tried; raises Conflict once it was promoted."""

    def promote(
        self,
        seedling_id: str,
        *,
        spec_path: str | None = None,
        impl_path: str | None = None,
        window: timedelta = WINDOW,
    ) -> RollbackToken:
        """Put the texts of a seedling in their places, and return the token that takes them back.

        Called again after a crash, it finishes what was begun and returns the same token.
        """

    def rollback(self, token_id: str, *, force: bool = False) -> RollbackToken:
        """Put back the texts that a promotion replaced; a second call changes nothing.

        Raises Conflict after the window, or where a file was changed since, unless forced.
        """

    def tokens(self, *, handle: str | None = None, limit: int | None = 100) -> list[RollbackToken]:
        """Return the tokens of promotions, newest first."""

    def find_prompt(self, name: str) -> PromptCheckpoint | None:
        """Return the newest checkpoint of a prompt; None when there is none."""

    def save_prompt(self, name: str, content: str, *, reason: str | None = None) -> PromptCheckpoint:
        """Store a checkpoint of a prompt; the same text again is the same checkpoint."""

class CLISessionService:
    """The sessions of a universe: `CLISessionService(u)`, or `create_cli_session_service()`.

    `with` closes the universe if the service opened it.
    """

    def __init__(self, universe: Universe, *, owns: bool = False) -> None: ...
    def __enter__(self) -> CLISessionService: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def owns_universe(self) -> bool:
        """True if `close` closes the universe, too."""

    def close(self) -> None:
        """Close the universe that this service opened; one that it was given stays open."""

    def start_session(
        self,
        session_type: str = "interactive",
        name: str = "",
        *,
        project_path: str | Path | None = None,
        project_hash: str | None = None,
        flow_name: str | None = None,
        flow_path: str | None = None,
        budget_level: str = "medium",
        metadata: dict[str, Any] | None = None,
    ) -> CLISession:
        """Start a session, and log that; the hash of the project follows from its path unless given."""

    def end_session(
        self, session_id: str, *, state: str = "completed", tokens_used: int | None = None
    ) -> bool:
        """End a session as completed, failed or interrupted; False if it has ended already."""

    def resume(self, session_id: str) -> CLISession:
        """Go on with a session that has ended, and log that; one that is active stays as it is."""

    def log_event(
        self, session_id: str, event_type: str, source: str, message: str, data: Any = None
    ) -> CLISessionEvent:
        """Log an event of an active session."""

    def spawn_agent(
        self, session_id: str, name: str, genus: str, metadata: dict[str, Any] | None = None
    ) -> CLISessionAgent:
        """Record that an agent runs in a session."""

    def complete_agent(self, agent_id: str, status: str = "completed", error: str | None = None) -> bool:
        """Record that an agent has ended; False if that was recorded already."""

    def record_artifact(
        self,
        session_id: str,
        name: str,
        artifact_type: str,
        *,
        path: str | Path | None = None,
        size_bytes: int | None = None,
        content_preview: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> CLISessionArtifact:
        """Record an output of a session."""

    def forget_session(self, session_id: str) -> int:
        """Erase a session with all that is in it for good; return how many records that were."""

    def get_session(self, session_id: str) -> CLISession:
        """Return a session; raises NotFound."""

    def list_sessions(
        self,
        limit: int = 20,
        *,
        state: str | None = None,
        project_hash: str | None = None,
        session_type: str | None = None,
    ) -> list[CLISession]:
        """Return sessions, newest first."""

    def get_session_events(
        self, session_id: str, limit: int | None = 100, event_type: str | None = None
    ) -> list[CLISessionEvent]:
        """Return the events of a session, newest first."""

    def get_session_agents(self, session_id: str, limit: int | None = 100) -> list[CLISessionAgent]:
        """Return the agents of a session, newest first."""

    def get_session_artifacts(self, session_id: str, limit: int | None = 100) -> list[CLISessionArtifact]:
        """Return the artifacts of a session, newest first."""

    def search(self, text: str, limit: int = 20, *, project_hash: str | None = None) -> list[SessionHit]:
        """Return sessions whose names, or messages of their events, fit the words best; each once."""

def create_cli_session_service(url: str | None = None, *, author: str = "system") -> CLISessionService:
    """Open a universe, the default one without a URL, and return its sessions; `close` closes it."""
