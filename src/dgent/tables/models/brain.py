"""The tables of Brain: crystals with their tags, and settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from dgent import clock
from dgent.tables.models.model import ID, Base, TimestampMixin, new_id


class Crystal(TimestampMixin, Base):
    """A captured text as a row: what to find and count it by. Its text is the datum `datum_id`."""

    __tablename__ = "brain_crystals"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    content_hash: Mapped[str] = mapped_column(String(64), index=True)
    summary: Mapped[str] = mapped_column(Text)
    tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    access_count: Mapped[int] = mapped_column(default=0, server_default="0")
    last_accessed: Mapped[datetime | None]
    datum_id: Mapped[str | None] = mapped_column(ID, index=True)
    source_type: Mapped[str | None] = mapped_column(String(64))
    source_ref: Mapped[str | None] = mapped_column(Text)

    def touch(self) -> None:
        """Count one more access, now."""
        self.access_count = (self.access_count or 0) + 1
        self.last_accessed = clock.now()


class Tag(Base):
    """One tag of one crystal, so that a tag finds its crystals by an index."""

    __tablename__ = "brain_crystal_tags"
    __table_args__ = (UniqueConstraint("crystal_id", "tag"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    crystal_id: Mapped[str] = mapped_column(ID, ForeignKey("brain_crystals.id", ondelete="CASCADE"))
    tag: Mapped[str] = mapped_column(String(255), index=True)


class BrainSettings(TimestampMixin, Base):
    """The settings of a brain: one row, `default`."""

    __tablename__ = "brain_settings"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default="default", server_default="default")
    default_tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    retention_days: Mapped[int | None]
    max_crystals: Mapped[int | None]
    config: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
