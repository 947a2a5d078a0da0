"""Rows of SQLite in few bytes: ids that are UUIDs, tags that many records share, tags in entries."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

import dgent
from dgent import Datum, Schema, ids
from dgent.errors import Corrupt
from dgent.store.upkeep import upkeep_of
from tests.fault.check import move_entries

NOTE = Schema[Any]("note", indexes=("kind",))
OWN = "0190d000-0000-7000-8000-00000000000d"
OTHERS = [
    OWN.upper(),
    OWN.replace("-", ""),
    OWN[:-1],
    OWN + "0",
    "0190d000-0000-7000-8000-00000000000g",
    "0190d000-0000-7000-8000-0000000000 d",
    "0190d00-00000-7000-8000-00000000000d",
    "------------------------------------",
    "0190d000-0000-7000-8000-0000000000é1",
    "x" * 36,
    "a",
    "",
]


def note(id: str, *tags: str, kind: str = "k") -> Datum:
    return Datum(id=id, schema="note", schema_version=1, tags=frozenset(tags), data={"kind": kind})


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_only_usual_uuids_are_packed_and_come_back() -> None:
    rng = random.Random(3)
    some = [str(UUID(int=rng.getrandbits(128))) for _ in range(200)] + [ids.new_id(), OWN]
    packed = [ids.pack_id(id) for id in some]
    assert all(isinstance(each, bytes) and len(each) == 16 for each in packed)
    assert [ids.unpack_id(each) for each in packed if isinstance(each, bytes)] == some
    assert ids.pack_ids(some) == packed
    assert [ids.pack_id(id) for id in OTHERS] == OTHERS
    for odd in OTHERS:
        mixed = [*some[:3], odd, *some[3:]]
        assert ids.pack_ids(mixed) == [ids.pack_id(id) for id in mixed], odd
    assert sorted(some) == [
        ids.unpack_id(each) for each in sorted(map(bytes.fromhex, (id.replace("-", "") for id in some)))
    ]
    with pytest.raises(ValueError, match="15 bytes"):
        ids.unpack_id(bytes(15))


def test_a_range_has_the_packed_ids_with_a_prefix() -> None:
    rng = random.Random(4)
    some = [str(UUID(int=rng.getrandbits(128))) for _ in range(300)]
    for id in some[:20]:
        for length in range(37):
            prefix = id[:length]
            found = ids.packed_range(prefix)
            assert found is not None
            within = {each for each in some if found[0] <= bytes.fromhex(each.replace("-", "")) <= found[1]}
            assert within == {each for each in some if each.startswith(prefix)}
    for prefix in ("A", "g", "0190D", OWN + "0", OWN[:8] + "0", OWN[:9] + "-"):
        assert ids.packed_range(prefix) is None


async def test_ids_are_stored_in_16_bytes_and_found_as_they_were_given(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    given = [OWN, *OTHERS[:-1], ids.new_id(), ids.new_id()]
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        await u.put_many([note(id) for id in given])
        assert [each.id for each in await u.get_many(given, raw=True)] == given
        assert sorted([each.id for each in await u.query(schema="note", limit=None)]) == sorted(given)
        for id in given:
            found = await u.get(id, raw=True)
            assert found.id == id
            for prefix in {id[:1], id[:9], id[:20], id}:
                wanted = sorted(each for each in given if each.startswith(prefix))
                assert sorted(each.id for each in await u.list(prefix)) == wanted
        await u.delete(OWN)
        assert await u.get(OWN) is None and await u.get(OWN.upper()) is not None
        await u.put(note(OWN, kind="again"))
        assert [version.rev for version in await u.history(OWN)] == [3, 2, 1]
        await u.forget(OWN)
        assert await u.get(OWN) is None and await u.get(OWN.upper()) is not None
    assert ask(
        path, "SELECT typeof(id), length(id), count(*) FROM datum GROUP BY 1, 2 HAVING typeof(id) = 'blob'"
    ) == [("blob", 16, 2)]


async def test_tags_that_come_often_are_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        for n in range(10):
            await u.put(note(f"r{n}", "often", "together"))
        await u.put_many([note(f"m{n}", "in", "a batch") for n in range(10)])
        await u.put(note("once", "seldom", "together"))
        stored = ask(path, "SELECT typeof(tags), count(*) FROM datum GROUP BY 1 ORDER BY 1")
        assert dict(stored)["integer"] >= 12
        found = await u.query(schema="note", limit=None, raw=True)
        assert {each.id: each.tags for each in found if each.id in ("r0", "r9", "m0", "m9", "once")} == {
            "r0": {"often", "together"},
            "r9": {"often", "together"},
            "m0": {"in", "a batch"},
            "m9": {"in", "a batch"},
            "once": {"seldom", "together"},
        }
        assert await u.count(schema="note", tags=["often"]) == 10
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        crystals = await u.recall(schema="note", tags=["in"], limit=None)
        assert {crystal.tags for crystal in crystals} == {frozenset({"in", "a batch"})}
        problems = [each for each in await upkeep_of(u.backend).inspect(deep=True) if each.level == "problem"]
        assert problems == []


async def test_no_file_has_tags_that_were_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        for n in range(8):
            await u.put(note(f"r{n}", "a secret", "of many"))
        await u.put(note("stays", "other", "tags"))
        assert ask(path, "SELECT count(*) FROM name WHERE text LIKE '%secret%'") == [(1,)]
        await u.forget(*(f"r{n}" for n in range(8)))
    assert b"a secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


async def test_tags_without_their_text_are_found_by_the_doctor_and_hide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        await u.put_many([note(f"r{n}", "often", "together") for n in range(6)] + [note("other", "else")])
    ask(path, "DELETE FROM name WHERE text LIKE '%often%'")
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        with pytest.raises(Corrupt, match="which is not stored"):
            await u.get("r5")
        found = await u.query(schema="note", limit=None, raw=True)
        assert len(found) == 7
        damaged = {each.id for each in found if each.problem is not None}
        assert "r5" in damaged and "other" not in damaged
        messages = [
            each.message for each in await upkeep_of(u.backend).inspect(deep=True) if each.level == "problem"
        ]
        assert any("names are used and not stored" in message for message in messages)
        assert any("records are damaged" in message for message in messages)
        await u.put(note("r5", "often", "together"))
        assert (await u.get("r5", raw=True)).tags == {"often", "together"}


async def test_tags_that_share_a_bit_are_told_apart(tmp_path: Path) -> None:
    """With more tags than bits, and one that another program adds between two queries."""
    path = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{path}", author="me") as u, dgent.open(f"sqlite:///{path}") as other:
        for each in (u, other):
            each.register(NOTE)
        await u.put_many([note(f"r{n}", f"tag {n % 40}") for n in range(400)])
        assert await u.count(schema="note", tags=["tag 3"], where={"kind": "k"}) == 10
        await other.put_many([note(f"s{n}", f"tag {n % 120}") for n in range(480)])
        await move_entries(u.backend)
        for n in range(120):
            wanted = (10 if n < 40 else 0) + 4
            found = await u.query(schema="note", tags=[f"tag {n}"], where={"kind": "k"}, limit=None)
            assert len(found) == wanted, n
            assert all(f"tag {n}" in each.tags for each in found)


async def test_bits_of_tags_that_a_record_does_not_have_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        await u.put_many([note(f"r{n}", "even" if n % 2 else "odd") for n in range(300)])
    ask(path, "UPDATE entry SET tags = tags | (1 << 46) | (1 << 45) WHERE tags IS NOT NULL AND dk % 3 = 0")
    async with dgent.open(f"sqlite:///{path}", author="me") as u:
        u.register(NOTE)
        care = upkeep_of(u.backend)
        problems = [each for each in await care.inspect(deep=True) if each.level == "problem"]
        assert ["other tags than" in each.message for each in problems] == [True]
        await care.inspect(deep=True, fix=True)
        assert [each for each in await care.inspect(deep=True) if each.level == "problem"] == []
        assert await u.count(schema="note", tags=["even"], where={"kind": "k"}) == 150
