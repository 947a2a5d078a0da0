"""The step that drops the index entries of an older store that queries no longer need."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from dgent.store.engine.catalog import AUTHOR, state_of

_BY_TAG_AND_FIELD = "SELECT ix FROM ix WHERE tag <> '' AND iv <> 0"
_AUTHORS = (
    "SELECT i.ix, e.key FROM ix i CROSS JOIN entry e ON e.ix = i.ix WHERE i.schema = ? AND i.path = ?"
    " GROUP BY i.ix, e.key ORDER BY count(*) DESC, e.key LIMIT 1"
)


def drop_derived_entries(connection: apsw.Connection) -> None:
    """Drop the entries by tag and field together, and those of each schema's most frequent author.

    That one becomes the schema's usual author, as the author of the first record is in newer stores.
    """
    run = connection.execute
    run(f"DELETE FROM entry WHERE ix IN ({_BY_TAG_AND_FIELD})")
    run(f"DELETE FROM ix WHERE ix IN ({_BY_TAG_AND_FIELD})")
    schemas: list[Any] = run("SELECT schema, decl FROM schema").fetchall()
    for schema, raw in schemas:
        authors: list[Any] = run(_AUTHORS, (schema, AUTHOR)).fetchall()
        for ix, key in authors:
            state = msgspec.structs.replace(state_of(raw), usual_author=int.from_bytes(key, "big"))
            run("UPDATE schema SET decl = ? WHERE schema = ?", (msgspec.json.encode(state), schema))
            run("DELETE FROM entry WHERE ix = ? AND key = ?", (ix, key))
    run("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
