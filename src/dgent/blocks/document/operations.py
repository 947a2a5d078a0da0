"""The operations in the bytes of a document: read them without their document, or write it from them.

An operation has an id: its peer and its counter. A text of n letters is n operations.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import loro
import msgspec

from dgent.blocks.document.document import Document
from dgent.blocks.document.guard import guard_call
from dgent.blocks.errors import DocumentCorrupt

OpId = tuple[int, int]
_ROOT = "cid:root-"


class Operation(NamedTuple):
    """An operation on the root with a name, which is empty if it is on a part of one.

    `content` is as in loro's JSON; a deletion also has the id that it starts with, as `start`.
    """

    id: OpId
    name: str
    kind: str
    content: dict[str, Any]


def parse_frontiers(frontiers: str) -> list[OpId]:
    """Return the last operations of a state, by its name."""
    numbers: list[int] = []
    value = shift = 0
    for byte in base64.b64decode(frontiers):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    # How many there are, then of each the peer and its counter, whose last bit is the sign.
    return [(peer, counter >> 1) for peer, counter in zip(numbers[1::2], numbers[2::2], strict=True)]


def find_needed(update: bytes) -> list[OpId]:
    """Return the operations that an update builds on directly."""
    blank = loro.LoroDoc()  # type: ignore[no-untyped-call]
    meta = guard_call(lambda: blank.decode_import_blob_meta(update, False))
    return parse_frontiers(base64.b64encode(meta.start_frontiers.encode()).decode())


def read_operations(update: bytes) -> list[Operation]:
    """Read the operations of an update without the document that it builds on."""
    before = {peer: counter + 1 for peer, counter in find_needed(update)}
    for peer, (start, _) in Document().spans(update).items():
        before[peer] = max(start, before.get(peer, 0))
    # Others take the place of those it builds on; in a detached document it is not applied to them.
    document = loro.LoroDoc()  # type: ignore[no-untyped-call]
    changes = [{"ops": [*_fill("filler", place, 0, end)]} for place, end in enumerate(before.values()) if end]
    _import(document, [peer for peer, end in before.items() if end], changes, chained=False)
    known = document.oplog_vv
    document.detach()
    guard_call(lambda: document.import_(update))
    return [*_parse(msgspec.json.decode(document.export_json_updates(known, document.oplog_vv)))]


def _parse(found: dict[str, Any]) -> Iterator[Operation]:
    def parse(id: str) -> OpId:
        counter, _, place = id.partition("@")
        return int(found["peers"][int(place)]), int(counter)

    for change in found["changes"]:
        peer, _ = parse(change["id"])
        for op in change["ops"]:
            container, content = op["container"], dict(op["content"])
            name, _, kind = container.removeprefix(_ROOT).rpartition(":")
            if "start_id" in content:
                content["start"] = parse(content["start_id"])
            name = name if container.startswith(_ROOT) else ""
            yield Operation((peer, op["counter"]), name, kind, content)


def build_document(
    known: Mapping[int, int], texts: Mapping[str, Sequence[tuple[OpId, str]]], peer: int
) -> Document:
    """Build a document with some texts, whose letters come from the operations with the given ids.

    `known` are the operations it knows: for each peer the counter after the last one. It ends with an
    operation of a new peer: so no update is taken for one that was made to these texts.
    """
    filled = min(texts, default="content")  # other operations write to this text, and delete that again
    places = {id: (name, at) for name in texts for at, (id, _) in enumerate(texts[name])}
    inserted: dict[str, list[int]] = {name: [] for name in texts}  # the places of letters that are there
    peers = [*sorted(each for each, end in known.items() if end), peer]
    known = {**known, peer: 1}
    changes = []
    for number, peer in enumerate(peers):
        ops: list[dict[str, Any]] = []
        counter = 0
        while counter < known[peer]:
            start = counter
            if (peer, counter) not in places:
                while counter < known[peer] and (peer, counter) not in places:
                    counter += 1
                ops += _fill(filled, number, start, counter)
                continue
            name, at = places[peer, counter]
            while places.get((peer, counter)) == (name, at + counter - start):
                counter += 1
            there = inserted[name]
            place = bisect_left(there, at)
            text = "".join(value for _, value in texts[name][at : at + counter - start])
            there[place:place] = range(at, at + counter - start)
            ops.append(_operation(name, start, {"type": "insert", "pos": place, "text": text}))
        changes.append({"ops": ops})
    document = loro.LoroDoc()  # type: ignore[no-untyped-call]
    _import(document, peers, changes, chained=True)
    made = Document.load(Document(document).state())
    if any(made.elements(name, "Text") != list(letters) for name, letters in texts.items()):
        raise DocumentCorrupt("the document cannot be built from its operations")
    return made


def _fill(name: str, number: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield operations with the counters of a range that change nothing."""
    half = (end - start) // 2
    if half:
        yield _operation(name, start, {"type": "insert", "pos": 0, "text": " " * half})
        gone = {"type": "delete", "pos": 0, "len": half, "start_id": f"{start}@{number}"}
        yield _operation(name, start + half, gone)
    if (end - start) % 2:
        content = {"type": "delete", "key": "filler"}
        yield {"container": f"{_ROOT}filler:Map", "content": content, "counter": end - 1}


def _operation(name: str, counter: int, content: dict[str, Any]) -> dict[str, Any]:
    return {"container": f"{_ROOT}{name}:Text", "content": content, "counter": counter}


def _import(
    document: loro.LoroDoc, peers: Sequence[int], changes: Sequence[dict[str, Any]], chained: bool
) -> None:
    """Import one change of each peer; if `chained`, each follows the one before."""
    lamport = 0
    before: list[str] = []
    for place, change in enumerate(changes):
        change |= {"id": f"0@{place}", "timestamp": 0, "deps": before, "lamport": lamport, "msg": None}
        last = change["ops"][-1]
        size = len(last["content"].get("text", "")) or last["content"].get("len", 1)
        if chained:
            before = [f"{last['counter'] + size - 1}@{place}"]
            lamport += last["counter"] + size
    peers_text = [str(peer) for peer in peers]
    update = {"schema_version": 1, "start_version": {}, "peers": peers_text, "changes": changes}
    guard_call(lambda: document.import_json_updates(msgspec.json.encode(update).decode()))
