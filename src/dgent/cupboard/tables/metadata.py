"""Metadata: comments, attachments and other entries of a crumb, and their schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dgent.cupboard import errors
from dgent.cupboard.builtin import METADATA_SCHEMAS, schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import CONTENT_TYPES
from dgent.cupboard.record import METADATA, SCHEMA, CrumbRecord, MetadataRecord, PropertyRecord, SchemaRecord
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.filter import Filter, take_page
from dgent.cupboard.tables.table import Table
from dgent.model.crystal import Crystal


@dataclass
class Metadata(Entity):
    """A metadata entry of a crumb; `table_name` is the name of its schema, `author` who wrote it."""

    crumb_id: str = ""
    table_name: str = ""
    content: str = ""
    property_id: str | None = None
    author: str = field(default="", init=False, compare=False)

    OWN: ClassVar[tuple[str, ...]] = ("crumb_id", "table_name", "content", "property_id", "extra")

    @property
    def metadata_id(self) -> str:
        """The same as `id`."""
        return self.id


@dataclass
class MetadataSchema(Entity):
    """A kind of metadata: its name, and whether the content is text or JSON."""

    name: str = ""
    description: str = ""
    content_type: str = "text"

    OWN: ClassVar[tuple[str, ...]] = ("name", "description", "content_type", "extra")

    @property
    def schema_name(self) -> str:
        """The same as `name`."""
        return self.name


MAX_NAME = 256
_NAME = re.compile(r"[a-z0-9_]+")


class Metadatas(Table[Metadata]):
    """Comments, attachments and other entries of crumbs, oldest first."""

    name = "metadata"
    noun = "metadata entry"
    alias = "metadata_id"
    entity = Metadata
    schema = METADATA
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "metadata_id": "texts",
        "schema": "texts",
        "table_name": "texts",
        "crumb_id": "texts",
        "property_id": "texts",
        "content": "text",
        "content_contains": "text",
        "created_at": "time",
    }

    async def _write(
        self, changeset: Changeset, id: str, entity: Metadata, old: MetadataRecord | None
    ) -> None:
        record = MetadataRecord(**self._merge_fields(changeset, id, entity, old))
        if await changeset.find(SchemaRecord, schema_id(str(record.table_name) or "-")) is None:
            raise errors.SchemaNotFound(
                f"no metadata schema {record.table_name!r} is registered",
                hint="register it with cupboard.register_schema",
            )
        if not isinstance(record.content, str) or not record.content:
            raise errors.InvalidContent("a metadata entry needs content", field="content")
        if old is not None and old.crumb_id != record.crumb_id:
            raise errors.InvalidData("a metadata entry cannot be moved to another crumb", field="crumb_id")
        await changeset.get(CrumbRecord, record.crumb_id or "-", "crumb")
        if (
            record.property_id is not None
            and await changeset.find(PropertyRecord, record.property_id) is None
        ):
            raise errors.PropertyNotFound(f"no property {record.property_id!r} is defined")
        if old != record:
            changeset.put(id, record, created_at=entity._creation_time(changeset.now))

    def _build(self, found: Crystal[Any]) -> Metadata:
        entity = super()._build(found)
        entity.author = _author(found.value, found.author)
        return entity

    def _write_back(self, entity: Metadata, id: str, changeset: Changeset) -> None:
        super()._write_back(entity, id, changeset)
        entity.author = _author(changeset.record(id), self._cupboard._universe.author)

    async def _where(self, wanted: Filter) -> dict[str, Any]:
        values = dict(wanted.values)
        values.pop("content_contains", None)
        schemas = [set(values.pop(column)) for column in ("schema", "table_name") if column in values]
        where = await super()._where(wanted._replace(values=values))
        if schemas:
            where["table_name"] = {"$in": sorted(set.intersection(*schemas))}
        return where

    async def _select(self, universe: Any, wanted: Filter) -> list[Crystal[Any]]:
        part = wanted.values.get("content_contains")
        if part is None:
            return await super()._select(universe, wanted)
        found = await super()._select(universe, wanted._replace(limit=None, offset=0))
        folded = part.casefold()
        return take_page([each for each in found if folded in each.value.content.casefold()], wanted)


def _author(record: MetadataRecord, writer: str | None) -> str:
    """Return who wrote an entry; an imported one names its author."""
    named = record.extra.get("author")
    return named if isinstance(named, str) else writer or ""


class MetadataSchemas(Table[MetadataSchema]):
    """The kinds of metadata, oldest first; they are registered and never unregistered."""

    name = "schemas"
    noun = "metadata schema"
    alias = "schema_name"
    entity = MetadataSchema
    schema = SCHEMA
    built_in = METADATA_SCHEMAS
    columns: ClassVar[Mapping[str, str]] = {"id": "texts", "name": "texts", "content_type": "texts"}

    async def _set(self, changeset: Changeset, id: str | None, entity: Any, expected: int | None) -> str:
        if not is_schema_name(entity.name):
            raise errors.InvalidName(
                f"{entity.name!r:.80} is not a valid name of a metadata schema",
                hint="use small letters, digits and _",
                field="name",
            )
        wanted = schema_id(entity.name)
        if id is None and await changeset.find(SchemaRecord, wanted) is not None:
            raise errors.DuplicateName(f"a metadata schema {entity.name!r} already exists")
        if id is not None and id != wanted:
            raise errors.InvalidData("a metadata schema cannot be renamed", field="name")
        old = await changeset.find(SchemaRecord, wanted)
        if expected is not None:
            self._check_version(changeset, wanted, old, expected)
        await self._write(changeset, wanted, entity, old)
        return wanted

    async def _write(
        self, changeset: Changeset, id: str, entity: MetadataSchema, old: SchemaRecord | None
    ) -> None:
        record = SchemaRecord(**self._merge_fields(changeset, id, entity, old))
        if record.content_type not in CONTENT_TYPES:
            raise errors.InvalidData(
                f"{record.content_type!r} is not a valid type of content",
                hint=f"use one of {', '.join(CONTENT_TYPES)}",
                field="content_type",
            )
        if id in METADATA_SCHEMAS and record != METADATA_SCHEMAS[id]:
            raise errors.InvalidData(f"{record.name} is built in and cannot be changed", id=id)
        if old != record:
            changeset.put(id, record, created_at=entity._creation_time(changeset.now))

    async def _remove(self, changeset: Changeset, id: str) -> None:
        raise errors.InvalidData("a metadata schema cannot be unregistered", id=id)


def is_schema_name(name: object) -> bool:
    """Check whether this is a valid name of a metadata schema."""
    return isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
