"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from dgent.model.datum import Datum
from dgent.model.lens import Lens
from dgent.model.query import Query
from dgent.store.port.relational import IRelationalStore
from dgent.sync import Transaction, Universe
from dgent.tables.adapter import MAX_CHAIN, Sessions
from dgent.tables.brain import BrainStatus, Captured
from dgent.tables.gardener import GardenStatus
from dgent.tables.halves import Half, Missing
from dgent.tables.migrate import HEAD
from dgent.tables.models.gardener import GardenIdea, GardenSession, IdeaConnection, Plot
from dgent.tables.models.town import Citizen, CitizenConversation, CitizenRelationship, ConversationTurn
from dgent.tables.rows import Rows
from dgent.tables.town import TownStatus

__all__ = [
    "Brain",
    "Gardener",
    "Place",
    "TableAdapter",
    "TableFocus",
    "Town",
    "connect",
    "ensure_migrations",
    "find_halves",
    "repair",
    "run_migrations",
]
A = TypeVar("A")
T = TypeVar("T")

class Place:
    """Tables at one place: `.engine`, and `.sessions`, which makes sessions for a TableAdapter."""

    @property
    def engine(self) -> AsyncEngine: ...
    @property
    def universe(self) -> Universe | None: ...
    @property
    def sessions(self) -> Any: ...
    def __init__(
        self,
        engine: AsyncEngine,
        name: str,
        universe: Universe | None = None,
        store: IRelationalStore | None = None,
    ) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def shared(self) -> bool:
        """True if the tables are in the database that holds a universe's records."""

    def transaction(self, tx: Transaction) -> AbstractContextManager[AsyncSession]:
        """Give a session whose changes are part of a transaction of the universe: all of it happens, or none.

        The session sees its own changes, and those of earlier sessions of `tx`. At the end of the block they
        are taken back, and handed to `tx`, which runs all statements again when it commits, those that read,
        too. If one then answers other rows, or changes another number of them, somebody else was faster:
        the commit fails with a TransactionConflict, and `u.transact` runs its function again. What the
        session rolled back is not made. It may not commit by itself, nor change which tables there are.
        """

    def close(self) -> None:
        """Close the connections; the universe stays open."""

    def __enter__(self) -> Place: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def connect(where: Universe | str) -> Place:
    """Return the tables of a universe's database, or those at a URL of SQLite or Postgres.

    Tables at a URL have their own database, and no transaction with a universe.
    """

class TableFocus(Generic[A]):
    """The part of a row's data that a lens shows."""

    def __init__(self, adapter: TableAdapter[Any], id: str, lens: Lens[Any, A]) -> None: ...
    def get(self) -> A:
        """Return the part as it is now."""

    def set(self, part: A) -> Datum:
        """Change the part; tried again when someone else changes the row at the same time."""

    def modify(self, change: Callable[[A], A]) -> Datum:
        """Change the part by a function of its value; tried again like `set`."""

class TableAdapter(Generic[T]):
    """The rows of a table as datums: `TableAdapter(Note, place.sessions)`.

    The model is a mapped class or a Table, also a reflected one. A datum has the row as data,
    `serialize(row)` as content, the schema `table.<name>` and the source `alembic`. Its id is that of the
    row: the text of the key, or a JSON list where the key has several columns.
    """

    @property
    def rows(self) -> Rows: ...
    @property
    def id_field(self) -> Any: ...
    def __init__(
        self,
        model: type[T] | Any,
        session_factory: Sessions,
        id_field: str | Sequence[str] | None = None,
        serialize: Callable[[Any], bytes] | None = None,
        deserialize: Callable[[bytes], Any] | None = None,
        *,
        parent_field: str = "causal_parent",
    ) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def table_name(self) -> str:
        """The name of the table."""

    def get(self, id: str) -> Datum | None:
        """Return a row as a datum; None when there is none."""

    def put(self, datum: Datum) -> Datum:
        """Insert or change the row of a datum, in one statement, and return the datum as it was given.

        Columns that its data does not name keep what they have, or get their defaults. A key that is not
        a column is refused.
        """

    def delete(self, id: str) -> bool:
        """Delete a row; False when there was none."""

    def exists(self, id: str) -> bool:
        """Return whether there is a row with this id."""

    def replace(
        self,
        id: str,
        old_data: Mapping[str, Any] | None,
        new_data: Mapping[str, Any],
        version_field: str | None = None,
    ) -> bool:
        """Change a row if it is still as in `old_data`, in one UPDATE; returns whether it was.

        With `version_field` only that column is compared, and it becomes one more unless `new_data` changes
        it. Without old data the row is inserted, if there is none.
        """

    def to_data(self, row: T) -> dict[str, Any]:
        """Return the data of a row, as far as its columns are set."""

    def to_row(self, data: Mapping[str, Any]) -> T:
        """Return the row of some data, in no session."""

    def find_id(self, data: Mapping[str, Any]) -> str | None:
        """Return the id of the row with this data; None where a column of its key is not set."""

    def list(
        self, prefix: str | None = None, *, after: datetime | float | None = None, limit: int | None = 100
    ) -> builtins.list[Datum]:
        """Return rows, newest first, whose id has a prefix and that were created after a time.

        `after` is an aware time, or seconds since 1970. A table without `created_at` is in the order of ids.
        """

    def query(self, query: Query | None = None, **filters: Any) -> builtins.list[Datum]:
        """Return the rows that match a query, as the universe would; `filters` are those of Query.

        Equal values at the top of `where` are asked of the database; the rest is tested here.
        """

    def count(self, query: Query | None = None, **filters: Any) -> int:
        """Return how many rows there are, or match a query."""

    def causal_chain(self, id: str, *, limit: int | None = MAX_CHAIN) -> builtins.list[Datum]:
        """Return a row and its causes, oldest first, by one recursive query; empty when there is no row.

        A cycle ends where it begins. Causes in other tables, and records, are found by `u.causal_chain`.
        """

    def focus(self, id: str, lens: Lens[Any, A]) -> TableFocus[A]:
        """Return a part of a row, read and changed through a lens on its data."""

