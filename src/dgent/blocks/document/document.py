"""The document of a block: text, fields, items or entries with a history that merges.

Only this file and `operations.py` know loro. Bytes from outside are checked for size and by loro's own
checksums; everything it refuses becomes an error of dgent.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import loro
import msgspec

from dgent.blocks import errors
from dgent.blocks.document import redact
from dgent.blocks.document.guard import guard_call, guard_methods
from dgent.blocks.document.splice import count_changes, narrow, splice_lines
from dgent.blocks.document.stored import join_state, split_state
from dgent.blocks.document.value import check_plain, check_unicode
from dgent.errors import InputError

MAX_UPDATE_BYTES = 16 * 2**20
MAX_SNAPSHOT_BYTES = 256 * 2**20
MANY = 4  # at least so many small updates are merged together
MAX_APART_BYTES = 64 * 1024  # of these updates in all
PIECE = 1_000  # letters that are inserted at once
MAX_REVERTED = 4_000  # letters changed since a state to revert to

TRIM = "trim"  # the message of a change that removes old entries from a log
TEXT, FIELDS, ITEMS, ENTRIES, NODES, COUNT = "content", "fields", "items", "entries", "nodes", "count"


@guard_methods
class Document:
    """A document that can be edited; each opened one writes under a peer id of its own."""

    def __init__(self, inner: loro.LoroDoc | None = None) -> None:
        self._doc: loro.LoroDoc = loro.LoroDoc() if inner is None else inner  # type: ignore[no-untyped-call]
        self._doc.peer_id = secrets.randbits(63)
        # Otherwise the content would depend on which containers were read before.
        self._doc.set_hide_empty_root_containers(True)
        self._history = b""  # what was before the state that it was loaded from, while that is not loaded
        self._saved = self._doc.oplog_vv
        self._came, self._went = 0, 0

    # -- bytes ------------------------------------------------------------------------------

    @classmethod
    def load(cls, stored: bytes, updates: Iterable[bytes] = (), *, whole: bool = False) -> Document:
        """Build a document from a snapshot, maybe with a state, and the updates after it.

        With a state, the history is loaded when it is first needed, or at once with `whole`.
        """
        made = cls()
        state, history = split_state(stored)
        if state and not whole:
            made._history = history
        if stored:
            made.merge(state if made._history else history, MAX_SNAPSHOT_BYTES)
        made.merge_all(updates)
        made.mark_saved()
        return made

    def _load_history(self) -> None:
        """Replace the document by one with its whole history, if that was not loaded yet."""
        if not self._history:
            return
        self._doc.commit()
        since = self._doc.export(loro.ExportMode.Updates(self._doc.shallow_since_vv))
        whole = Document.load(self._history)
        whole.merge(since, MAX_SNAPSHOT_BYTES)
        whole._doc.peer_id = self._doc.peer_id
        self._doc, self._history = whole._doc, b""

    def merge(self, given: bytes, limit: int = MAX_UPDATE_BYTES) -> None:
        """Merge the bytes of another document; raises DocumentCorrupt when they are not valid."""
        self.merge_all((given,), limit)

    def merge_all(self, given: Iterable[bytes], limit: int = MAX_UPDATE_BYTES) -> None:
        """Merge several updates together."""
        some = [each for each in given if each != b""]
        for each in some:
            if not isinstance(each, bytes) or len(each) > limit:
                raise errors.DocumentCorrupt(f"an update of a document has at most {limit} bytes")
        try:
            self._import(some)
        except errors.DocumentCorrupt:
            if not self._history:
                raise
            self._load_history()  # an update may build on what came before the state
            self._import(some)

    def _import(self, some: Sequence[bytes]) -> None:
        # In a document without its early history, many small updates are imported before the state is
        # computed, once for all of them. With long ones that would cost the square of the text's length.
        small = len(some) >= MANY and sum(map(len, some)) <= MAX_APART_BYTES
        apart = small and self._doc.is_shallow()
        if apart:
            guard_call(self._doc.detach)
        # An update that waits for a later one is imported again once that is there.
        take = self._doc.import_
        waiting: list[bytes] = guard_call(lambda: [each for each in some if take(each).pending])
        waits = bool(waiting) and guard_call(lambda: any(take(each).pending for each in waiting))
        if apart:
            guard_call(self._doc.attach)
        if waits:
            raise errors.DocumentCorrupt("an update builds on others that are missing")

    def check_usable(self) -> None:
        """Use everything that was loaded once; raises DocumentCorrupt when it was made of damaged bytes.

        Some damaged bytes can be merged and read, and only fail when the document is stored as a whole. What
        came before the state was stored as a whole together with it.
        """
        self._doc.commit()
        self._doc.export(loro.ExportMode.StateOnly(None))
        self._doc.export(loro.ExportMode.Snapshot())

    def take_update(self) -> bytes:
        """Return the changes since they were last saved, as bytes; empty when there are none."""
        self._doc.commit()
        if self._doc.oplog_vv == self._saved:
            return b""
        made: bytes = self._doc.export(loro.ExportMode.Updates(self._saved))
        if len(made) > MAX_UPDATE_BYTES:  # it could not be loaded again
            raise errors.LimitExceeded(
                f"one edit is at most {MAX_UPDATE_BYTES} bytes, and this is {len(made)}"
            )
        return made

    def mark_saved(self) -> None:
        """Mark everything it holds now as stored."""
        self._saved = self._doc.oplog_vv

    def snapshot(self) -> bytes:
        """Return everything as bytes, with the whole history."""
        self._load_history()
        self._doc.commit()
        made: bytes = self._doc.export(loro.ExportMode.Snapshot())
        return made

    def snapshot_with_state(self) -> bytes:
        """Return the state and a snapshot as bytes, of which `load` reads the state first."""
        return join_state(self.state(), self.snapshot())

    def state(self) -> bytes:
        """Return the current state as bytes, without the history before."""
        self._doc.commit()
        made: bytes = self._doc.export(loro.ExportMode.ShallowSnapshot(self._doc.oplog_frontiers))
        return made

    def load_at(self, frontiers: str) -> Document:
        """Return a copy without history, as of a state of its history; raises DocumentCorrupt."""
        if not self.knows(frontiers):
            raise errors.DocumentCorrupt("the document was never in this state, or its history of it is gone")
        self._load_history()
        mode = loro.ExportMode.StateOnly(_frontiers(frontiers))
        return Document.load(guard_call(lambda: self._doc.export(mode)))

    def updates_since(self, other: Document) -> bytes:
        """Return the changes that this document has and another one does not."""
        self._load_history()
        self._doc.commit()
        made: bytes = guard_call(lambda: self._doc.export(loro.ExportMode.Updates(other._doc.oplog_vv)))
        return made

    @property
    def frontiers(self) -> str:
        """The name of the current state in the document's history."""
        self._doc.commit()
        return base64.b64encode(self._doc.oplog_frontiers.encode()).decode()

    def revert_to(self, frontiers: str) -> None:
        """Change everything back to a state, as new edits."""
        self._load_history()
        wanted, before = _frontiers(frontiers), self.text()
        guard_call(lambda: self._doc.revert_to(wanted))
        came, went = count_changes(before, self.text())
        self._came, self._went = self._came + came, self._went + went

    def become(self, other: Document) -> None:
        """Change everything to the content of another document, as new edits."""
        before = self.text()
        for name, kind in (other._roots() | self._roots()).items():
            if kind == "Text":
                self.write_lines(other.text(name), name)
            elif kind == "Map":
                gone = dict.fromkeys(self.fields(name).keys() - other.fields(name).keys())
                _change(self._doc.get_map(name), gone | _diff_fields(self.fields(name), other.fields(name)))
            elif kind == "Counter":
                self.increment(other.count(name) - self.count(name), name)
            elif kind == "Tree":
                self._become_tree(other, name)
            else:
                self._become_list(other, name, kind)
        self._came, self._went = count_changes(before, self.text())

    def _roots(self) -> dict[str, str]:
        """Return the root containers by name, with their types."""
        found: Any = self._doc.get_value()
        return {name: str(each.container_type) for name, each in found.items()}

    def _become_list(self, other: Document, name: str, kind: str) -> None:
        get = "get_list" if kind == "List" else "get_movable_list"
        mine, theirs = getattr(self._doc, get)(name), getattr(other._doc, get)(name)
        old, new = mine.get_deep_value(), theirs.get_deep_value()
        start, end = _count_common_ends(old, new)
        mine.delete(start, len(old) - start - end)
        for place in range(start, len(new) - end):
            if isinstance(getattr(theirs.get(place), "container", None), loro.LoroMap):
                self.insert_map(place, new[place], name)
            else:
                mine.insert(place, new[place])

    def _become_tree(self, other: Document, name: str) -> None:
        """Replace a tree by another; its nodes get new ids, unless nothing is different."""
        mine, theirs = self.nodes(name), other.nodes(name)
        if [_strip_ids(each) for each in mine] == [_strip_ids(each) for each in theirs]:
            return
        for each in mine:
            self.delete_node(each["id"], name)
        self._add_nodes(None, theirs, name)

    def _add_nodes(self, parent: str | None, nodes: Sequence[dict[str, Any]], name: str) -> None:
        for each in nodes:
            self._add_nodes(self.add_node(parent, each["data"], name), each["children"], name)

    def knows(self, frontiers: str) -> bool:
        """Check whether a state is in its history, so that it can go back to it."""
        return self._version_of(frontiers) is not None

    def can_revert_to(self, frontiers: str) -> bool:
        """Check whether `revert_to` is quick: it takes the square of the letters changed since."""
        then = self._version_of(frontiers)
        if then is None or "Text" not in self._roots().values():
            return then is not None
        since: dict[int, tuple[int, int]] = self._doc.oplog_vv.diff(then).retreat.inner()
        return sum(end - start for start, end in since.values()) <= MAX_REVERTED

    def _version_of(self, frontiers: str) -> Any:
        """Return the version vector of a state; None when it is not in its history."""
        if not frontiers:  # it was compacted
            return None
        wanted = _frontiers(frontiers)
        found = guard_call(lambda: self._doc.frontiers_to_vv(wanted))
        if found is not None and found.includes_vv(self._doc.shallow_since_vv):
            return found
        if not self._history:
            return None
        self._load_history()
        return self._version_of(frontiers)

    def is_before(self, earlier: str, later: str) -> bool:
        """Check whether a state of its history is part of another one."""
        if not earlier or not later:  # it was compacted
            return False
        self._load_history()
        one, other = (self._doc.frontiers_to_vv(_frontiers(each)) for each in (earlier, later))
        return one is not None and other is not None and other.includes_vv(one)

    def merge_redacted(self, update: bytes, whole: Document) -> tuple[bytes, list[str]]:
        """Merge an update without its texts and values; `whole` merges it unchanged.

        Returns the redacted update, and the texts that were removed.
        """
        self._load_history()
        whole._load_history()
        before = whole._doc.oplog_vv
        whole.merge(update)
        original = whole._doc.export_json_updates(before, whole._doc.oplog_vv)
        blank = whole._doc.redact_json_updates(original, loro.VersionRange.from_vv(whole._doc.oplog_vv))
        guard_call(lambda: self._doc.import_json_updates(redact.fill_blanks(blank, original)))
        made = self.take_update()
        self.mark_saved()
        return made, [text for _, _, text in redact.iterate_texts(original)]

    def iterate_texts(self) -> Iterator[tuple[int, int, str]]:
        """Yield every text ever put into it: the peer, the counter of the operation, and the text."""
        self._load_history()
        empty = loro.VersionVector()  # type: ignore[no-untyped-call]
        return redact.iterate_texts(self._doc.export_json_updates(empty, self._doc.oplog_vv))

    def spans(self, update: bytes) -> dict[int, tuple[int, int]]:
        """Return the operations of an update: for each peer the first counter and the end."""
        meta = self._doc.decode_import_blob_meta(update, False)
        found: dict[int, tuple[int, int]] = meta.partial_end_vv.diff(meta.partial_start_vv).retreat.inner()
        return found

    def fork(self) -> Document:
        """Return an independent copy."""
        if not self._history:
            return Document.load(self.snapshot())
        self._doc.commit()
        made = Document.load(self._doc.export(loro.ExportMode.Snapshot()))
        made._history = self._history
        return made

    def fork_at(self, frontiers: str) -> Document:
        """Return a copy as of a state of its history, whose edits can be joined; raises DocumentCorrupt."""
        if not self.knows(frontiers):
            raise errors.DocumentCorrupt("the document was never in this state, or its history of it is gone")
        wanted = loro.Frontiers.decode(base64.b64decode(frontiers))
        self._load_history()
        return Document(guard_call(lambda: self._doc.fork_at(wanted)))

    def join(self, other: Document) -> None:
        """Merge the edits made to a copy of this document, as if they had been made here."""
        self.merge(other.take_update())
        self._came, self._went = self._came + other._came, self._went + other._went

    # -- operations -----------------------------------------------------------------------------

    def operations(self) -> dict[int, int]:
        """Return the operations that it knows: for each peer the counter after the last one."""
        self._doc.commit()
        empty = loro.VersionVector()  # type: ignore[no-untyped-call]
        found: dict[int, tuple[int, int]] = self._doc.oplog_vv.diff(empty).retreat.inner()
        return {peer: end for peer, (_, end) in found.items()}

    def roots(self) -> dict[str, str]:
        """Return the names of the texts, lists, maps and other parts it has, with their kinds."""
        self._doc.commit()
        return {name: kind for name, kind in self._roots().items() if kind != "Map" or self.fields(name)}

    def elements(self, name: str, kind: str) -> list[tuple[tuple[int, int], Any]]:
        """Return the letters of a text or the items of a list, each with its operation's peer and counter."""
        self._load_history()
        inner = self._sequence(name, kind)
        values = inner.to_string() if kind == "Text" else inner.get_deep_value()
        ids = (inner.get_cursor(place, loro.Side.Middle).id for place in range(len(values)))
        return [((id.peer, id.counter), value) for id, value in zip(ids, values, strict=True)]

    def write_elements(self, name: str, kind: str, elements: Sequence[tuple[tuple[int, int], Any]]) -> None:
        """Change a text or a list to some elements; those that it has must be in their order here."""
        before = self.elements(name, kind)
        places = {id: place for place, (id, _) in enumerate(before)}
        values = dict(before)
        at = passed = 0  # where to write, and how many elements of before are passed
        for id, value in elements:
            stays = id in places and _same(values[id], value)
            skip = places[id] - passed if id in places else 0
            self._replace(name, kind, at, skip + (id in places and not stays), () if stays else (value,))
            passed += skip + (id in places)
            at += 1
        self._replace(name, kind, at, len(before) - passed, ())

    def _replace(self, name: str, kind: str, start: int, length: int, values: Sequence[Any]) -> None:
        inner = self._sequence(name, kind)
        if length:
            inner.delete(start, length)
        if kind == "Text":
            self._came, self._went = self._came + len(values), self._went + length
        for place, value in enumerate(values, start):
            if kind == "MovableList" and isinstance(value, dict):
                self.insert_map(place, value, name)
            else:
                inner.insert(place, value)

    def _sequence(self, name: str, kind: str) -> Any:
        get = {"Text": "get_text", "List": "get_list", "MovableList": "get_movable_list"}[kind]
        self._doc.commit()
        return getattr(self._doc, get)(name)

    def nodes_by_id(self, name: str = NODES) -> dict[str, dict[str, Any]]:
        """Return the fields of all nodes of a tree by their ids."""
        found: dict[str, dict[str, Any]] = {}
        todo = self.nodes(name)
        while todo:
            node = todo.pop()
            found[node["id"]] = node["data"]
            todo += node["children"]
        return found

    def add_missing_nodes(self, other: Document, name: str = NODES) -> None:
        """Add the nodes of another tree that this one never had, with what is below them."""
        known = self.operations()
        todo: list[tuple[str | None, dict[str, Any]]] = [(None, each) for each in other.nodes(name)]
        while todo:
            parent, node = todo.pop(0)
            counter, _, peer = node["id"].partition("@")
            if int(counter) >= known.get(int(peer), 0):
                above = parent if parent is not None and self.has_node(parent, name) else None
                self._add_nodes(above, [node], name)
            else:
                todo += [(node["id"], each) for each in node["children"]]

    def write_as(self, peer: int) -> None:
        """Make further edits under a peer id, so that other copies that make the same edits have the same."""
        self._doc.commit()
        self._doc.peer_id = peer

    # -- content ------------------------------------------------------------------------

    def value(self) -> dict[str, Any]:
        """Return everything it holds as plain values."""
        self._doc.commit()
        found: Any = self._doc.get_deep_value()
        return dict(found)

    def text(self, name: str = TEXT) -> str:
        """Return a text it holds."""
        found: str = self._doc.get_text(name).to_string()
        return found

    def length(self, name: str = TEXT) -> int:
        """Return the number of characters of a text."""
        found: int = self._doc.get_text(name).len_unicode
        return found

    def add_to_tally(self, came: int, went: int) -> None:
        """Add characters that came and went in parts that are not texts."""
        self._came, self._went = self._came + came, self._went + went

    def tally(self) -> tuple[int, int]:
        """Return how many characters came and went since the last call, as far as it is known."""
        found, self._came, self._went = (self._came, self._went), 0, 0
        return found

    def splice(self, start: int, length: int, text: str, name: str = TEXT) -> None:
        """Replace part of a text; places count characters."""
        inner = self._doc.get_text(name)
        if length:
            inner.delete(start, length)
        # Merging one long insert takes the square of its length; pieces, the last one first, do not.
        for piece in reversed(range(0, len(text), PIECE)):
            inner.insert(start, text[piece : piece + PIECE])
        self._came, self._went = self._came + len(text), self._went + length

    def write(self, text: str, name: str = TEXT) -> None:
        """Replace a text, keeping what the old and the new one have in common at both ends."""
        self.splice(*narrow(0, self.text(name), text), name)

    def write_lines(self, text: str, name: str = TEXT) -> None:
        """Replace a text, keeping the lines that the old and the new one have in common."""
        for splice in splice_lines(self.text(name), text):
            self.splice(*splice, name)

    def fields(self, name: str = FIELDS) -> dict[str, Any]:
        """Return the fields of a map."""
        found: Any = self._doc.get_map(name).get_deep_value()
        return dict(found)

    def set_field(self, key: str, value: Any, name: str = FIELDS) -> None:
        """Set a field."""
        self._doc.get_map(name).insert(check_unicode(key), check_plain(value))

    def delete_field(self, key: str, name: str = FIELDS) -> None:
        """Remove a field."""
        self._doc.get_map(name).delete(check_unicode(key))

    def items(self, name: str = ITEMS) -> list[Any]:
        """Return the items of a list."""
        found: Any = self._doc.get_movable_list(name).get_deep_value()
        return list(found)

    def count_items(self, name: str = ITEMS) -> int:
        """Count the items of a list."""
        return len(self._doc.get_movable_list(name))

    def insert_item(self, place: int, value: Any, name: str = ITEMS) -> None:
        """Insert an item into a list."""
        self._doc.get_movable_list(name).insert(place, check_plain(value))

    def insert_map(self, place: int, fields: Mapping[str, Any], name: str = ITEMS) -> None:
        """Insert an item with fields into a list; changes of different fields merge."""
        empty = loro.LoroMap()  # type: ignore[no-untyped-call]
        _change(self._doc.get_movable_list(name).insert_container(place, empty), fields)

    def set_item_fields(self, place: int, fields: Mapping[str, Any], name: str = ITEMS) -> None:
        """Change fields of an item; None removes one."""
        found = getattr(self._doc.get_movable_list(name).get(place), "container", None)
        if not isinstance(found, loro.LoroMap):
            raise errors.NoMatch(f"the item at {place} has no fields")
        _change(found, fields)

    def item_key(self, place: int, name: str = ITEMS) -> str:
        """Return the key of an item with fields, which is the same in every copy of this document."""
        found = getattr(self._doc.get_movable_list(name).get(place), "container", None)
        if not isinstance(found, loro.LoroMap):
            raise errors.NoMatch(f"the item at {place} has no fields")
        id: Any = found.id
        return f"{id.counter}@{id.peer}"

    def item_id(self, place: int, name: str = ITEMS) -> str:
        """Return the id of an item: of one with fields its key, of any other an id that moving it changes."""
        inner: Any = self._doc.get_movable_list(name)
        if isinstance(getattr(inner.get(place), "container", None), loro.LoroMap):
            return self.item_key(place, name)
        self._doc.commit()
        id = inner.get_cursor(place, loro.Side.Middle).id
        return f"{id.counter}@{id.peer}"

    def item_fields(self, key: str) -> dict[str, Any] | None:
        """Return the fields of the item with a key; None when it is gone."""
        found = self._item(key)
        return None if found is None else dict(found.get_deep_value())

    def set_fields_of(self, key: str, fields: Mapping[str, Any]) -> None:
        """Change fields of the item with a key; None removes one."""
        found = self._item(key)
        if found is None:
            raise errors.NoMatch(f"the item {key!r} does not exist")
        _change(found, fields)

    def _item(self, key: str) -> Any:
        counter, _, peer = key.partition("@")
        id = loro.ContainerID.Normal(int(peer), int(counter), loro.ContainerType.Map())
        self._doc.commit()
        there = self._doc.has_container(id) and self._doc.get_path_to_container(id) is not None
        return self._doc.get_map(id) if there else None

    def write_items(self, values: Sequence[Any], name: str = ITEMS) -> None:
        """Replace the items of a list, keeping those that both begin and end with."""
        old, new = self.items(name), [check_plain(each) for each in values]
        start, end = _count_common_ends(old, new)
        inner = self._doc.get_movable_list(name)
        if len(old) > start + end:
            inner.delete(start, len(old) - start - end)
        for place in range(start, len(new) - end):
            inner.insert(place, new[place])

    def set_item(self, place: int, value: Any, name: str = ITEMS) -> None:
        """Replace an item of a list."""
        self._doc.get_movable_list(name).set(place, check_plain(value))

    def move_item(self, place: int, to: int, name: str = ITEMS) -> None:
        """Move an item of a list."""
        self._doc.get_movable_list(name).mov(place, to)

    def delete_item(self, place: int, name: str = ITEMS) -> None:
        """Remove an item of a list."""
        self._doc.get_movable_list(name).delete(place, 1)

    def entries(self, name: str = ENTRIES) -> list[Any]:
        """Return the entries of a log, oldest first."""
        found: Any = self._doc.get_list(name).get_deep_value()
        return list(found)

    def newest_entries(self, name: str = ENTRIES) -> Iterator[Any]:
        """Yield the entries of a log, newest first, each read when it is needed."""
        for place in range(self.count_entries(name) - 1, -1, -1):
            yield self.entry(place, name)

    def entry(self, place: int, name: str = ENTRIES) -> Any:
        """Return one entry of a log."""
        return getattr(self._doc.get_list(name).get(place), "value", None)

    def count_entries(self, name: str = ENTRIES) -> int:
        """Count the entries of a log."""
        return len(self._doc.get_list(name))

    def append_entry(self, value: Any, name: str = ENTRIES) -> None:
        """Add an entry to a log."""
        self._doc.get_list(name).push(check_plain(value))

    def trim_entries(self, count: int, name: str = ENTRIES) -> None:
        """Remove the oldest `count` entries of a log; `trimmed_entries` still returns them."""
        self._doc.commit()
        self._doc.get_list(name).delete(0, count)
        self._doc.set_next_commit_message(TRIM)
        self._doc.commit()

    def trimmed_entries(self, name: str = ENTRIES) -> list[Any]:
        """Return the entries that were trimmed, oldest first, as far as its history goes back."""
        self._load_history()
        updates = self._doc.export_json_updates(self._doc.shallow_since_vv, self._doc.oplog_vv)
        came: dict[tuple[str, int], Any] = {}
        gone: list[tuple[str, int]] = []
        for message, peer, op in _list_ops(updates, name):
            content = op["content"]
            if content["type"] == "insert":
                came |= {(peer, op["counter"] + step): each for step, each in enumerate(content["value"])}
            elif content["type"] == "delete" and message == TRIM:
                first, _, whose = content["start_id"].partition("@")
                gone += [(whose, int(first) + step) for step in range(abs(content["len"]))]
        return [came[id] for id in gone if id in came]

    def count(self, name: str = COUNT) -> int:
        """Return the value of a counter."""
        return round(self._doc.get_counter(name).value)

    def increment(self, by: int, name: str = COUNT) -> None:
        """Add to a counter; increments of two copies add up."""
        self._doc.get_counter(name).increment(by)

    # -- trees ---------------------------------------------------------------------------------

    def nodes(self, name: str = NODES) -> list[dict[str, Any]]:
        """Return the nodes of a tree, each with its children, in order."""
        # Not get_value_with_meta, which takes twenty times as long.
        tree = self._doc.get_tree(name)
        below: dict[str | None, list[tuple[int, dict[str, Any]]]] = {}
        made: dict[str, dict[str, Any]] = {}
        for each in tree.get_nodes(False):
            id, parent = _id_text(each.id), None if each.parent is None else _id_text(each.parent)
            data: Any = tree.get_meta(each.id).get_deep_value()
            made[id] = {"id": id, "data": dict(data), "children": []}
            below.setdefault(parent, []).append((each.index, made[id]))
        for parent, children in below.items():
            children.sort(key=itemgetter(0))
            if parent is not None:
                made[parent]["children"] += [node for _, node in children]
        return [node for _, node in below.get(None, ())]

    def add_node(
        self, parent: str | None, data: Mapping[str, Any], name: str = NODES, place: int | None = None
    ) -> str:
        """Add a node below another one, or at the top; returns its id."""
        tree = self._doc.get_tree(name)
        above = None if parent is None else _tree_id(tree, parent)
        made = (
            tree.create(above)
            if place is None
            else tree.create_at(_check_place(tree, above, place, 1), above)
        )
        _change(tree.get_meta(made), data)
        return _id_text(made)

    def has_node(self, id: str, name: str = NODES) -> bool:
        """Check whether a node exists."""
        try:
            _tree_id(self._doc.get_tree(name), id)
        except errors.NoMatch:
            return False
        return True

    def node_data(self, id: str, name: str = NODES) -> dict[str, Any]:
        """Return the fields of a node."""
        tree = self._doc.get_tree(name)
        found: Any = tree.get_meta(_tree_id(tree, id)).get_deep_value()
        return dict(found)

    def set_node(self, id: str, data: Mapping[str, Any], name: str = NODES) -> None:
        """Change fields of a node; None removes one."""
        tree = self._doc.get_tree(name)
        _change(tree.get_meta(_tree_id(tree, id)), data)

    def move_node(self, id: str, parent: str | None, name: str = NODES, place: int | None = None) -> None:
        """Move a node below another one, last when `place` is not given."""
        tree = self._doc.get_tree(name)
        target = _tree_id(tree, id)
        above = None if parent is None else _tree_id(tree, parent)
        step = above
        while step is not None:
            if step == target:
                raise InputError("a node cannot be below itself")
            step = _parent(tree, step)
        if place is None:
            tree.mov(target, above)
        else:
            stays = _parent(tree, target) == above  # then there is not one more
            tree.mov_to(target, _check_place(tree, above, place, 0 if stays else 1), above)

    def delete_node(self, id: str, name: str = NODES) -> None:
        """Delete a node with everything below it."""
        tree = self._doc.get_tree(name)
        tree.delete(_tree_id(tree, id))


