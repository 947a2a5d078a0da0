"""Metadata: comments, attachments and other entries beside a crumb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dgent.cupboard.entity import Entity


@dataclass
class Metadata(Entity):
    """An entry beside a crumb; `table_name` is the schema it is of."""

    crumb_id: str = ""
    table_name: str = ""
    content: str = ""
    property_id: str | None = None

    OWN: ClassVar[tuple[str, ...]] = ("crumb_id", "table_name", "content", "property_id", "extra")

    @property
    def metadata_id(self) -> str:
        """Its id."""
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
        """Its name."""
        return self.name
