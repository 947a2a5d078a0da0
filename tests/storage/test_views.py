"""Records of rooms as tables: the ancestor's own statements end in commits, and all else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, Denied, InputError, QueryError
from dgent.membrane import AgentState, Membrane, Shape
from dgent.universe.relational import RelationalStore

SHAPE = "INSERT INTO shapes (id, shape_type, project_hash) VALUES (:id, 'wave', :hash)"
STATE = "INSERT OR REPLACE INTO agent_state (agent_id, genus, state) VALUES (:id, :genus, :state)"


async def test_an_insert_is_a_commit_of_the_room(universe: dgent.Universe) -> None:
    store = universe.storage.relational
    before = await universe.seq()
    assert await store.execute(SHAPE, {"id": "s1", "hash": "ab12"}) == 1
    assert await universe.seq() == before + 1
    (change,) = await universe.changes(before)
    assert [(item.op, item.schema) for item in change.items] == [("put", "membrane.shape")]
    found = await Membrane(universe).get(Shape, "s1")
    assert found is not None and (found.shape_type, found.project_hash) == ("wave", "ab12")
    assert await store.fetch_all("SELECT id, shape_type, intensity FROM shapes") == [
        {"id": "s1", "shape_type": "wave", "intensity": 1.0}
    ]
    with pytest.raises(Conflict):
        await store.execute(SHAPE, {"id": "s1", "hash": "other"})


async def test_a_replaced_row_keeps_its_history(universe: dgent.Universe) -> None:
    store = universe.storage.relational
    for mood in ("calm", "curious"):
        state = json.dumps({"mood": mood})
        assert await store.execute(STATE, {"id": "soul", "genus": "k-gent", "state": state}) == 1
    row = await store.fetch_one("SELECT genus, state FROM agent_state WHERE agent_id = :id", {"id": "soul"})
    assert row is not None and json.loads(row["state"]) == {"mood": "curious"}
    found = await Membrane(universe).get(AgentState, "soul")
    assert found is not None and found.state == {"mood": "curious"}
    assert len(await universe.history("membrane.agent_state/soul")) == 2


async def test_values_may_be_expressions_and_come_from_tables(store: RelationalStore) -> None:
    await store.execute(
        "INSERT INTO shapes (id, shape_type, intensity, interpretation) VALUES"
        " ('a' || 'b', upper(:kind), 1.5 + (2 * 0.25), 'it''s, (so)'), (:id, 'x', NULL, NULL)",
        {"kind": "wave", "id": "c"},
    )
    assert await store.fetch_all(
        "SELECT id, shape_type, intensity, interpretation FROM shapes ORDER BY id"
    ) == [
        {"id": "ab", "shape_type": "WAVE", "intensity": 2.0, "interpretation": "it's, (so)"},
        {"id": "c", "shape_type": "x", "intensity": 1.0, "interpretation": None},
    ]
    await store.execute("CREATE TABLE mine (name TEXT)")
    await store.execute("INSERT INTO mine SELECT shape_type FROM shapes WHERE id = :id", {"id": "c"})
    await store.execute("INSERT INTO shapes (id, shape_type) SELECT name || '-2', 'copy' FROM mine")
    joined = "SELECT m.name, s.id FROM mine m JOIN shapes s ON s.id = m.name || '-2'"
    assert await store.fetch_all(joined) == [{"name": "x", "id": "x-2"}]
    counted = "WITH few AS (SELECT id FROM shapes WHERE id < :last) SELECT count(*) AS n FROM few"
    assert await store.fetch_one(counted, {"last": "c"}) == {"n": 1}
    await store.execute("DROP TABLE mine")


async def test_many_rows_are_one_commit(universe: dgent.Universe) -> None:
    store = universe.storage.relational
    before = await universe.seq()
    rows = [{"id": f"s{n}", "hash": "ab"} for n in range(20)]
    assert await store.execute_many(SHAPE, rows) == 20
    assert await universe.seq() == before + 1
    assert await store.fetch_one("SELECT count(*) AS n FROM shapes") == {"n": 20}


async def test_every_table_can_be_read(store: RelationalStore) -> None:
    from dgent.membrane.record import TABLES

    for name, table in TABLES.items():
        assert await store.fetch_all(f"SELECT {', '.join(table.columns)} FROM {name}") == []
    version: Any = await store.fetch_one("SELECT max(version) AS v FROM schema_version")
    assert version["v"] >= 1


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE shapes SET intensity = 2",
        "DELETE FROM shapes",
        "DELETE FROM agent_state WHERE agent_id = 'soul'",
        "INSERT OR IGNORE INTO shapes (id, shape_type) VALUES ('a', 'b')",
        "INSERT INTO shapes (id, shape_type) VALUES ('a', 'b') ON CONFLICT DO NOTHING",
        "INSERT INTO shapes (id, shape_type) VALUES ('a', 'b') RETURNING id",
        "INSERT INTO schema_version (version) VALUES (9)",
        "INSERT INTO shapes DEFAULT VALUES",
        "DROP TABLE shapes",
        "CREATE TABLE shapes (id TEXT)",
        "CREATE VIEW mine AS SELECT * FROM shapes",
        "INSERT INTO shapes (id, shape_type) VALUES ('a', 'b'); SELECT 1",
    ],
)
async def test_all_else_is_refused_with_the_call_to_use(store: RelationalStore, sql: str) -> None:
    await store.execute(SHAPE, {"id": "s1", "hash": "ab12"})
    with pytest.raises(Denied) as raised:
        await store.execute(sql)
    assert raised.value.hint
    assert await store.fetch_all("SELECT id FROM shapes") == [{"id": "s1"}]


ODD = {
    "WITH x AS (SELECT 1) INSERT INTO agent_state (agent_id) SELECT 'a' FROM x": "WITH … SELECT",
    "WITH x AS (SELECT 1) UPDATE agent_state SET genus = 'x'": "WITH … SELECT",
    "WITH x AS (SELECT 1) DELETE FROM agent_state": "WITH … SELECT",
    "EXPLAIN SELECT * FROM agent_state": "your own tables",
    "EXPLAIN INSERT INTO agent_state VALUES (1, 2, 3)": "your own tables",
}


@pytest.mark.parametrize("sql", ODD)
async def test_an_odd_statement_gets_a_hint(store: RelationalStore, sql: str) -> None:
    with pytest.raises(Denied, match="agent_state holds records of a room") as caught:
        await store.execute(sql)
    assert ODD[sql] in caught.value.hint


async def test_quotes_and_schemas_are_understood(store: RelationalStore) -> None:
    name = '"agent_state"' if store.dialect == "postgres" else '"Agent_State"'
    assert await store.execute(f"INSERT INTO {name} (agent_id, genus) VALUES ('a', 'g')") == 1
    assert await store.fetch_all(f"SELECT genus FROM {name}") == [{"genus": "g"}]
    with pytest.raises(QueryError, match="is in no schema"):
        await store.fetch_all(
            f"SELECT genus FROM {'public' if store.dialect == 'postgres' else 'main'}.agent_state"
        )


async def test_making_a_table_that_is_there_does_nothing(store: RelationalStore) -> None:
    assert await store.execute("CREATE TABLE IF NOT EXISTS shapes (id TEXT PRIMARY KEY)") == 0
    assert await store.fetch_all("SELECT id FROM shapes") == []


async def test_wrong_rows_are_named(store: RelationalStore) -> None:
    for sql, error in {
        "INSERT INTO shapes (id, nonsense) VALUES ('a', 1)": InputError,
        "INSERT INTO shapes (id, shape_type) VALUES ('a')": QueryError,
        "INSERT INTO shapes (id, shape_type) VALUES ('a', :missing)": InputError,
        "INSERT INTO shapes (id, shape_type, observed_at) VALUES ('a', 'b', 'never')": InputError,
    }.items():
        with pytest.raises(error):
            await store.execute(sql)
    with pytest.raises(dgent.NotFound):
        await store.execute(
            "INSERT INTO cli_session_events (session_id, event_type, source, message)"
            " VALUES ('no', 'a', 'b', 'c')"
        )


async def test_in_a_transaction_they_are_read_and_not_written(store: RelationalStore) -> None:
    await store.execute(SHAPE, {"id": "s1", "hash": "ab12"})
    async with store.transaction() as tx:
        await tx.execute("CREATE TABLE mine (id TEXT)")
        await tx.execute("INSERT INTO mine SELECT id FROM shapes")
        with pytest.raises(Denied, match="a commit of its own"):
            await tx.execute(SHAPE, {"id": "s2", "hash": ""})
    assert await store.fetch_all("SELECT id FROM mine") == [{"id": "s1"}]
    await store.execute("DROP TABLE mine")


async def test_a_handle_that_only_reads_reads_them_too(store: RelationalStore) -> None:
    await store.execute(SHAPE, {"id": "s1", "hash": "ab12"})
    reads = store.limit_to_reads()
    assert await reads.fetch_all("SELECT id FROM shapes") == [{"id": "s1"}]
    with pytest.raises(Denied):
        await reads.execute(SHAPE, {"id": "s2", "hash": ""})


async def test_a_column_may_have_their_names(store: RelationalStore) -> None:
    await store.execute("CREATE TABLE servers (name TEXT, instances BIGINT)")
    await store.execute("INSERT INTO servers (name, instances) VALUES ('a', 2)")
    assert await store.execute("UPDATE servers SET instances = instances + 1") == 1
    assert await store.fetch_all("SELECT instances FROM servers") == [{"instances": 3}]
    await store.execute("DROP TABLE servers")
