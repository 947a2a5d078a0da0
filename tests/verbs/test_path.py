"""The path language: paths resolve to verbs, and the caller's trust holds there too."""

from __future__ import annotations

import base64
import itertools
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import dgent
from dgent.universe.gate import Principal
from dgent.verbs.caller import ALLOWED, Caller
from dgent.verbs.index import MODULES, NOUNS
from dgent.verbs.path import Offers, invoke, verb_of

EVE = Caller("mail", "eve", "untrusted")


async def test_a_path_is_a_verb() -> None:
    async with dgent.open("memory:", author="ann") as u:
        stored = await invoke(u, "self.data.put", data={"n": 1}, schema="note", tag=["t"])
        assert (stored.rev, stored.author, stored.tags) == (1, "ann", ["t"])
        found = await invoke(u, "self.data.query", schema="note", limit="5")
        assert [each.id for each in found.items] == [stored.id]
        assert (await invoke(u, "self.data.count")).count == 1


async def test_looking_around_lists_what_is_there() -> None:
    async with dgent.open("memory:") as u:
        everything = await invoke(u, "self", caller=EVE)
        assert isinstance(everything, Offers)
        assert [offer.path for offer in everything.items] == [f"self.{id}" for id in MODULES]
        for noun in NOUNS:
            offers = await invoke(u, f"self.{noun}", caller=EVE)
            assert offers.items and all(offer.path.startswith(f"self.{noun}.") for offer in offers.items)


@pytest.mark.parametrize(
    "path", ["self.data.qeury", "data.query", "", "self.", "self.nope", "world.data.get", "self.data.get.x"]
)
async def test_an_unknown_path_lists_what_is_there(path: str) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(dgent.NotFound) as caught:
            await invoke(u, path)
    assert "self.data." in caught.value.hint
    if path == "self.data.qeury":
        assert caught.value.hint == "did you mean self.data.query?"


def test_a_path_is_text() -> None:
    with pytest.raises(dgent.InputError):
        verb_of(3)  # type: ignore[arg-type]


async def test_arguments_are_checked() -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(dgent.InputError, match="did you mean schema"):
            await invoke(u, "self.data.query", shema="x")
        with pytest.raises(dgent.InputError, match="limit"):
            await invoke(u, "self.data.query", limit="many")
        with pytest.raises(dgent.InputError, match="it needs `id`"):
            await invoke(u, "self.data.get")
        with pytest.raises(dgent.Unsupported):
            await invoke(u, "self.config.list")


@pytest.mark.parametrize("trust", ALLOWED)
async def test_trust_at_a_path(trust: str) -> None:
    caller = Caller("mail", "eve", trust)  # type: ignore[arg-type]
    wanted = {
        "self.data.count": ("read", {}),
        "self.data.put": ("append", {"data": "hello"}),
        "self.data.delete": ("write", {"id": "a"}),
        "self.data.forget": ("destroy", {"id": ["a"]}),
    }
    async with dgent.open("memory:") as u:
        await u.put(dgent.Datum(id="a"))
        for path, (effect, args) in wanted.items():
            if effect in ALLOWED[trust]:  # type: ignore[index]
                await invoke(u, path, caller=caller, **args)
            else:
                with pytest.raises(dgent.Denied, match="eve"):
                    await invoke(u, path, caller=caller, **args)


async def test_a_conversant_may_add_and_not_change() -> None:
    friendly = Caller("mail", "eve", "conversant")
    async with dgent.open("memory:") as u:
        await invoke(u, "self.data.put", data={"n": 1}, id="mine", expect=0, caller=friendly)
        assert (await u.get("mine", raw=True)).author == "eve"
        for args in ({"id": "mine"}, {"id": "mine", "expect": 1}):
            with pytest.raises(dgent.Denied):
                await invoke(u, "self.data.put", data={"n": 2}, caller=friendly, **args)
        with pytest.raises(dgent.VersionConflict):
            await invoke(u, "self.data.put", data={"n": 2}, id="mine", expect=0, caller=friendly)
        assert (await u.get("mine", raw=True)).data == {"n": 1}


