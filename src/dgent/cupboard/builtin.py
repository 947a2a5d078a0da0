"""Built-in properties, categories and metadata schemas. Their ids are fixed, so that stores can merge."""

from __future__ import annotations

from datetime import UTC, datetime

from dgent import ids
from dgent.cupboard.record import (
    DESCRIPTION,
    LABELS,
    OWNER,
    PRIORITY,
    TYPE,
    CategoryRecord,
    PropertyRecord,
    SchemaRecord,
    builtin_id,
)

BORN = datetime(2025, 1, 1, tzinfo=UTC)

PROPERTIES = {
    PRIORITY: PropertyRecord("priority", "categorical", "How urgent it is."),
    TYPE: PropertyRecord("type", "categorical", "What kind of work it is."),
    DESCRIPTION: PropertyRecord("description", "text", "What is to be done."),
    OWNER: PropertyRecord("owner", "text", "Who does it."),
    LABELS: PropertyRecord("labels", "list", "What it needs or is about."),
}

CATEGORIES = {
    builtin_id(0x10 + place): CategoryRecord(PRIORITY, name, place)
    for place, name in enumerate(("highest", "high", "medium", "low", "lowest"))
} | {
    builtin_id(0x20 + place): CategoryRecord(TYPE, name, place)
    for place, name in enumerate(("task", "epic", "bug", "chore", "feature", "spike", "decision"))
}


def schema_id(name: str) -> str:
    """Return the id of a metadata schema, which follows from its name, so that stores can merge."""
    return ids.compose("cupboard", "schema", name)


METADATA_SCHEMAS = {
    schema_id("comments"): SchemaRecord("comments", "What somebody said about it.", "text"),
    schema_id("attachments"): SchemaRecord("attachments", "Files that belong to it.", "json"),
}