def _list_ops(updates: str, name: str) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """Yield the operations on a list: the message of the change, the peer, and the operation."""
    for change in msgspec.json.decode(updates)["changes"]:
        peer = change["id"].partition("@")[2]
        for op in change["ops"]:
            if op["container"] == f"cid:root-{name}:List":
                yield change.get("msg"), peer, op


def _frontiers(text: str) -> Any:
    return guard_call(lambda: loro.Frontiers.decode(base64.b64decode(text, validate=True)))


def _change(inner: Any, fields: Mapping[str, Any]) -> None:
    """Change fields of a map inside the document; None removes one."""
    for key, value in fields.items():
        if value is not None:
            inner.insert(key, check_plain(value))
        elif inner.get(key) is not None:
            inner.delete(key)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _diff_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a map that have changed."""
    return {key: each for key, each in after.items() if key not in before or not _same(before[key], each)}


def _count_common_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """Return how many items two lists have in common at the start and at the end."""
    start = end = 0
    most = min(len(old), len(new))
    while start < most and _same(old[start], new[start]):
        start += 1
    while end < most - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    return start, end


def _check_place(tree: Any, above: Any, place: int, more: int) -> int:
    """Return a valid place among the children of a node, of which there will be `more` more."""
    count = len(tree.roots if above is None else tree.children(above) or ()) + more
    if type(place) is not int or not -count <= place < count:
        raise errors.NoMatch(f"{place!r} is not a valid place among {count}")
    return place % count


def _parent(tree: Any, node: Any) -> Any:
    """Return the parent of a node; None at the top."""
    return next((each.parent for each in tree.get_nodes(False) if each.id == node), None)


def _tree_id(tree: Any, id: str) -> Any:
    counter, _, peer = id.partition("@")
    try:
        found = loro.TreeID(int(peer), int(counter))
    except (ValueError, OverflowError):
        found = None
    if found is None or not tree.contains(found) or tree.is_node_deleted(found):
        raise errors.NoMatch(f"the node {id!r} does not exist")
    return found


def _strip_ids(node: dict[str, Any]) -> Any:
    """Return a node without the ids in it."""
    return node["data"], [_strip_ids(each) for each in node["children"]]


def _id_text(id: Any) -> str:
    return f"{id.counter}@{id.peer}"
