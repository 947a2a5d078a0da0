"""Cases of the verbs of application tables, and what they start from."""

from __future__ import annotations

from datetime import UTC, datetime

import dgent
from dgent.tables import connect, run_migrations
from dgent.tables.models import Crystal
from tests.verbs.case import Case

_BORN = datetime(2026, 1, 1, tzinfo=UTC)

TABLE_CASES: dict[str, list[Case]] = {
    "tables.upgrade": [
        Case({}, []),
        Case({"target": "002", "development": True}, ["002", "--development", "--yes"]),
        Case({"target": "002"}, ["002"], "denied"),
        Case({"target": "none"}, ["none"], "input"),
    ],
    "tables.current": [Case({}, [])],
    "tables.history": [Case({}, [])],
    "tables.new": [
        Case({"title": "add prices", "folder": "{new}"}, ["add", "prices", "--folder", "{new}"]),
        Case({"title": " ", "folder": "{new}"}, [" ", "--folder", "{new}"], "input"),
    ],
    "tables.repair": [
        Case({"dry_run": True}, ["--dry-run"]),
        Case({"missing_datum": "delete"}, ["--missing-datum", "delete", "--yes"]),
    ],
}


async def fill_tables(u: dgent.Universe) -> None:
    """The tables, with one row whose text is gone."""
    async with await connect(u) as place:
        await run_migrations(place)
        async with place.sessions.begin() as session:
            session.add(
                Crystal(
                    id="row",
                    content_hash="h",
                    summary="a kettle",
                    tags=["tea"],
                    datum_id="gone",
                    created_at=_BORN,
                    updated_at=_BORN,
                )
            )