class Brain:
    """Captures texts, finds them again, and brings old ones back to mind: `Brain(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None: ...
    def capture(
        self,
        content: str,
        tags: Iterable[str] = (),
        *,
        source_type: str | None = None,
        source_ref: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Any = None,
    ) -> Captured:
        """Keep a text: as a datum that search finds, and as a row. Tags of the settings are added."""

    def get(self, id: str, *, touch: bool = True) -> Captured | None:
        """Return a crystal, and count the access unless `touch` is False; None when there is none."""

    def search(self, query: str, limit: int = 10, *, tags: Iterable[str] = ()) -> list[Captured]:
        """Return the crystals whose texts fit best, with the scores of `u.search`; counts no access."""

    def surface(
        self,
        context: str | None = None,
        *,
        entropy: float = 0.7,
        seed: int | str = 0,
        rest: timedelta = timedelta(days=1),
        tags: Iterable[str] = (),
    ) -> Captured | None:
        """Bring back a crystal that is related, old, and was not accessed within `rest`; None if none fits.

        It counts as accessed then. The same seed on the same crystals brings back the same one.
        """

    def list_recent(self, limit: int = 10) -> list[Captured]:
        """Return the newest crystals, the newest first."""

    def list_by_tag(self, tag: str, limit: int = 100) -> list[Captured]:
        """Return the crystals with a tag, the newest first."""

    def delete(self, id: str) -> bool:
        """Delete a crystal, its row and its text; False when there was none. History keeps the text."""

    def forget(self, id: str) -> bool:
        """Erase a crystal for good: its row, its text, and all versions of it; False when there was none."""

    def status(self) -> BrainStatus:
        """Return how much is in the brain, on both tracks."""

class Town:
    """Keeps citizens and their conversations: `Town(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None: ...
    def create_citizen(
        self,
        name: str,
        *,
        archetype: str | None = None,
        description: str | None = None,
        traits: Mapping[str, Any] | None = None,
    ) -> Citizen:
        """Add a citizen; a name that another one has is a Conflict."""

    def get_citizen(self, id: str) -> Citizen | None:
        """Return a citizen by id; None when there is none."""

    def get_citizen_by_name(self, name: str) -> Citizen | None:
        """Return the citizen with a name; None when there is none."""

    def list_citizens(self, *, active: bool | None = None, limit: int = 100) -> list[Citizen]:
        """Return citizens by name; with `active` only those who are, or are not."""

    def update_citizen(self, id: str, **fields: Any) -> Citizen:
        """Change fields of a citizen, and return it."""

    def start_conversation(
        self, citizen: str, topic: str | None = None, *, causal_parent: str | None = None
    ) -> CitizenConversation:
        """Begin a conversation with a citizen, given by id or name."""

    def get_conversation(self, id: str) -> CitizenConversation | None:
        """Return a conversation by id; None when there is none."""

    def list_conversations(
        self, citizen: str | None = None, *, active: bool | None = None, limit: int = 100
    ) -> list[CitizenConversation]:
        """Return conversations, the newest first; with `citizen` those of one, by id or name."""

    def add_turn(
        self,
        conversation_id: str,
        role: str,
        content: str,
        *,
        sentiment: float | None = None,
        emotion: str | None = None,
    ) -> ConversationTurn:
        """Add the next turn of a conversation: a row and a datum, both after the turn before.

        The role is user, citizen or system. A conversation that has ended takes no turns.
        """

    def transcript(self, conversation_id: str, *, limit: int | None = None) -> list[ConversationTurn]:
        """Return the turns of a conversation, the first one first; with a limit, the last ones."""

    def end_conversation(self, id: str, summary: str | None = None) -> CitizenConversation:
        """End a conversation, and return it."""

    def get_dialogue_history(self, citizen: str, limit: int = 50) -> list[ConversationTurn]:
        """Return the last turns of all conversations with a citizen, the earliest first."""

    def search(self, text: str, k: int = 10) -> list[ConversationTurn]:
        """Return the turns that fit a text best, in any conversation."""

    def forget(self, turn_id: str) -> bool:
        """Erase a turn for good, on both tracks; the others keep their numbers."""

    def forget_conversation(self, id: str) -> bool:
        """Erase a conversation and all its turns for good, on both tracks."""

    def create_relationship(
        self, a: str, b: str, relationship_type: str, *, strength: float = 0.5, notes: str | None = None
    ) -> CitizenRelationship:
        """Relate two citizens, given by id; the same relation twice is a Conflict."""

    def get_relationships(self, citizen_id: str) -> list[CitizenRelationship]:
        """Return the relationships of a citizen at either end, the strongest first."""

    def status(self) -> TownStatus:
        """Return how much is in the town."""

class Gardener:
    """Keeps ideas as they grow: `Gardener(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None: ...
    def start_session(self, title: str | None = None, notes: str | None = None) -> GardenSession:
        """Begin a session in the garden."""

    def end_session(self, id: str, notes: str | None = None) -> GardenSession:
        """End a session: keep how long it took, and append notes. One that has ended is a Conflict."""

    def get_session(self, id: str) -> GardenSession | None:
        """Return a session by id; None when there is none."""

    def list_sessions(self, limit: int = 100) -> list[GardenSession]:
        """Return sessions, the newest first."""

    def create_plot(self, name: str, description: str | None = None, color: str | None = None) -> Plot:
        """Add a plot; a name that another one has is a Conflict."""

    def list_plots(self) -> list[Plot]:
        """Return the plots by name."""

    def plant(
        self,
        content: str,
        *,
        session_id: str | None = None,
        plot_id: str | None = None,
        confidence: float = 0.3,
        tags: Iterable[str] = (),
        causal_parent: str | None = None,
    ) -> GardenIdea:
        """Plant an idea as a SEED: a row, and a datum that search finds."""

    def nurture(self, id: str, refinement: str | None = None) -> GardenIdea:
        """Nurture an idea: its confidence grows by 0.1 up to 1, and a refinement is appended after a rule.

        Compost is not nurtured: that is a Conflict.
        """

    def harvest(self, id: str) -> GardenIdea | None:
        """Bring an idea to its next stage: SEED, SAPLING, TREE, FLOWER, COMPOST; None after the last."""

    def compost(self, id: str) -> GardenIdea:
        """Give an idea up, whatever its stage; it stays as COMPOST, for others to grow on."""

    def get(self, id: str) -> GardenIdea | None:
        """Return an idea by id; None when there is none."""

    def list_ideas(
        self,
        *,
        lifecycle: str | None = None,
        session_id: str | None = None,
        plot_id: str | None = None,
        limit: int = 100,
    ) -> list[GardenIdea]:
        """Return ideas, the newest first; of a stage, a session or a plot."""

    def search(self, text: str, k: int = 10) -> list[GardenIdea]:
        """Return the ideas that fit a text best."""

    def connect(
        self,
        source_id: str,
        target_id: str,
        connection_type: str = "related",
        *,
        strength: float = 0.5,
        notes: str | None = None,
    ) -> IdeaConnection:
        """Connect two ideas: a row; the same connection twice is a Conflict."""

    def get_connections(self, idea_id: str) -> list[IdeaConnection]:
        """Return the connections of an idea at either end, the strongest first."""

    def forget(self, id: str) -> bool:
        """Erase an idea for good: its row, its connections, its text, and all versions of it."""

    def status(self) -> GardenStatus:
        """Return how much is in the garden, and in which stages."""

def ensure_migrations(place: Place, folder: str | Path | None = None) -> bool:
    """Run the revisions that a place does not have; return whether there were any."""

def run_migrations(
    place: Place, target: str = HEAD, *, development: bool = False, folder: str | Path | None = None
) -> str | None:
    """Bring the tables of a place to a revision, and return the one that it has then.

    `target` is `head`, a revision, `+1`, or, with `development`, also an earlier revision, `-1` or `base`.
    Raises Denied for a step back without `development`: it drops columns and tables with what is in them.
    """

def find_halves(universe: Universe, place: Place) -> list[Half]:
    """Return all halves, and change nothing."""

def repair(
    universe: Universe, place: Place, *, missing_datum: Missing = "report", dry_run: bool = False
) -> list[Half]:
    """Mend halves and return all that were found, with what was done.

    Rows that are missing are made from their datums. `missing_datum` says what to do with a row whose datum
    is gone: `report` it, `restore` the datum from its history or from the row, or `delete` the row as well.
    """
