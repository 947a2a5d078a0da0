"""Metadata entries beside crumbs, and the schemas they are of."""

from __future__ import annotations

import pytest

from dgent.cupboard import Cupboard, Metadata, MetadataSchema, errors


async def test_entries_are_added_and_found(cupboard: Cupboard) -> None:
    crumb, other = await cupboard.add("x"), await cupboard.add("y")
    owner = (await cupboard.properties.fetch(name="owner"))[0].id
    first = await cupboard.comment(crumb, "Looks 100% Good_to me")
    await cupboard.metadata.set(None, Metadata(crumb.id, "comments", "again", owner))
    await cupboard.metadata.set(None, Metadata(crumb.id, "attachments", '{"name": "a.txt"}'))
    await cupboard.metadata.set(None, Metadata(other.id, "comments", "100x"))
    fetch = cupboard.metadata.fetch
    assert [m.content for m in await fetch(crumb_id=crumb.id, schema="comments")] == [
        "Looks 100% Good_to me",
        "again",
    ]
    assert len(await fetch(TableName="comments")) == 3
    assert len(await fetch(table_name=["comments", "attachments"], CrumbID=crumb.id)) == 3
    assert [m.content for m in await fetch(property_id=owner)] == ["again"]
    assert [m.id for m in await fetch(content_contains="100% GOOD_")] == [first.id]
    assert len(await fetch(content_contains="100")) == 2
    assert [m.id for m in await fetch(content_contains="%")] == [first.id]
    assert await fetch(schema="comments", table_name="attachments") == []
    assert len(await fetch(content_contains="", limit=2, offset=1)) == 2
    found = await cupboard.metadata.get(first.id)
    assert (found.metadata_id, found.crumb_id, found.property_id) == (first.id, crumb.id, None)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (lambda crumb: Metadata(crumb, "nothing", "x"), errors.SchemaNotFound),
        (lambda crumb: Metadata(crumb, "", "x"), errors.SchemaNotFound),
        (lambda crumb: Metadata("nothing", "nothing", ""), errors.SchemaNotFound),
        (lambda crumb: Metadata(crumb, "comments", ""), errors.InvalidContent),
        (lambda crumb: Metadata("nothing", "comments", ""), errors.InvalidContent),
        (lambda crumb: Metadata(crumb, "comments", 5), errors.InvalidContent),
        (lambda crumb: Metadata(crumb, "comments", None), errors.InvalidContent),
        (lambda crumb: Metadata("nothing", "comments", "x"), errors.EntityNotFound),
        (lambda crumb: Metadata("", "comments", "x"), errors.EntityNotFound),
        (lambda crumb: Metadata("nothing", "comments", "x", "nothing"), errors.EntityNotFound),
        (lambda crumb: Metadata(crumb, "comments", "x", "nothing"), errors.PropertyNotFound),
        (lambda crumb: Metadata(crumb, "comments", "x", ""), errors.PropertyNotFound),
        (lambda crumb: Metadata(crumb, "comments", "x", crumb), errors.PropertyNotFound),
    ],
)
async def test_what_is_wrong_with_an_entry(quick: Cupboard, entry, error) -> None:  # type: ignore[no-untyped-def]
    crumb = await quick.add("x")
    with pytest.raises(error):
        await quick.metadata.set(None, entry(crumb.id))
    assert await quick.metadata.fetch() == []


async def test_an_entry_stays_with_its_crumb(quick: Cupboard) -> None:
    crumb, other = await quick.add("x"), await quick.add("y")
    made = await quick.comment(crumb, "hello")
    made.crumb_id = other.id
    with pytest.raises(errors.InvalidData):
        await quick.metadata.set(made.id, made)
    made = await quick.metadata.get(made.id)
    made.content = "changed"
    await quick.metadata.set(made.id, made)
    assert [m.content for m in await quick.metadata.fetch()] == ["changed"]
    await quick.metadata.delete(made.id)
    assert await quick.metadata.fetch() == []


async def test_schemas(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("x")
    made = await cupboard.register_schema("build_logs", "what the build said", "text")
    assert made.schema_name == "build_logs"
    await cupboard.metadata.set(None, Metadata(crumb.id, "build_logs", "ok"))
    for name in ("build_logs", "comments"):
        with pytest.raises(errors.DuplicateName):
            await cupboard.register_schema(name)
    for name in ("", "Build", "a-b", "a b", "ä", "a/b", "a\n", None, 5):
        with pytest.raises(errors.InvalidName):
            await cupboard.register_schema(name)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidData):
        await cupboard.register_schema("x", content_type="xml")
    for found in await cupboard.schemas.fetch():
        with pytest.raises(errors.InvalidData):
            await cupboard.schemas.delete(found.id)
    comments = (await cupboard.schemas.fetch(name="comments"))[0]
    comments.content_type = "json"
    with pytest.raises(errors.InvalidData):
        await cupboard.schemas.set(comments.id, comments)
    await cupboard.schemas.set(None, MetadataSchema("other", content_type="json"))
    assert {s.name for s in await cupboard.schemas.fetch()} == {
        "comments",
        "attachments",
        "build_logs",
        "other",
    }