async def test_no_data_verb_writes_what_a_room_owns() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Crumb:
        name: str

    async with dgent.open("memory:") as u:
        room = u.for_room("attic")
        room.register(dgent.Schema("attic.crumb", contract=Crumb, owner="attic"))
        crumb = await room.remember(Crumb("x"), id="crumb")
        assert (await invoke(u, "self.data.get", id="crumb")).data == {"name": "x"}
        for path, args in {
            "self.data.put": {"data": {"name": "y"}, "id": "crumb", "schema": "attic.crumb"},
            "self.data.delete": {"id": "crumb"},
            "self.data.undo": {"seq": crumb.seq},
        }.items():
            with pytest.raises(dgent.Denied):
                await invoke(u, path, **args)


async def test_a_stream_is_an_iterator() -> None:
    async with dgent.open("memory:") as u:
        await u.put(dgent.Datum(id="a", data={"n": 1}))
        stream = await invoke(u, "self.data.watch", from_seq=0)
        entry = await anext(stream)
        assert [item.id for item in entry.items] == ["a"]
        await stream.aclose()


def test_every_trust_covers_the_ones_below() -> None:
    levels = list(ALLOWED.values())
    assert all(more > less for more, less in itertools.pairwise(levels))
    with pytest.raises(dgent.InputError):
        Caller("x", None, "admin")  # type: ignore[arg-type]


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_files_and_modules_are_for_partners(
    trust: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evilmod.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    caller = Caller("mail", "eve", trust)  # type: ignore[arg-type]
    async with dgent.open("memory:") as u:
        for path, args in {
            "self.data.upgrade": {"schema": "x", "contracts": ["evilmod"], "dry_run": True},
            "self.data.export": {"to": str(tmp_path / "stolen")},
            "self.data.import": {"path": "/etc/hostname", "dry_run": True},
            "self.store.backup": {"to": str(tmp_path / "copy")},
            "self.config.list": {},
        }.items():
            with pytest.raises(dgent.Denied):
                await invoke(u, path, caller=caller, **args)
    assert [path.name for path in tmp_path.iterdir()] == ["evilmod.py"]


async def test_only_a_partner_writes_as_another() -> None:
    async with dgent.open("memory:") as u:
        for trust in ("friend", "conversant"):
            caller = Caller("mail", "eve", trust)  # type: ignore[arg-type]
            with pytest.raises(dgent.Denied, match="may not write as 'admin'"):
                await invoke(u, "self.data.put", data="x", author="admin", caller=caller)
            assert (await invoke(u, "self.data.put", data="x", author="eve", caller=caller)).author == "eve"
        assert (await invoke(u, "self.data.put", data="x", author="admin")).author == "admin"


async def test_who_committed_is_shown_beside_whom_a_record_names() -> None:
    async with dgent.open("memory:", author="ann") as u:
        await invoke(u, "self.data.put", data={"n": 1}, id="a", author="bob")
        await invoke(u, "self.data.put", data={"n": 2}, id="a", author="cat")
        got = await invoke(u, "self.data.get", id="a")
        assert (got.author, got.committed_by) == ("cat", "ann")
        first = await invoke(u, "self.data.get", id="a", as_of="1")
        assert (first.author, first.committed_by) == ("bob", "ann")
        editions = (await invoke(u, "self.data.history", id="a")).items
        assert [(each.author, each.record.author) for each in editions] == [("ann", "cat"), ("ann", "bob")]
        entry = (await invoke(u, "self.data.log")).items[0]
        assert (entry.author, entry.items[0].record.author) == ("ann", "cat")
        eve = Caller("mail", "eve", "friend")
        await invoke(u, "self.data.put", data={"n": 3}, id="b", caller=eve)
        assert (await invoke(u, "self.data.get", id="b")).committed_by == "eve"


async def test_a_conversant_may_not_fill_an_id_that_was_deleted() -> None:
    eve = Caller("mail", "eve", "conversant")
    async with dgent.open("memory:") as u:
        for id in ("deleted", "forgotten"):
            await u.put(dgent.Datum(id, data={"n": 1}))
            await u.delete(id)
        await u.forget("forgotten")
        for id in ("deleted", "forgotten"):
            with pytest.raises(dgent.VersionConflict, match="is or was the id"):
                await invoke(u, "self.data.put", data={"n": 2}, id=id, expect=0, caller=eve)
            friend = Caller("mail", "eve", "friend")
            await invoke(u, "self.data.put", data={"n": 2}, id=id, expect=0, caller=friend)
        acting = u.acting(Principal("eve", "conversant"))
        for work in (
            acting.delete("deleted"),
            acting.put(dgent.Datum("deleted"), expect=3),
            acting.forget("x"),
        ):
            with pytest.raises(dgent.Denied):
                await work
        with pytest.raises(dgent.Denied):
            await u.acting(Principal("eve", "friend")).put(dgent.Datum("dgent.copy:x"))


async def test_odd_calls() -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(dgent.InputError):
            await invoke(u, 5)  # type: ignore[arg-type]
        for trust in ([], {}, None, 3):
            with pytest.raises(dgent.InputError):
                Caller("x", None, trust)  # type: ignore[arg-type]


async def test_conditions_and_times_may_be_values_and_old_names_work() -> None:
    async with dgent.open("memory:") as u:
        first = await invoke(u, "self.data.put", data={"n": 1}, schema="note")
        await invoke(u, "self.data.put", data={"n": 5}, schema="note", parent=first.id)
        found = await invoke(u, "self.data.query", schema="note", where={"n": {"$gte": 3}})
        assert [each.data for each in found.items] == [{"n": 5}]
        later = datetime.now(UTC) + timedelta(hours=1)
        assert (await invoke(u, "self.data.query", schema="note", since=later)).items == []
        assert (await invoke(u, "self.data.exists", id=first.id)).exists is True
        assert (await invoke(u, "self.data.exists", id="nothing")).exists is False
        chain = await invoke(u, "self.data.causal_chain", id=found.items[0].id)
        assert {each.id for each in chain.items} == {first.id, found.items[0].id}
        assert (await invoke(u, "self.data.manifest")) is not None
        with pytest.raises(dgent.NotFound):
            await invoke(u, "data.causal_chain", id=first.id)
        ask = partial(invoke, u, "self.data.count", schema="note")
        assert (await ask(where="n>=3")).count == (await ask(where=["n>=3", {"n": 5}])).count == 1
        assert (await ask(where=None)).count == (await ask(since=timedelta(hours=1))).count == 2
        assert (await ask(as_of=1)).count == 1
        with pytest.raises(dgent.InputError, match="no time zone"):
            await ask(since=datetime(2026, 1, 1))
        with pytest.raises(dgent.InputError, match="where"):
            await invoke(u, "self.data.query", where={"n": object()})


async def test_contents_tags_and_causes_may_be_given_as_python_calls_them() -> None:
    async with dgent.open("memory:") as u:
        made = await invoke(u, "self.data.put", data={}, content=b"\x00bytes", tags={"a", "b"}, id="one")
        assert (made.content, made.tags) == (b"\x00bytes", ["a", "b"])
        assert (await invoke(u, "self.data.get", id="one")).content == b"\x00bytes"
        text = base64.b64encode(b"as text").decode()
        await invoke(u, "self.data.put", data={}, content=text, tag="c", parent_id="one", id="two")
        found = await u.get("two")
        assert (found.content, found.tags, found.parent_id) == (b"as text", {"c"}, "one")
        with pytest.raises(dgent.InputError, match="content"):
            await invoke(u, "self.data.put", data={}, content="not base64!")
        with pytest.raises(dgent.InputError, match="takes no 'colour'"):
            await invoke(u, "self.data.put", data={}, colour="red")
