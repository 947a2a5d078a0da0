"""Properties and their categories: what every crumb, trail or stash has a value for."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dgent import ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import CATEGORIES, PRIORITY, PROPERTIES
from dgent.cupboard.change import Draft
from dgent.cupboard.kind import SCOPES, VALUE_TYPES
from dgent.cupboard.record import (
    CATEGORY,
    CRUMB,
    PROPERTY,
    STASH,
    TRAIL,
    CategoryRecord,
    CrumbRecord,
    PropertyRecord,
)
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.table import Table
from dgent.errors import Conflict
from dgent.model.query import Query
from dgent.model.schema import Schema

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard


@dataclass
class Property(Entity):
    """A property. Its type is categorical, text, integer, boolean, timestamp or list."""

    name: str = ""
    value_type: str = ""
    description: str = ""
    scope: str = "crumb"

    OWN: ClassVar[tuple[str, ...]] = ("name", "value_type", "description", "scope", "extra")

    @property
    def property_id(self) -> str:
        """Its id."""
        return self.id

    async def define_category(self, cupboard: Cupboard, name: str, ordinal: int = 0) -> Category:
        """Add a category to this property, which is stored at once."""
        return await cupboard.properties.define_category(self, name, ordinal)

    async def get_categories(self, cupboard: Cupboard) -> list[Category]:
        """Its categories, lowest ordinal first."""
        return await cupboard.properties.get_categories(self)


@dataclass
class Category(Entity):
    """A value of a categorical property; lower ordinals come first."""

    property_id: str = ""
    name: str = ""
    ordinal: int = 0

    OWN: ClassVar[tuple[str, ...]] = ("property_id", "name", "ordinal", "extra")

    @property
    def category_id(self) -> str:
        """Its id."""
        return self.id


_SCOPED: dict[str, Schema[Any]] = {"crumb": CRUMB, "trail": TRAIL, "stash": STASH}


class Properties(Table[Property]):
    """What every crumb, trail or stash has a value for, oldest first."""

    name = "properties"
    noun = "property"
    alias = "property_id"
    entity = Property
    schema = PROPERTY
    built_in = PROPERTIES
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "property_id": "texts",
        "name": "texts",
        "description": "text",
        "value_type": "texts",
        "scope": "texts",
        "created_at": "time",
    }

    async def _write(self, draft: Draft, id: str, entity: Property, old: PropertyRecord | None) -> None:
        """From the commit that defines it on, whoever has no value of its own has the default."""
        record = PropertyRecord(**self._merged(draft, id, entity, old))
        _check_property(record)
        if id in PROPERTIES and (record.name, record.value_type, record.scope) != _fixed(id):
            raise errors.InvalidData(f"{_fixed(id)[0]} is built in, and stays as it is", id=id)
        if old is not None and (old.value_type, old.scope) != (record.value_type, record.scope):
            raise errors.InvalidValueType(
                f"{old.name} keeps its type and its scope, because there are values of it",
                hint="define another property",
            )
        if old == record:
            return
        for other in await draft.named(PROPERTY.name, PropertyRecord, record.name):
            if other != id:
                raise errors.DuplicateName(f"there is a property {record.name!r} already", id=other)
        draft.put(id, record, created_at=entity._moment(draft.now))
        draft.redefine()

    async def _new_id(self, draft: Draft, entity: Property) -> str:
        """Derive the id from the name: two copies that define the same property agree on it."""
        return await _free_id(draft, PROPERTY, str(entity.name))

    async def _remove(self, draft: Draft, id: str) -> None:
        """Its categories go with it, and whatever has a value of it loses that."""
        if id in PROPERTIES:
            raise errors.InvalidData(f"{_fixed(id)[0]} is built in, and stays", id=id)
        schema, path = _SCOPED[draft.record(id).scope], ("properties", id)
        query = Query(schema=schema.name, where={path: {"$exists": True}}, limit=None)
        for crystal in await draft.tx.recall(query):
            draft.hold(crystal)
            record = draft.record(crystal.id)
            values = {key: value for key, value in record.properties.items() if key != id}
            draft.put(crystal.id, replace(record, properties=values))
        for category in await draft.select(CATEGORY.name, "property_id", [id]):
            draft.hold(category)
            draft.drop(category.id)
        draft.drop(id)
        draft.redefine()

    async def define(
        self,
        name: str,
        value_type: str,
        description: str = "",
        *,
        scope: str = "crumb",
        categories: Iterable[str] = (),
    ) -> Property:
        """Define a property, with its categories in their order, in one commit."""
        made = Property(name, value_type, description, scope)
        names = list(categories)

        async def work(draft: Draft) -> str:
            id = await self._new_id(draft, made)
            await self._write(draft, id, made, None)
            for place, each in enumerate(names):
                category = Category(id, each, place)
                new = await self._cupboard.categories._new_id(draft, category)
                await self._cupboard.categories._write(draft, new, category, None)
            return id

        id, draft = await self._cupboard._change(work, f"property {name}"[:200])
        self._write_back(made, id, draft)
        return made

    async def define_category(self, property_id: str | Property, name: str, ordinal: int = 0) -> Category:
        """Add a category to a property, given by its id or name."""
        found = await self._categorical(property_id)
        category = Category(found, name, ordinal)
        await self._cupboard.categories.set(None, category)
        return category

    async def get_categories(self, property_id: str | Property) -> list[Category]:
        """The categories of a property, given by its id or name; lowest ordinal first."""
        return await self._cupboard.categories.fetch(property_id=await self._categorical(property_id))

    async def _categorical(self, named: str | Property) -> str:
        await self._cupboard._ready()
        defined = self._cupboard._definitions.any(named.id if isinstance(named, Property) else named)
        if defined.value_type != "categorical":
            raise errors.InvalidValueType(f"{defined.name} is {defined.value_type}, and has no categories")
        return defined.id


class Categories(Table[Category]):
    """The values of categorical properties, lowest ordinal first."""

    name = "categories"
    by_time = False
    noun = "category"
    alias = "category_id"
    entity = Category
    schema = CATEGORY
    built_in = CATEGORIES
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "category_id": "texts",
        "property_id": "texts",
        "name": "texts",
        "ordinal": "whole",
        "created_at": "time",
    }

    async def _write(self, draft: Draft, id: str, entity: Category, old: CategoryRecord | None) -> None:
        record = CategoryRecord(**self._merged(draft, id, entity, old))
        if not isinstance(record.name, str) or not record.name:
            raise errors.InvalidName("a category needs a name", field="name")
        if type(record.ordinal) is not int or not -(2**53) < record.ordinal < 2**53:
            raise errors.InvalidData(f"an ordinal is a whole number, not {record.ordinal!r}", field="ordinal")
        if not record.property_id:
            raise errors.InvalidID("a category needs the id of its property", field="property_id")
        found = await draft.get(PropertyRecord, record.property_id, "property")
        if found.value_type != "categorical":
            raise errors.InvalidValueType(f"{found.name} is {found.value_type}, and has no categories")
        for stored in await draft.select(CATEGORY.name, "property_id", [record.property_id]):
            draft.hold(stored)
        for other, known in draft.each(CategoryRecord):
            if other != id and (known.property_id, known.name) == (record.property_id, record.name):
                raise errors.DuplicateName(f"{found.name} has a category {record.name!r} already", id=other)
        if old == record:
            return
        draft.put(id, record, created_at=entity._moment(draft.now))
        draft.redefine()
        if record.property_id == PRIORITY and old is not None and old.ordinal != record.ordinal:
            await _requeue(draft, id, record.ordinal)

    async def _new_id(self, draft: Draft, entity: Category) -> str:
        """Derive the id from the property and the name: two copies that add the same one agree on it."""
        return await _free_id(draft, CATEGORY, f"{entity.property_id}\0{entity.name}")

    async def _remove(self, draft: Draft, id: str) -> None:
        """Refused while a crumb, trail or stash has it."""
        if id in CATEGORIES:
            raise errors.InvalidData(f"{CATEGORIES[id].name} is built in, and stays", id=id)
        record = draft.record(id)
        found = await draft.find(PropertyRecord, record.property_id)
        schema: Schema[Any] = _SCOPED["crumb" if found is None else found.scope]
        where = {("properties", record.property_id): id}
        users = await draft.tx.recall(Query(schema=schema.name, where=where, limit=1))
        if users:
            raise Conflict(
                f"{users[0].id!r} has the category {record.name!r}, and perhaps others have",
                hint="give them another one first",
            )
        draft.drop(id)
        draft.redefine()

    def _sorted(self, found: list[Any]) -> list[Any]:
        return sorted(found, key=lambda each: (each.value.ordinal, each.value.name))

    async def _select(self, universe: Any, wanted: Any) -> list[Any]:
        found = await super()._select(universe, wanted._replace(limit=None, offset=0))
        last = None if wanted.limit is None else wanted.offset + wanted.limit
        return self._sorted(found)[wanted.offset : last]


async def _free_id(draft: Draft, schema: Schema[Any], name: str) -> str:
    """Return the id that follows from a name, or another one where a renamed entity has that."""
    id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{schema.name}\0{name.encode(errors='replace').decode()}"))
    return ids.new_id() if await draft.exists(id) else id


async def _requeue(draft: Draft, category: str, ordinal: int) -> None:
    """A priority has another rank: so have the crumbs in the queue that have it."""
    path = ("properties", PRIORITY)
    query = Query(schema=CRUMB.name, where={path: category, "state": "ready"}, limit=None)
    for crystal in await draft.tx.recall(query):
        draft.hold(crystal)
        crumb = draft.record(crystal.id)
        if isinstance(crumb, CrumbRecord) and crumb.queue is not None:
            draft.put(crystal.id, replace(crumb, queue=ordinal))


def _check_property(record: PropertyRecord) -> None:
    if not isinstance(record.name, str) or not record.name:
        raise errors.InvalidName("a property needs a name", field="name")
    if record.value_type not in VALUE_TYPES:
        raise errors.InvalidValueType(
            f"{record.value_type!r} is no type of value", hint=f"use one of {', '.join(VALUE_TYPES)}"
        )
    if record.scope not in SCOPES:
        raise errors.InvalidData(
            f"{record.scope!r} is no scope", hint=f"use one of {', '.join(SCOPES)}", field="scope"
        )


def _fixed(id: str) -> tuple[str, str, str]:
    built_in = PROPERTIES[id]
    return built_in.name, built_in.value_type, built_in.scope
