"""Town: citizens who remember what was said. Each turn is a row, and a datum in a causal chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from dgent import ids
from dgent.errors import Conflict, InputError, NotFound, TransactionConflict
from dgent.model.datum import Datum
from dgent.tables.both import Tracks, count_rows, find_row
from dgent.tables.models.town import (
    ROLES,
    Citizen,
    CitizenConversation,
    CitizenRelationship,
    ConversationTurn,
)
from dgent.tables.record import TURN, TurnContent
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.tables.place import Place
    from dgent.universe.universe import Universe

_CITIZEN = frozenset(("name", "archetype", "description", "traits", "is_active", "memory_datum_id"))


class TownStatus(msgspec.Struct, frozen=True):
    """The numbers of citizens, conversations, turns and relationships in a town."""

    citizens: int
    active_citizens: int
    conversations: int
    active_conversations: int
    turns: int
    relationships: int


class Town:
    """Keeps citizens and their conversations: `Town(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None:
        self._tracks = Tracks(universe, place, TURN)

    # -- citizens ---------------------------------------------------------------------------

    async def create_citizen(
        self,
        name: str,
        *,
        archetype: str | None = None,
        description: str | None = None,
        traits: Mapping[str, Any] | None = None,
    ) -> Citizen:
        """Add a citizen; a name that another one has is a Conflict."""
        if not isinstance(name, str) or not name.strip():
            raise InputError("a citizen needs a name", field="name")
        row = Citizen(name=name, archetype=archetype, description=description, traits=dict(traits or {}))
        async with self._tracks.rows() as session:
            session.add(row)
        return row

    async def get_citizen(self, id: str) -> Citizen | None:
        """Return a citizen by id; None when there is none."""
        async with self._tracks.rows() as session:
            return await session.get(Citizen, id)

    async def get_citizen_by_name(self, name: str) -> Citizen | None:
        """Return the citizen with a name; None when there is none."""
        async with self._tracks.rows() as session:
            found: Citizen | None = await session.scalar(select(Citizen).where(Citizen.name == name))
            return found

    async def list_citizens(self, *, active: bool | None = None, limit: int = 100) -> list[Citizen]:
        """Return citizens by name; with `active` only those who are, or are not."""
        asked = select(Citizen).order_by(Citizen.name).limit(limit)
        async with self._tracks.rows() as session:
            return list(
                await session.scalars(asked if active is None else asked.where(Citizen.is_active == active))
            )

    async def update_citizen(self, id: str, **fields: Any) -> Citizen:
        """Change fields of a citizen, and return it."""
        if unknown := fields.keys() - _CITIZEN:
            known = ", ".join(sorted(_CITIZEN))
            raise InputError(
                f"a citizen has no field {min(unknown)!r} to change", hint=f"use {known}", field=min(unknown)
            )
        async with self._tracks.rows() as session:
            row = await find_row(session, Citizen, id)
            for name, value in fields.items():
                setattr(row, name, value)
        return row

    # -- conversations ----------------------------------------------------------------------

    async def start_conversation(
        self, citizen: str, topic: str | None = None, *, causal_parent: str | None = None
    ) -> CitizenConversation:
        """Begin a conversation with a citizen, given by id or name."""
        async with self._tracks.rows() as session:
            found = await session.scalar(
                select(Citizen).where(or_(Citizen.id == citizen, Citizen.name == citizen))
            )
            if found is None:
                raise NotFound(f"there is no citizen {citizen!r}", hint="create_citizen makes one")
            row = CitizenConversation(
                citizen_id=found.id,
                citizen_name=found.name,
                topic=topic,
                turn_count=0,
                causal_parent=causal_parent,
            )
            session.add(row)
        return row

    async def get_conversation(self, id: str) -> CitizenConversation | None:
        """Return a conversation by id; None when there is none."""
        async with self._tracks.rows() as session:
            return await session.get(CitizenConversation, id)

    async def list_conversations(
        self, citizen: str | None = None, *, active: bool | None = None, limit: int = 100
    ) -> list[CitizenConversation]:
        """Return conversations, the newest first; with `citizen` those of one, by id or name."""
        asked = select(CitizenConversation).order_by(
            CitizenConversation.created_at.desc(), CitizenConversation.id.desc()
        )
        if citizen is not None:
            asked = asked.where(
                or_(CitizenConversation.citizen_id == citizen, CitizenConversation.citizen_name == citizen)
            )
        if active is not None:
            asked = asked.where(CitizenConversation.is_active == active)
        async with self._tracks.rows() as session:
            return list(await session.scalars(asked.limit(limit)))

    async def add_turn(
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
        if role not in ROLES:
            raise InputError(f"{role!r} is not a valid role", hint=f"use {', '.join(ROLES)}", field="role")

        async def work(tx: Transaction, session: AsyncSession) -> ConversationTurn:
            conversation = await find_row(session, CitizenConversation, conversation_id)
            if not conversation.is_active:
                raise Conflict(f"the conversation {conversation_id!r} has ended", hint="start another one")
            number, head = conversation.turn_count + 1, conversation.datum_chain_head
            while (stored := await tx.get(turn_id(conversation_id, number))) is not None:
                # Where two databases hold them, a crash left this turn without its row.
                head = add_row(session, stored.datum, stored.value).id
                number += 1
            value = TurnContent(conversation_id, number, role, content, sentiment, emotion)
            crystal = await tx.remember(value, id=turn_id(conversation_id, number), parent=head)
            turn = add_row(session, crystal.datum, value)
            await session.flush()
            await advance(session, conversation_id, conversation.turn_count, number, turn.id)
            await session.execute(
                update(Citizen)
                .where(Citizen.id == conversation.citizen_id)
                .values(interaction_count=Citizen.interaction_count + 1, last_interaction=turn.created_at)
            )
            return turn

        return await self._tracks.write(work, lock=f"town/{conversation_id}")

    async def transcript(self, conversation_id: str, *, limit: int | None = None) -> list[ConversationTurn]:
        """Return the turns of a conversation, the first one first; with a limit, the last ones."""
        asked = select(ConversationTurn).where(ConversationTurn.conversation_id == conversation_id)
        async with self._tracks.rows() as session:
            await find_row(session, CitizenConversation, conversation_id)
            last = asked.order_by(ConversationTurn.turn_number.desc()).limit(limit)
            return list(await session.scalars(last))[::-1]

    async def end_conversation(self, id: str, summary: str | None = None) -> CitizenConversation:
        """End a conversation, and return it."""
        async with self._tracks.rows() as session:
            row = await find_row(session, CitizenConversation, id)
            row.is_active = False
            if summary is not None:
                row.summary = summary
        return row

    async def get_dialogue_history(self, citizen: str, limit: int = 50) -> list[ConversationTurn]:
        """Return the last turns of all conversations with a citizen, the earliest first."""
        asked = (
            select(ConversationTurn)
            .join(CitizenConversation, CitizenConversation.id == ConversationTurn.conversation_id)
            .where(
                or_(CitizenConversation.citizen_id == citizen, CitizenConversation.citizen_name == citizen)
            )
            .order_by(ConversationTurn.created_at.desc(), ConversationTurn.id.desc())
        )
        async with self._tracks.rows() as session:
            return list(await session.scalars(asked.limit(limit)))[::-1]

    async def search(self, text: str, k: int = 10) -> list[ConversationTurn]:
        """Return the turns that fit a text best, in any conversation."""
        found = [hit.id for hit in await self._tracks.universe.search(text, schema=TURN.name, k=k)]
        async with self._tracks.rows() as session:
            asked = select(ConversationTurn).where(ConversationTurn.id.in_(found))
            rows = {row.id: row for row in await session.scalars(asked)}
        return [rows[id] for id in found if id in rows]

    async def forget(self, turn_id: str) -> bool:
        """Erase a turn for good, on both tracks; the others keep their numbers."""

        async def remove(session: AsyncSession) -> int:
            gone = delete(ConversationTurn).where(ConversationTurn.id == turn_id)
            return count_rows(await session.execute(gone))

        return await self._tracks.erase(remove, [ids.check_id(turn_id)])

    async def forget_conversation(self, id: str) -> bool:
        """Erase a conversation and all its turns for good, on both tracks."""
        conversation = await self.get_conversation(id)
        known = 0 if conversation is None else conversation.turn_count
        turns = {turn_id(id, number) for number in range(1, known + 1)}
        # Those that a forget which was cut short has left.
        left = await self._tracks.universe.list(prefix=f"{id}.", limit=None)
        turns.update(each.id for each in left if each.schema == TURN.name)

        async def remove(session: AsyncSession) -> int:
            await session.execute(delete(ConversationTurn).where(ConversationTurn.conversation_id == id))
            gone = delete(CitizenConversation).where(CitizenConversation.id == id)
            return count_rows(await session.execute(gone))

        return await self._tracks.erase(remove, sorted(turns))

    # -- relationships ----------------------------------------------------------------------

    async def create_relationship(
        self, a: str, b: str, relationship_type: str, *, strength: float = 0.5, notes: str | None = None
    ) -> CitizenRelationship:
        """Relate two citizens, given by id; the same relation twice is a Conflict."""
        async with self._tracks.rows() as session:
            for id in (a, b):
                await find_row(session, Citizen, id)
            row = CitizenRelationship(
                citizen_a_id=a,
                citizen_b_id=b,
                relationship_type=relationship_type,
                strength=strength,
                notes=notes,
            )
            session.add(row)
        return row

    async def get_relationships(self, citizen_id: str) -> list[CitizenRelationship]:
        """Return the relationships of a citizen at either end, the strongest first."""
        ends = CitizenRelationship.citizen_a_id, CitizenRelationship.citizen_b_id
        asked = select(CitizenRelationship).where(or_(*(end == citizen_id for end in ends)))
        async with self._tracks.rows() as session:
            return list(
                await session.scalars(
                    asked.order_by(CitizenRelationship.strength.desc(), CitizenRelationship.id)
                )
            )

    async def status(self) -> TownStatus:
        """Return how much is in the town."""
        async with self._tracks.rows() as session:

            async def count(model: Any, *where: Any) -> int:
                return await session.scalar(select(func.count()).select_from(model).where(*where)) or 0

            return TownStatus(
                await count(Citizen),
                await count(Citizen, Citizen.is_active),
                await count(CitizenConversation),
                await count(CitizenConversation, CitizenConversation.is_active),
                await count(ConversationTurn),
                await count(CitizenRelationship),
            )

    manifest = status


def turn_id(conversation_id: str, number: int) -> str:
    """Return the id of a turn: of two writers of the same number, only one can store it."""
    return f"{conversation_id}.{number}"


async def advance(session: AsyncSession, conversation_id: str, before: int, number: int, head: str) -> None:
    """Count the turns of a conversation up to a number; a Conflict unless it had as many as were read."""
    had = CitizenConversation.id == conversation_id, CitizenConversation.turn_count == before
    values = {"turn_count": number, "datum_chain_head": head}
    moved = await session.execute(update(CitizenConversation).where(*had).values(**values))
    if getattr(moved, "rowcount", 1) != 1:
        raise TransactionConflict(
            f"another turn was added to {conversation_id!r} meanwhile", hint="try again"
        )


def add_row(session: AsyncSession, datum: Datum, value: TurnContent) -> ConversationTurn:
    """Add the row of a turn to a session; it has the id of the datum."""
    row = ConversationTurn(
        id=datum.id,
        conversation_id=value.conversation_id,
        turn_number=value.turn_number,
        role=value.role,
        content=value.content,
        sentiment=value.sentiment,
        emotion=value.emotion,
        causal_parent=datum.parent_id,
        created_at=datum.created_at,
        updated_at=datum.created_at,
    )
    session.add(row)
    return row
