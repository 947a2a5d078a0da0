"""Verbs for metadata: comments and other entries beside crumbs."""

from __future__ import annotations

from typing import Annotated, Any

from dgent.cupboard import Crumb, Metadata
from dgent.cupboard.kind import ContentType
from dgent.errors import Conflict, InputError, NotFound
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    MetadataEntry,
    Removed,
    SchemaInfo,
    entry_of,
)
from dgent.verbs.cupboard.crumb import OneCrumb as OneCrumb
from dgent.verbs.cupboard.crumb import entries_of
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb

COMMENTS = "comments"


class Comment(Ask):
    """Input of `metadata.comment`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    text: Annotated[str, argument("what you have to say; - reads it", words=True)]


@verb("metadata.comment", effect="append", errors=(InputError, NotFound))
async def comment(context: Context, ask: Comment) -> MetadataEntry:
    """Say something about a crumb."""
    cupboard = await input.cupboard_of(context)
    crumb: Crumb = await input.find_entity(cupboard, "crumbs", ask.id)
    return entry_of(await cupboard.comment(crumb.id, ask.text), None, crumb.short_id)


@verb("metadata.comments", effect="read", errors=(NotFound,))
async def comments(context: Context, ask: OneCrumb) -> Items[MetadataEntry]:
    """List what was said about a crumb, oldest first."""
    cupboard = await input.cupboard_of(context)
    id = await input.id_of(cupboard, "crumbs", ask.id)
    return Items(await entries_of(cupboard, crumb_id=id, schema=COMMENTS))


class AddMetadata(Ask):
    """Input of `metadata.add`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    content: Annotated[str, argument("the content, as its schema has it; - reads it", words=True)]
    schema: Annotated[str, option("what kind of entry it is", short="s")] = COMMENTS
    property: Annotated[str | None, option("the property that it is about", complete="property")] = None


@verb("metadata.add", effect="append", errors=(InputError, NotFound))
async def add(context: Context, ask: AddMetadata) -> MetadataEntry:
    """Put an entry beside a crumb."""
    cupboard = await input.cupboard_of(context)
    about = None if ask.property is None else (await cupboard.definitions()).find_any(ask.property)
    crumb: Crumb = await input.find_entity(cupboard, "crumbs", ask.id)
    made = Metadata(
        crumb.id,
        ask.schema,
        ask.content,
        None if about is None else about.id,
    )
    await cupboard.metadata.set(None, made)
    return entry_of(made, None if about is None else about.name, crumb.short_id)


class ListMetadata(Ask):
    """Input of `metadata.list`."""

    id: Annotated[str | None, argument("the crumb whose entries these are", complete="crumb")] = None
    schema: Annotated[str | None, option("only entries of this kind", short="s")] = None
    contains: Annotated[str | None, option("with this in the content, in large or small letters")] = None
    limit: input.Limit = 100


@verb("metadata.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListMetadata) -> Items[MetadataEntry]:
    """List entries beside crumbs, oldest first."""
    cupboard = await input.cupboard_of(context)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters: dict[str, Any] = {"limit": ask.limit}
    if ask.id is not None:
        filters["crumb_id"] = await input.id_of(cupboard, "crumbs", ask.id)
    if ask.schema is not None:
        filters["schema"] = ask.schema
    if ask.contains is not None:
        filters["content_contains"] = ask.contains
    return Items(await entries_of(cupboard, **filters))


class OneMetadata(Ask):
    """Input of a verb that takes one entry."""

    id: Annotated[str, argument("the entry's id, or the beginning of it")]


@verb("metadata.delete", effect="write", errors=(NotFound, Conflict))
async def delete(context: Context, ask: OneMetadata) -> Removed:
    """Remove an entry beside a crumb."""
    cupboard = await input.cupboard_of(context)
    entry: Metadata = await input.find_entity(cupboard, "metadata", ask.id)
    await cupboard.metadata.delete(entry.id)
    return Removed("metadata", entry.id, entry.table_name)


class Register(Ask):
    """Input of `metadata.register`."""

    name: Annotated[str, argument("small letters, digits and _")]
    description: Annotated[str, option("what it is for", short="d")] = ""
    content_type: Annotated[ContentType, option("what the content is", short="t")] = "text"


@verb("metadata.register", effect="append", errors=(InputError, Conflict), makes=True)
async def register(context: Context, ask: Register) -> SchemaInfo:
    """Make a kind of metadata known."""
    cupboard = await input.cupboard_of(context)
    made = await cupboard.register_schema(ask.name, ask.description, ask.content_type)
    return SchemaInfo(made.name, made.description, made.content_type)


@verb("metadata.schemas", effect="read")
async def schemas(context: Context, ask: NoInput) -> Items[SchemaInfo]:
    """List the kinds of metadata."""
    cupboard = await input.cupboard_of(context)
    return Items(
        [
            SchemaInfo(each.name, each.description, each.content_type)
            for each in await cupboard.schemas.fetch()
        ]
    )
