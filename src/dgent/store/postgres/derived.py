"""The step that drops the index entries of an older universe that queries no longer need."""

from __future__ import annotations

from typing import Any

import msgspec

from dgent.store.engine.catalog import AUTHOR, state_of

_DROP_BY_TAG_AND_FIELD = """
DELETE FROM {u}.entry WHERE ix IN (SELECT ix FROM {u}.ix WHERE tag <> '' AND iv <> 0);
DELETE FROM {u}.ix WHERE tag <> '' AND iv <> 0;
"""
_AUTHORS = """
SELECT DISTINCT ON (s.schema) s.schema, s.decl, e.ix, e.key
FROM {u}.schema s JOIN {u}.ix i ON i.schema = s.schema JOIN {u}.entry e ON e.ix = i.ix
WHERE i.path = $1 GROUP BY s.schema, s.decl, e.ix, e.key ORDER BY s.schema, count(*) DESC, e.key
"""


async def drop_derived_entries(connection: Any, u: str) -> None:
    """Drop the entries by tag and field together, and those of each schema's most frequent author.

    That one becomes the schema's usual author, as the author of the first record is in newer universes.
    It runs in the caller's transaction; `u` is the quoted name of the schema that holds the tables.
    """
    await connection.execute(_DROP_BY_TAG_AND_FIELD.replace("{u}", u))
    for schema, raw, ix, key in await connection.fetch(_AUTHORS.replace("{u}", u), AUTHOR):
        state = msgspec.structs.replace(state_of(raw), usual_author=int.from_bytes(key, "big"))
        sql = f"UPDATE {u}.schema SET decl = $1 WHERE schema = $2"
        await connection.execute(sql, msgspec.json.encode(state), schema)
        await connection.execute(f"DELETE FROM {u}.entry WHERE ix = $1 AND key = $2", ix, key)
