"""The tables of Town: citizens, their conversations turn by turn, and how they relate."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint, true
from sqlalchemy.orm import Mapped, mapped_column

from dgent.tables.models.model import ID, Base, CausalMixin, TimestampMixin, new_id

ROLES = ("user", "citizen", "system")


class Citizen(TimestampMixin, Base):
    """Somebody who lives in the town."""

    __tablename__ = "town_citizens"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    archetype: Mapped[str | None] = mapped_column(String(255))
    description: Mapped[str | None] = mapped_column(Text)
    traits: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    is_active: Mapped[bool] = mapped_column(default=True, server_default=true())
    last_interaction: Mapped[datetime | None]
    interaction_count: Mapped[int] = mapped_column(default=0, server_default="0")
    memory_datum_id: Mapped[str | None] = mapped_column(ID)


class CitizenConversation(TimestampMixin, CausalMixin, Base):
    """A conversation with a citizen; `datum_chain_head` is the datum of its last turn."""

    __tablename__ = "citizen_conversations"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    citizen_id: Mapped[str | None] = mapped_column(
        ID, ForeignKey("town_citizens.id", ondelete="CASCADE"), index=True
    )
    citizen_name: Mapped[str] = mapped_column(String(255), index=True)
    topic: Mapped[str | None] = mapped_column(Text)
    summary: Mapped[str | None] = mapped_column(Text)
    turn_count: Mapped[int] = mapped_column(default=0, server_default="0")
    is_active: Mapped[bool] = mapped_column(default=True, server_default=true())
    datum_chain_head: Mapped[str | None] = mapped_column(ID)


class ConversationTurn(TimestampMixin, CausalMixin, Base):
    """One turn of a conversation; its id is that of its datum, and `causal_parent` the turn before it."""

    __tablename__ = "conversation_turns"
    __table_args__ = (
        UniqueConstraint("conversation_id", "turn_number"),
        CheckConstraint("role IN ('user', 'citizen', 'system')", name="role"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    conversation_id: Mapped[str] = mapped_column(
        ID, ForeignKey("citizen_conversations.id", ondelete="CASCADE")
    )
    turn_number: Mapped[int] = mapped_column(default=0, server_default="0")
    role: Mapped[str] = mapped_column(String(16))
    content: Mapped[str] = mapped_column(Text)
    sentiment: Mapped[float | None]
    emotion: Mapped[str | None] = mapped_column(String(64))


class CitizenRelationship(TimestampMixin, Base):
    """The relation of one citizen to another."""

    __tablename__ = "town_citizen_relationships"
    __table_args__ = (UniqueConstraint("citizen_a_id", "citizen_b_id", "relationship_type"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    citizen_a_id: Mapped[str] = mapped_column(ID, ForeignKey("town_citizens.id", ondelete="CASCADE"))
    citizen_b_id: Mapped[str] = mapped_column(
        ID, ForeignKey("town_citizens.id", ondelete="CASCADE"), index=True
    )
    relationship_type: Mapped[str] = mapped_column(String(64))
    strength: Mapped[float] = mapped_column(default=0.5, server_default="0.5")
    interaction_count: Mapped[int] = mapped_column(default=0, server_default="0")
    notes: Mapped[str | None] = mapped_column(Text)
