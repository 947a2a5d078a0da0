"""A checkpoint on its way into the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgent.bridges.langgraph import record
from dgent.bridges.langgraph.content import Contents, Dump, split_value
from dgent.bridges.langgraph.record import StoredCheckpoint, StoredValue, Typed
from dgent.model.datum import Datum


class NewCheckpoint:
    """A checkpoint on its way into the store: serialized by the caller, whose code that may be."""

    def __init__(
        self,
        dump: Dump,
        name: tuple[str, str],
        above: str | None,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        preview: str,
    ) -> None:
        self.name, self._above = name, above
        self._checkpoint, self._new, self._dump, self._preview = checkpoint, new_versions, dump, preview
        self._metadata = metadata
        self._typed_metadata = whole(dump(metadata))
        rest = {key: checkpoint[key] for key in checkpoint if not key.startswith("channel_v")}
        self._rest = whole(dump(rest))
        self.contents: Contents = {}
        # A channel that did not change is that of the parent, where that has it; to be known only later.
        self._values = {
            name: self._split(name) for name in checkpoint["channel_versions"] if name in new_versions
        }

    @property
    def id(self) -> str:
        """The id of its record."""
        return record.line_prefix(*self.name) + str(self._checkpoint["id"])

    @property
    def config(self) -> Any:
        """The configuration that names the new checkpoint."""
        return record.config_of(*self.name, self._checkpoint["id"])

    @property
    def parent(self) -> str | None:
        """The id of the parent's record."""
        return record.line_prefix(*self.name) + self._above if self._above else None

    def make(self, above: Mapping[str, StoredValue]) -> tuple[Datum, StoredCheckpoint]:
        """Return the record of the checkpoint, given the values of its parent."""
        values = {}
        for name, version in self._checkpoint["channel_versions"].items():
            before = above.get(name)
            if name not in self._new and before is not None and before.version == version:
                values[name] = before
                continue
            if name not in self._values:
                self._values[name] = self._split(name)
            found = self._values[name]
            values[name] = StoredValue(version, found.kind, found.type, found.data)
        thread_name, namespace = map(record.bytes_of, self.name)
        stored = StoredCheckpoint(
            (thread_name, namespace),
            self._checkpoint["id"],
            self._above or None,
            self._rest,
            self._typed_metadata,
            values,
        )
        return record.make_checkpoint(self.id, stored, self._metadata, self._preview), stored

    def _split(self, name: str) -> StoredValue:
        values = self._checkpoint["channel_values"]
        if name not in values:
            return StoredValue(None)
        return split_value(values[name], self._dump, self.contents)


def whole(typed: tuple[str, Any]) -> Typed:
    """Return a serialized value with its bytes as such."""
    return typed[0], bytes(typed[1])
