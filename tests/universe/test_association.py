"""Untyped links between any two records."""

from __future__ import annotations

import pytest

import dgent
from dgent.errors import NotFound
from tests.universe.marks import mark


@pytest.fixture
async def things(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=id) for id in "abc")
    await u.remember(mark(), id="m")


@pytest.mark.usefixtures("things")
class TestAssociations:
    async def test_from_either_end(self, u: dgent.Universe) -> None:
        m = await u.get("m")
        link = await u.associate("a", m, "explains", 0.5)
        assert (link.value.a, link.value.b, link.value.kind, link.value.weight) == ("a", "m", "explains", 0.5)
        assert await u.associated("a") == await u.associated(m) == [link]
        assert link.value.other("a") == "m"
        assert link.author == "scout"
        assert await u.get(link.id) == link

    async def test_heaviest_first_and_by_kind(self, u: dgent.Universe) -> None:
        await u.associate("a", "b", "near", 0.1)
        await u.associate("c", "a", "near", 5)
        await u.associate("a", "b", "far", 2.0)
        assert [(x.value.other("a"), x.value.weight) for x in await u.associated("a")] == [
            ("c", 5.0),
            ("b", 2.0),
            ("b", 0.1),
        ]
        assert [x.value.weight for x in await u.associated("a", "near")] == [5.0, 0.1]
        assert await u.associated("a", "no such kind") == await u.associated("m") == []

    async def test_again_changes_the_weight(self, u: dgent.Universe) -> None:
        first = await u.associate("a", "b", weight=1)
        seq = await u.seq()
        assert (await u.associate("a", "b", weight=1)).rev == 1
        assert await u.seq() == seq
        second = await u.associate("a", "b", weight=2)
        assert (second.id, second.rev, second.created_at) == (first.id, 2, first.created_at)
        assert await u.associated("a") == [second]
        assert await u.associated("a") == [await u.get(first.id)]

    async def test_both_ends_must_exist(self, u: dgent.Universe) -> None:
        seq = await u.seq()
        for a, b in (("a", "lost"), ("lost", "a")):
            with pytest.raises(NotFound, match="lost"):
                await u.associate(a, b)
        await u.delete("b")
        with pytest.raises(NotFound):
            await u.associate("a", "b")
        assert await u.seq() == seq + 1

    async def test_dissociate(self, u: dgent.Universe) -> None:
        link = await u.associate("a", "b")
        assert await u.dissociate("b", "a") is False, "a link has a direction"
        assert await u.dissociate("a", await u.get("b")) is True
        assert await u.dissociate("a", "b") is False
        assert await u.associated("a") == []
        again = await u.associate("a", "b")
        assert (again.id, again.rev) == (link.id, 3)

    async def test_a_record_and_itself(self, u: dgent.Universe) -> None:
        link = await u.associate("a", "a")
        assert await u.associated("a") == [link]

    async def test_a_link_is_history_like_everything(self, u: dgent.Universe) -> None:
        link = await u.associate("a", "b")
        await u.undo(link.seq)
        assert await u.associated("a") == []
