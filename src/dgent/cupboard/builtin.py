"""Built-in properties, categories and metadata schemas. Their ids are fixed, so that stores can merge."""

from __future__ import annotations

from datetime import UTC, datetime

from dgent import ids
from dgent.cupboard.record import CategoryRecord, PropertyRecord, SchemaRecord

BORN = datetime(2025, 1, 1, tzinfo=UTC)


def _id(number: int) -> str:
    return f"01941f29-7c00-7000-8000-{number:012x}"  # a UUIDv7 of that moment


PRIORITY, TYPE, DESCRIPTION, OWNER, LABELS = (_id(number) for number in range(1, 6))

PROPERTIES = {
    PRIORITY: PropertyRecord("priority", "categorical", "How urgent it is."),
    TYPE: PropertyRecord("type", "categorical", "What kind of work it is."),
    DESCRIPTION: PropertyRecord("description", "text", "What is to be done."),
    OWNER: PropertyRecord("owner", "text", "Who does it."),
    LABELS: PropertyRecord("labels", "list", "What it needs or is about."),
}

CATEGORIES = {
    _id(0x10 + place): CategoryRecord(PRIORITY, name, place)
    for place, name in enumerate(("highest", "high", "medium", "low", "lowest"))
} | {
    _id(0x20 + place): CategoryRecord(TYPE, name, place)
    for place, name in enumerate(("task", "epic", "bug", "chore"))
}


def schema_id(name: str) -> str:
    """Return the id of a metadata schema, which follows from its name, so that stores can merge."""
    return ids.compose("cupboard", "schema", name)


METADATA_SCHEMAS = {
    schema_id("comments"): SchemaRecord("comments", "What somebody said about it.", "text"),
    schema_id("attachments"): SchemaRecord("attachments", "Files that belong to it.", "json"),
}
