"""The rooms and the layers around them agree: on schemas, on kinds of names, and on what is loaded when."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dgent
from dgent.cupboard import Cupboard, Table
from dgent.cupboard.describe import DESCRIBED
from dgent.model import reserved
from dgent.universe.room import all_rooms, load_room, names_in_store
from dgent.verbs import registry
from dgent.verbs.field import VerbField, fields_of
from dgent.verbs.index import MODULES

OF_EVERY_STORE = {"", "id", "schema", "constellation", "setting", "file"}


@pytest.mark.parametrize("name", reserved.MODULES)
def test_a_room_owns_what_is_reserved_for_it(name: str) -> None:
    room = load_room(name)
    owned = {schema for schema, owner in reserved.OWNERS.items() if owner == name}
    assert {schema.name for schema in room.schemas} == owned
    rules = room.merge_rules()
    assert {*rules.rules, *rules.joint, *rules.internal} <= owned


def test_each_kind_of_name_is_known_to_one_room() -> None:
    kinds = [kind for room in all_rooms() for kind in room.kinds]
    assert len(kinds) == len(set(kinds))
    verbs = [registry.find(id) for id in MODULES]
    used = {each.complete for verb in verbs for each in fields_of(verb, VerbField)}
    assert used - OF_EVERY_STORE == set(kinds)


def test_the_words_for_tables_are_those_of_the_cupboard() -> None:
    tables = [name for name, value in vars(Cupboard()).items() if isinstance(value, Table)]
    assert sorted(load_room("cupboard").words["table"]) == sorted(tables)
    assert set(DESCRIBED) <= {schema.name for schema in load_room("cupboard").schemas}


async def test_only_rooms_that_were_used_are_in_a_store() -> None:
    async with dgent.open("memory:") as u:
        assert await names_in_store(u) == []
        await Cupboard(u).add("a")
        assert await names_in_store(u) == ["cupboard"]


def test_asking_a_room_for_names_loads_no_documents() -> None:
    """Completion asks at every press of a key."""
    program = """
import asyncio, sys
from dgent.universe.room import all_rooms
from dgent.universe.universe import open
async def main():
    async with open("memory:") as u:
        for room in all_rooms():
            for kind in room.kinds:
                if kind not in room.words:
                    await room.find_names(u, kind, "x", "scout", 5)
asyncio.run(main())
print(*(name for name in sys.modules if name.startswith(("loro", "dgent.blocks.", "dgent.cupboard."))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded == {
        *("dgent.blocks.errors", "dgent.blocks.room"),
        *(f"dgent.cupboard.{name}" for name in ("errors", "room", "builtin", "record")),
    }
