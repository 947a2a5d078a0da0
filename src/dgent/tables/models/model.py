"""Shared parts of the models: their base, the types of their columns, and two mixins.

Each column that is not given has a default in the program and in the database, so that a row can also be
inserted with plain SQL, and a later revision can add a column to a table that has rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, Double, MetaData, String, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dgent import clock
from dgent.ids import new_id as new_id

ID = String(64)
Json = JSON().with_variant(JSONB(), "postgresql")

# Constraints have names of their own, so that a revision can drop them on either engine.
NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The base of the models, with their metadata."""

    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: DateTime(timezone=True),
        float: Double(),
        list[str]: Json,
        dict[str, Any]: Json,
    }


class TimestampMixin:
    """`created_at` and `updated_at`, in UTC."""

    created_at: Mapped[datetime] = mapped_column(default=clock.now, server_default=func.now(), index=True)
    updated_at: Mapped[datetime] = mapped_column(
        default=clock.now, onupdate=clock.now, server_default=func.now()
    )


class CausalMixin:
    """`causal_parent`: the id of the row, or of the datum, that caused this one."""

    causal_parent: Mapped[str | None] = mapped_column(ID, index=True)
