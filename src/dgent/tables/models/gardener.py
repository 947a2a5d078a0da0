"""The tables of Gardener: sessions, plots, ideas with their lifecycle, and how ideas connect."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from dgent.tables.models.model import ID, Base, CausalMixin, TimestampMixin, new_id


class Lifecycle(StrEnum):
    """The stages of an idea, in their order."""

    SEED = "SEED"
    SAPLING = "SAPLING"
    TREE = "TREE"
    FLOWER = "FLOWER"
    COMPOST = "COMPOST"


class GardenSession(TimestampMixin, Base):
    """A time that was spent in the garden; `duration_seconds` is there once it has ended."""

    __tablename__ = "gardener_sessions"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    title: Mapped[str | None] = mapped_column(Text)
    notes: Mapped[str | None] = mapped_column(Text)
    duration_seconds: Mapped[float | None]


class Plot(TimestampMixin, Base):
    """A part of the garden, for ideas that belong together."""

    __tablename__ = "garden_plots"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    description: Mapped[str | None] = mapped_column(Text)
    color: Mapped[str | None] = mapped_column(String(32))


class GardenIdea(TimestampMixin, CausalMixin, Base):
    """An idea and its stage; its text is also the datum `datum_id`, with the history of its stages."""

    __tablename__ = "garden_ideas"
    __table_args__ = (
        CheckConstraint("lifecycle IN ('SEED', 'SAPLING', 'TREE', 'FLOWER', 'COMPOST')", name="lifecycle"),
        CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    content: Mapped[str] = mapped_column(Text)
    lifecycle: Mapped[str] = mapped_column(String(16), default="SEED", server_default="SEED", index=True)
    confidence: Mapped[float] = mapped_column(default=0.3, server_default="0.3")
    session_id: Mapped[str | None] = mapped_column(
        ID, ForeignKey("gardener_sessions.id", ondelete="SET NULL"), index=True
    )
    last_nurtured: Mapped[datetime | None]
    nurture_count: Mapped[int] = mapped_column(default=0, server_default="0")
    plot_id: Mapped[str | None] = mapped_column(
        ID, ForeignKey("garden_plots.id", ondelete="SET NULL"), index=True
    )
    datum_id: Mapped[str | None] = mapped_column(ID, index=True)
    tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")


class IdeaConnection(TimestampMixin, Base):
    """A connection from one idea to another."""

    __tablename__ = "garden_idea_connections"
    __table_args__ = (UniqueConstraint("source_id", "target_id", "connection_type"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    source_id: Mapped[str] = mapped_column(ID, ForeignKey("garden_ideas.id", ondelete="CASCADE"))
    target_id: Mapped[str] = mapped_column(ID, ForeignKey("garden_ideas.id", ondelete="CASCADE"), index=True)
    connection_type: Mapped[str] = mapped_column(String(64))
    strength: Mapped[float] = mapped_column(default=0.5, server_default="0.5")
    notes: Mapped[str | None] = mapped_column(Text)
