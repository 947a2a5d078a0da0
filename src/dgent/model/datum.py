"""The datum: the one thing dgent stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dgent import clock, codec, ids
from dgent.errors import InputError


class Datum(msgspec.Struct, frozen=True):
    """One record: JSON-like data, opaque content, and where it came from.

    `rev` and `seq` are set by the store. `problem` says why a query gave this raw datum instead
    of a crystal. `extra` holds envelope fields that a newer dgent wrote.
    """

    id: str = msgspec.field(default_factory=ids.new_id)
    created_at: datetime = msgspec.field(default_factory=clock.now)
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    content: bytes = b""
    tags: frozenset[str] = frozenset()
    author: str | None = None
    source: str | None = None
    parent_id: str | None = None
    schema: str | None = None
    schema_version: int | None = None
    rev: int | None = None
    seq: int | None = None
    problem: str | None = None
    extra: dict[str, Any] | None = None

    @classmethod
    def create(cls, data: Mapping[str, Any] | None = None, **fields: Any) -> Datum:
        """A checked datum; raises InputError naming the field that cannot be stored."""
        return cls(data=dict(data or {}), **fields).checked()

    def replace(self, **changes: Any) -> Datum:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def with_tags(self, *tags: str) -> Datum:
        """A copy with more tags."""
        return self.replace(tags=self.tags | ids.check_tags(tags))

    def derive(self, data: Mapping[str, Any] | None = None, **fields: Any) -> Datum:
        """A new datum that this one caused."""
        return Datum.create(data, parent_id=self.id, **fields)

    def checked(self, plain: bool = False) -> Datum:
        """This datum in storable form, or an InputError that names the wrong field.

        `plain` says that data and tags went through this before and need no second look.
        """
        id = ids.check_id(self.id)
        if not isinstance(self.created_at, datetime):
            raise InputError("created_at must be a datetime", field="created_at")
        clock.to_us(self.created_at)
        if not isinstance(self.data, dict):
            raise InputError(f"data must be a dict, not {type(self.data).__name__}", field="data")
        if not isinstance(self.content, bytes):
            raise InputError(f"content must be bytes, not {type(self.content).__name__}", field="content")
        inexact = self._check_names()
        if id is not self.id:
            inexact["id"] = id
        if plain:
            return self.replace(**inexact) if inexact else self
        return self.replace(data=codec.plain(self.data), tags=ids.check_tags(self.tags), **inexact)

    def _check_names(self) -> dict[str, Any]:
        """The names that are not plain texts, such as members of an enum, as the texts they hold."""
        inexact: dict[str, Any] = {}
        for field in ("author", "source", "schema"):
            value = getattr(self, field)
            if value is not None and (text := ids.check_name(value, field)) is not value:
                inexact[field] = text
        parent = self.parent_id
        if parent is not None and (text := ids.check_id(parent, "parent_id")) is not parent:
            inexact["parent_id"] = text
        version = self.schema_version
        if self.schema is None:
            if version is not None:
                raise InputError("schema_version is set but schema is not", field="schema_version")
        elif type(version) is not int or not 1 <= version < 2**31:
            raise InputError(
                "schema_version must be a whole number from 1 when schema is set", field="schema_version"
            )
        return inexact


def tagged(tags: Iterable[str] | None) -> frozenset[str]:
    """Tags from whatever iterable a caller gave."""
    return frozenset() if tags is None else ids.check_tags(tags)
