"""Properties and their categories: every crumb, trail or stash has a value for each property."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dgent import ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import CATEGORIES, PROPERTIES
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import SCOPES, VALUE_TYPES
from dgent.cupboard.record import (
    CATEGORY,
    CRUMB,
    PRIORITY,
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
        """The same as `id`."""
        return self.id

    async def define_category(self, cupboard: Cupboard, name: str, ordinal: int = 0) -> Category:
        """Add a category to this property and store it at once."""
        return await cupboard.properties.define_category(self, name, ordinal)

    async def get_categories(self, cupboard: Cupboard) -> list[Category]:
        """Return its categories, lowest ordinal first."""
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
        """The same as `id`."""
        return self.id


_SCOPED: dict[str, Schema[Any]] = {"crumb": CRUMB, "trail": TRAIL, "stash": STASH}


class Properties(Table[Property]):
    """The properties of crumbs, trails and stashes, oldest first."""

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

    async def _write(
        self, changeset: Changeset, id: str, entity: Property, old: PropertyRecord | None
    ) -> None:
        """Write a property; entities without a value of it have the default from then on."""
        record = PropertyRecord(**self._merge_fields(changeset, id, entity, old))
        _check_property(record)
        if id in PROPERTIES and (record.name, record.value_type, record.scope) != _builtin_identity(id):
            raise errors.InvalidData(f"{_builtin_identity(id)[0]} is built in and cannot be changed", id=id)
        if old is not None and (old.value_type, old.scope) != (record.value_type, record.scope):
            raise errors.InvalidValueType(
                f"the type and the scope of {old.name} cannot be changed, because it may have values",
                hint="define another property",
            )
        if old == record:
            return
        for other in await changeset.find_named(PROPERTY.name, PropertyRecord, record.name):
            if other != id:
                raise errors.DuplicateName(f"a property {record.name!r} already exists", id=other)
        changeset.put(id, record, created_at=entity._creation_time(changeset.now))
        changeset.mark_redefined()

    async def _new_id(self, changeset: Changeset, entity: Property) -> str:
        """Derive the id from the name, so that two copies of a store that define the same property agree."""
        return await _derive_id(changeset, PROPERTY, str(entity.name))

    async def _remove(self, changeset: Changeset, id: str) -> None:
        """Delete a property with its categories and all values of it."""
        if id in PROPERTIES:
            raise errors.InvalidData(f"{_builtin_identity(id)[0]} is built in and cannot be deleted", id=id)
        await remove_property(changeset, id)

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

        async def work(changeset: Changeset) -> str:
            id = await self._new_id(changeset, made)
            await self._write(changeset, id, made, None)
            for place, each in enumerate(names):
                category = Category(id, each, place)
                new = await self._cupboard.categories._new_id(changeset, category)
                await self._cupboard.categories._write(changeset, new, category, None)
            return id

        id, changeset = await self._cupboard._change(work, f"property {name}"[:200])
        self._write_back(made, id, changeset)
        return made

    async def define_category(self, property_id: str | Property, name: str, ordinal: int = 0) -> Category:
        """Add a category to a property, given by its id or name."""
        found = await self._categorical(property_id)
        category = Category(found, name, ordinal)
        await self._cupboard.categories.set(None, category)
        return category

    async def get_categories(self, property_id: str | Property) -> list[Category]:
        """Return the categories of a property, given by its id or name; lowest ordinal first."""
        return await self._cupboard.categories.fetch(property_id=await self._categorical(property_id))

    async def _categorical(self, named: str | Property) -> str:
        await self._cupboard._ready()
        definition = self._cupboard._definitions.find_any(named.id if isinstance(named, Property) else named)
        if definition.value_type != "categorical":
            raise errors.InvalidValueType(
                f"{definition.name} is {definition.value_type}, and has no categories"
            )
        return definition.id


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

    async def _write(
        self, changeset: Changeset, id: str, entity: Category, old: CategoryRecord | None
    ) -> None:
        record = CategoryRecord(**self._merge_fields(changeset, id, entity, old))
        if not isinstance(record.name, str) or not record.name:
            raise errors.InvalidName("a category needs a name", field="name")
        if type(record.ordinal) is not int or not -(2**53) < record.ordinal < 2**53:
            raise errors.InvalidData(
                f"expected a whole number as ordinal, got {record.ordinal!r}", field="ordinal"
            )
        if not record.property_id:
            raise errors.InvalidID("a category needs the id of its property", field="property_id")
        found = await changeset.get(PropertyRecord, record.property_id, "property")
        if found.value_type != "categorical":
            raise errors.InvalidValueType(f"{found.name} is {found.value_type}, and has no categories")
        for stored in await changeset.select(CATEGORY.name, "property_id", [record.property_id]):
            changeset.add_loaded(stored)
        for other, known in changeset.each(CategoryRecord):
            if other != id and (known.property_id, known.name) == (record.property_id, record.name):
                raise errors.DuplicateName(f"{found.name} already has a category {record.name!r}", id=other)
        if old == record:
            return
        changeset.put(id, record, created_at=entity._creation_time(changeset.now))
        changeset.mark_redefined()
        if record.property_id == PRIORITY and old is not None and old.ordinal != record.ordinal:
            await _requeue(changeset, id, record.ordinal)

    async def _new_id(self, changeset: Changeset, entity: Category) -> str:
        """Derive the id from property and name, so that two copies of a store that add the same one agree."""
        return await _derive_id(changeset, CATEGORY, f"{entity.property_id}\0{entity.name}")

    async def _remove(self, changeset: Changeset, id: str) -> None:
        """Delete a category; refused while a crumb, trail or stash has it."""
        if id in CATEGORIES:
            raise errors.InvalidData(f"{CATEGORIES[id].name} is built in and cannot be deleted", id=id)
        await remove_category(changeset, id)

    def _sort(self, found: list[Any]) -> list[Any]:
        return sorted(found, key=lambda each: (each.value.ordinal, each.value.name))

    async def _select(self, universe: Any, wanted: Any) -> list[Any]:
        found = await super()._select(universe, wanted._replace(limit=None, offset=0))
        last = None if wanted.limit is None else wanted.offset + wanted.limit
        return self._sort(found)[wanted.offset : last]


async def load_values(changeset: Changeset, id: str) -> list[str]:
    """Load the entities with a value of a property; return their ids."""
    schema, path = _SCOPED[changeset.record(id).scope], ("properties", id)
    found = await changeset.tx.recall(Query(schema=schema.name, where={path: {"$exists": True}}, limit=None))
    for crystal in found:
        changeset.add_loaded(crystal)
    held = (each.id for each in found if changeset.record(each.id) is not None)
    return [each for each in held if id in changeset.record(each).properties]


async def remove_property(changeset: Changeset, id: str) -> None:
    """Delete a property with its categories and all values of it."""
    for held in await load_values(changeset, id):
        record = changeset.record(held)
        values = {key: value for key, value in record.properties.items() if key != id}
        changeset.put(held, replace(record, properties=values))
    for category in await changeset.select(CATEGORY.name, "property_id", [id]):
        changeset.add_loaded(category)
        changeset.drop(category.id)
    changeset.drop(id)
    changeset.mark_redefined()


async def remove_category(changeset: Changeset, id: str) -> None:
    """Delete a category; raises Conflict while a crumb, trail or stash has it."""
    record = changeset.record(id)
    found = await changeset.find(PropertyRecord, record.property_id)
    schema: Schema[Any] = _SCOPED["crumb" if found is None else found.scope]
    where = {("properties", record.property_id): id}
    users = await changeset.tx.recall(Query(schema=schema.name, where=where, limit=1))
    if users:
        raise Conflict(
            f"{users[0].id!r} has the category {record.name!r}, and others may have it",
            hint="give them another category first",
        )
    changeset.drop(id)
    changeset.mark_redefined()


async def _derive_id(changeset: Changeset, schema: Schema[Any], name: str) -> str:
    """Return the id that follows from a name, or a new one where a renamed entity has that id."""
    id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{schema.name}\0{name.encode(errors='replace').decode()}"))
    return ids.new_id() if await changeset.exists(id) else id


async def _requeue(changeset: Changeset, category: str, ordinal: int) -> None:
    """Give the queued crumbs of a priority its new rank."""
    path = ("properties", PRIORITY)
    query = Query(schema=CRUMB.name, where={path: category, "state": "ready"}, limit=None)
    for crystal in await changeset.tx.recall(query):
        changeset.add_loaded(crystal)
        crumb = changeset.record(crystal.id)
        if isinstance(crumb, CrumbRecord) and crumb.queue is not None:
            changeset.put(crystal.id, replace(crumb, queue=ordinal))


def _check_property(record: PropertyRecord) -> None:
    if not isinstance(record.name, str) or not record.name:
        raise errors.InvalidName("a property needs a name", field="name")
    if record.value_type not in VALUE_TYPES:
        raise errors.InvalidValueType(
            f"{record.value_type!r} is not a valid type of value", hint=f"use one of {', '.join(VALUE_TYPES)}"
        )
    if record.scope not in SCOPES:
        raise errors.InvalidData(
            f"{record.scope!r} is not a valid scope", hint=f"use one of {', '.join(SCOPES)}", field="scope"
        )


def _builtin_identity(id: str) -> tuple[str, str, str]:
    built_in = PROPERTIES[id]
    return built_in.name, built_in.value_type, built_in.scope
