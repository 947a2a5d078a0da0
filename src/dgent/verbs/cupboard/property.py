"""Verbs for properties: fields that every crumb, trail or stash has a value for."""

from __future__ import annotations

from typing import Annotated, Any

from dgent.cupboard import Cupboard
from dgent.cupboard.definition import Definition
from dgent.cupboard.kind import Scope, ValueType
from dgent.errors import Conflict, InputError, NotFound
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    CategoryInfo,
    CategoryList,
    PropertyInfo,
    Removed,
    Value,
    property_of,
)
from dgent.verbs.registry import Ask, Items, argument, option, verb

Name = Annotated[str, argument("the property's name or id", complete="property")]


class Define(Ask):
    """Input of `property.define`."""

    name: Annotated[str, argument("its name")]
    type: Annotated[ValueType, option("what its values are", short="t")] = "text"
    scope: Annotated[Scope, option("what has it")] = "crumb"
    description: Annotated[str, option("what it is for", short="d")] = ""
    category: Annotated[tuple[str, ...], option("a value of a categorical one; the first ranks first")] = ()


@verb("property.define", effect="write", errors=(InputError, Conflict), makes=True)
async def define(context: Context, ask: Define) -> PropertyInfo:
    """Define a property; everything in its scope has the default at once."""
    cupboard = await input.cupboard_of(context)
    kind = "categorical" if ask.category and ask.type == "text" else ask.type
    made = await cupboard.properties.define(
        ask.name, kind, ask.description, scope=ask.scope, categories=ask.category
    )
    return property_of(made, (await cupboard.definitions()).find_any(made.id))


class ListProperties(Ask):
    """Input of `property.list`."""

    scope: Annotated[Scope | None, option("only those of crumbs, of trails or of stashes")] = None


@verb("property.list", effect="read")
async def list_(context: Context, ask: ListProperties) -> Items[PropertyInfo]:
    """List the properties that are defined, with their categories."""
    cupboard = await input.cupboard_of(context)
    filters = {} if ask.scope is None else {"scope": ask.scope}
    definitions = await cupboard.definitions()
    return Items(
        [
            property_of(each, definitions.find_any(each.id))
            for each in await cupboard.properties.fetch(filters)
        ]
    )


async def _of(cupboard: Cupboard, property: str, id: str) -> tuple[Definition, Any]:
    """Return a property, and the crumb, trail or stash of the call."""
    defined = (await cupboard.definitions()).find_any(property)
    return defined, await input.find_entity(cupboard, input.TABLES[defined.scope], id)


class GetProperty(Ask):
    """Input of `property.get` and `property.clear`."""

    id: Annotated[str, argument("the crumb, trail or stash", complete="crumb")]
    name: Name


@verb("property.get", effect="read", errors=(NotFound,))
async def get(context: Context, ask: GetProperty) -> Value:
    """Show the value that something has for a property."""
    defined, entity = await _of(await input.cupboard_of(context), ask.name, ask.id)
    return Value(entity.id, defined.name, entity.readable()[defined.name])


class SetProperty(GetProperty):
    """Input of `property.set`."""

    value: Annotated[str, argument("its value: a category's name, a text, JSON; a list as a,b", words=True)]


@verb("property.set", effect="write", errors=(InputError, NotFound, Conflict))
async def set_(context: Context, ask: SetProperty) -> Value:
    """Give a crumb, trail or stash a value for a property."""
    cupboard = await input.cupboard_of(context)
    defined, entity = await _of(cupboard, ask.name, ask.id)
    entity.set_property(defined.id, input.parse_value(defined, ask.value))
    await cupboard.table(input.TABLES[defined.scope]).set(entity.id, entity)
    return Value(entity.id, defined.name, entity.readable()[defined.name])


@verb("property.clear", effect="write", errors=(NotFound, Conflict))
async def clear(context: Context, ask: GetProperty) -> Value:
    """Give a property of a crumb, trail or stash its default again."""
    cupboard = await input.cupboard_of(context)
    defined, entity = await _of(cupboard, ask.name, ask.id)
    entity.clear_property(defined.id)
    await cupboard.table(input.TABLES[defined.scope]).set(entity.id, entity)
    return Value(entity.id, defined.name, entity.readable()[defined.name])


class AddCategory(Ask):
    """Input of `property.category`."""

    name: Name
    category: Annotated[str, argument("the name of the category")]
    ordinal: Annotated[int | None, argument("its rank, lower first; behind the others without it")] = None


@verb("property.category", effect="write", errors=(InputError, NotFound, Conflict))
async def category(context: Context, ask: AddCategory) -> CategoryInfo:
    """Add a category to a property."""
    cupboard = await input.cupboard_of(context)
    known = await cupboard.properties.get_categories(ask.name)
    last = max((each.ordinal for each in known), default=-1)
    ordinal = last + 1 if ask.ordinal is None else ask.ordinal
    made = await cupboard.properties.define_category(ask.name, ask.category, ordinal)
    return CategoryInfo(made.id, made.name, made.ordinal)


class OneProperty(Ask):
    """Input of a verb that takes one property."""

    name: Name


@verb("property.categories", effect="read", errors=(InputError, NotFound))
async def categories(context: Context, ask: OneProperty) -> CategoryList:
    """List the categories of a property, lowest ordinal first."""
    cupboard = await input.cupboard_of(context)
    items = [
        CategoryInfo(each.id, each.name, each.ordinal)
        for each in await cupboard.properties.get_categories(ask.name)
    ]
    return CategoryList((await cupboard.definitions()).find_any(ask.name).name, items)


@verb("property.delete", effect="write", errors=(InputError, NotFound, Conflict))
async def delete(context: Context, ask: OneProperty) -> Removed:
    """Remove a property with its categories; values that are stored are no longer read."""
    cupboard = await input.cupboard_of(context)
    defined = (await cupboard.definitions()).find_any(ask.name)
    await cupboard.properties.delete(defined.id)
    return Removed("properties", defined.id, defined.name)
