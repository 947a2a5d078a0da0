"""Cases of the verbs of application tables, and what they start from."""

from __future__ import annotations

from datetime import UTC, datetime

import dgent
from dgent.tables import connect, run_migrations
from dgent.tables.models import Crystal
from tests.verbs.case import Case

_BORN = datetime(2026, 1, 1, tzinfo=UTC)

TABLE_CASES: dict[str, list[Case]] = {
    "table.models": [Case({}, [])],
    "table.get": [
        Case({"model": "crystal", "id": "row"}, ["crystal", "row"]),
        Case({"model": "prices", "id": "tea"}, ["prices", "tea"]),
        Case({"model": "crystal", "id": "no"}, ["crystal", "no"], "not_found"),
        Case({"model": "cristal", "id": "row"}, ["cristal", "row"], "not_found"),
    ],
    "table.exists": [
        Case({"model": "brain_crystals", "id": "row"}, ["brain_crystals", "row"]),
        Case({"model": "plot", "id": "no"}, ["plot", "no"]),
    ],
    "table.put": [
        Case(
            {"model": "prices", "data": {"item": "milk", "cents": 95}},
            ["prices", '{"item": "milk", "cents": 95}'],
        ),
        Case(
            {"model": "crystal", "data": {"access_count": 7}, "id": "row"},
            ["crystal", '{"access_count": 7}', "--id", "row"],
        ),
        Case(
            {"model": "prices", "data": {"euros": 1}, "id": "tea"},
            ["prices", '{"euros": 1}', "--id", "tea"],
            "input",
        ),
        Case({"model": "prices", "data": "cheap"}, ["prices", "cheap"], "input"),
    ],
    "table.delete": [
        Case({"model": "prices", "id": "tea"}, ["prices", "tea", "--yes"]),
        Case({"model": "prices", "id": "no"}, ["prices", "no", "--yes"], "not_found"),
    ],
    "table.list": [
        Case({"model": "crystal", "prefix": "r", "limit": 5}, ["crystal", "r", "-n", "5"]),
        Case({"model": "crystal", "after": "2027-01-01"}, ["crystal", "--after", "2027-01-01"]),
    ],
    "table.query": [
        Case({"model": "prices", "where": ("cents>100",)}, ["prices", "-w", "cents>100"]),
        Case(
            {"model": "prices", "where": ('{"cents": {"$wat": 1}}',)},
            ["prices", "-w", '{"cents": {"$wat": 1}}'],
            "query",
        ),
    ],
    "table.count": [
        Case({"model": "prices"}, ["prices"]),
        Case({"model": "crystal", "where": ("summary=nothing",)}, ["crystal", "-w", "summary=nothing"]),
    ],
    "table.chain": [Case({"model": "crystal", "id": "row"}, ["crystal", "row"])],
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
    """The tables, one of the caller's own, and one row whose text is gone."""
    await u.storage.relational.execute(
        "CREATE TABLE prices (item TEXT PRIMARY KEY, cents INTEGER NOT NULL);"
        "INSERT INTO prices VALUES ('tea', 320), ('jam', 90)"
    )
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
