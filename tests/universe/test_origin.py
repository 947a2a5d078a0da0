"""The origin of a record: who can set its mark, who can end it, and where it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Crumb, Cupboard
from dgent.errors import Denied
from dgent.messages import Messages
from dgent.model.datum import Datum
from dgent.universe.gate import Principal
from dgent.universe.origin import drop_marks, find_origins, lower_source, mark_id, read_source
from dgent.universe.stamp import stamp_handle
from dgent.universe.universe import Universe
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke

EVE, FRED = Principal("eve", "conversant"), Principal("fred", "friend")
SCOUT = Principal("scout", "conversant")


@pytest.fixture(params=["memory:", "sqlite"])
async def u(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Universe]:
    url = request.param if request.param == "memory:" else f"sqlite:///{tmp_path}/a.db"
    async with dgent.open(url, author="ann", durability="relaxed") as universe:
        yield universe


async def origin_of(u: Universe, id: str) -> str:
    return (await find_origins(u, [await u.get(id, raw=True)]))[0]


def test_a_source_that_was_given_becomes_the_place() -> None:
    assert lower_source("mail", "conversant") == "origin:conversant mail"
    assert lower_source("mail", "conversant", "chat") == "origin:conversant chat"
    assert lower_source("origin:partner mail", "conversant") == "origin:conversant mail"
    assert lower_source("origin:untrusted page", "conversant", "chat") == "origin:untrusted page"
    assert lower_source("mail", "partner") == "mail"


async def test_what_a_stranger_adds_at_a_door_says_so(u: Universe) -> None:
    eve = u.acting(EVE)
    plain = await eve.put(Datum(data={"text": "lighthouse"}))
    faked = await eve.put(Datum(data={"text": "b"}, source="origin:partner me"))
    claimed = await eve.put(Datum(data={"text": "c"}, source="origin:friend fred"))
    for each in (plain, faked, claimed):
        assert await origin_of(u, each.id) == "conversant"
    own = await u.acting(FRED).put(Datum(data={"text": "d"}, source="mail"))
    stored = await u.get(own.id, raw=True)
    assert stored.source == "mail" and await origin_of(u, own.id) == "partner"
    (hit,) = await u.search("lighthouse")
    assert hit.origin == "conversant"


async def test_nobody_below_a_partner_ends_a_mark(u: Universe) -> None:
    made = await u.put(Datum("a", data={"text": "x"}, source="origin:untrusted https://example.org"))
    fred = u.acting(FRED)
    await fred.put(Datum("a", data={"text": "y"}))
    assert read_source((await u.get("a", raw=True)).source) == ("untrusted", "https://example.org")
    await fred.put(Datum("a", data={"text": "z"}, source="origin:friend me"))
    assert await origin_of(u, made.id) == "untrusted"
    await invoke(fred, "self.data.put", id="a", data='{"text": "v"}', source="fred")
    assert await origin_of(u, "a") == "untrusted"
    async with fred.transaction() as tx:
        await tx.put(Datum("a", data={"text": "w"}))
    assert await origin_of(u, "a") == "untrusted"
    call = stamp_handle(u, None, "friend").acting(FRED)
    await call.put(Datum("a", data={"text": "q"}))
    assert await origin_of(u, "a") == "untrusted"
    await u.put(Datum("a", data={"text": "the partner's own words"}))
    assert await origin_of(u, "a") == "partner"
    await fred.undo(await u.seq())
    assert await origin_of(u, "a") == "untrusted"


async def test_marks_of_wholes_are_dgent_s_own(u: Universe) -> None:
    block = await Library(u, "scout").create("notes", text="mine")
    await (await Library(u.acting(SCOUT), "scout", trust="conversant").get("notes")).append("eve's")
    assert await origin_of(u, block.id) == "conversant"
    fred = u.acting(FRED)
    mark = mark_id(block.id, "conversant")
    for attack in (fred.delete(mark), fred.put(Datum(mark, data={}))):
        with pytest.raises(Denied):
            await attack
    for trust in (EVE, FRED):
        with pytest.raises(Denied):
            await invoke(u.acting(trust), "self.data.delete", id=mark)
    assert await origin_of(u, block.id) == "conversant"
    assert await find_origins(fred, [await u.get(block.id, raw=True)]) == ["conversant"]  # unseen


async def test_an_edit_of_a_partner_does_not_vouch(u: Universe) -> None:
    library = Library(u, "scout")
    block = await library.create("notes", text="mine")
    assert "origin=" not in await library.render()
    stranger = Library(u.acting(SCOUT), "scout", trust="conversant")
    await (await stranger.get("notes")).append("lighthouse")
    assert 'origin="conversant"' in await library.render()
    await block.append("checked")
    await block.write("all of it is mine")
    assert 'origin="conversant"' in await library.render()
    (hit,) = await library.search("mine")
    assert hit.origin == "conversant"
    (shown,) = (await invoke(u, "self.block.list", caller=Caller("ann", "scout", "partner"))).items
    assert shown.origin == "conversant"
    await drop_marks(u, block.id)
    assert "origin=" not in await library.render()
    assert await origin_of(u, block.id) == "partner"


async def test_reading_marks_nothing(u: Universe) -> None:
    block = await Library(u, "scout").create("notes", text="lighthouse")
    scout = u.acting(SCOUT)
    assert [hit.origin for hit in await scout.search("lighthouse")] == ["partner"]
    await Library(scout, "scout", trust="conversant").render(mark=True)
    assert await origin_of(u, block.id) == "partner"
    assert [hit.origin for hit in await u.search("lighthouse")] == ["partner"]


async def test_a_neighbour_is_not_marked(u: Universe) -> None:
    await u.acting(EVE).put(Datum("list/1", data={"text": "x"}))
    await u.put(Datum("list/2", data={"text": "y"}))
    assert [await origin_of(u, id) for id in ("list/1", "list/2")] == ["conversant", "partner"]


async def test_a_crumb_keeps_its_origin_while_it_is_worked_on(u: Universe) -> None:
    id = await Cupboard(u.acting(EVE)).crumbs.set(None, Crumb("Fix the lighthouse"))
    own = await Cupboard(u).crumbs.get(id)
    own.name = "Fix the old lighthouse"
    await Cupboard(u).crumbs.set(id, own)
    assert [hit.origin for hit in await u.search("lighthouse")] == ["conversant"]


async def test_messages_have_the_origin_of_their_trust(u: Universe) -> None:
    await Messages(u, "scout").add("user", "lighthouse", trust="untrusted", origin="https://example.org")
    (hit,) = await u.search("lighthouse")
    assert hit.origin == "untrusted"
    (found,) = (await invoke(u, "self.data.search", words="lighthouse")).items
    assert found.origin == found.record.origin == "untrusted"


async def test_a_library_of_a_stranger_marks_without_a_gate(u: Universe) -> None:
    block = await Library(u, "scout").create("notes", text="mine")
    await (await Library(u, "scout", trust="conversant").get("notes")).append("eve's")
    assert await origin_of(u, block.id) == "conversant"


async def test_a_retry_is_one_after_the_mark_ended(u: Universe) -> None:
    await u.put(Datum("a", data={"text": "x"}, source="origin:untrusted page"))
    fred = u.acting(FRED)
    first = await fred.put(Datum("a", data={"text": "y"}), key="once")
    await u.put(Datum("a", data={"text": "the partner's"}))
    again = await fred.put(Datum("a", data={"text": "y"}), key="once")
    assert again.rev == first.rev
    assert (await u.get("a", raw=True)).data == {"text": "the partner's"}
