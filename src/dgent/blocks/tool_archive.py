"""The operations of the tool `archive`, and what the tool `search` does."""

from __future__ import annotations

from dgent import clock
from dgent.blocks.context.archive import Entry
from dgent.blocks.tool_answer import MOST_ROWS, Answer, done, noted, part_of_text
from dgent.blocks.tool_call import Call, Operation
from dgent.errors import InputError


async def insert(call: Call) -> Answer:
    """Put a text away."""
    made = await call.library.archive(call["text"], tags=call.get("tags", ()))
    return done("put away", _about(made))


async def read(call: Call) -> Answer:
    """Read an entry."""
    found = await call.library.archived(call["id"])
    part = part_of_text(found.text, call.offset)
    return done(noted("an entry", part.note), {**_about(found), "text": part.shown})


async def find(call: Call) -> Answer:
    """Find entries."""
    return await _found(call, "entry")


async def delete(call: Call) -> Answer:
    """Delete an entry."""
    await call.library.unarchive(call["id"])
    return done("deleted", {"id": call["id"]})


async def search(call: Call) -> Answer:
    """Find blocks and entries."""
    return await _found(call, call["kind"])


async def _found(call: Call, kind: str | None) -> Answer:
    limit = call.get("limit", 10)
    if not 1 <= limit <= MOST_ROWS:
        raise InputError(f"limit is from 1 to {MOST_ROWS}, not {limit}", field="limit")
    hits = await call.library.search(
        call["query"], limit=limit, kind=kind, owner=call["owner"] or None, tags=call.get("tags", ())
    )
    rows = [
        {
            "kind": each.kind,
            "id": each.id,
            "owner": each.owner,
            "label": each.label,
            "score": each.score,
            "snippet": each.snippet,
        }
        for each in hits
    ]
    return done(f"found {len(rows)}, the best first" if rows else "found nothing", rows)


def _about(entry: Entry) -> dict[str, object]:
    return {"id": entry.id, "tags": sorted(entry.tags), "at": clock.text(entry.at)}


OPERATIONS: dict[str, Operation] = {
    "insert": Operation(insert, ("text",), ("tags",)),
    "read": Operation(read, ("id",), ("offset",)),
    "search": Operation(find, ("query",), ("tags", "limit")),
    "delete": Operation(delete, ("id",)),
}
SEARCH = Operation(search, ("query",), ("kind", "owner", "tags", "limit"))
