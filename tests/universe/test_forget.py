"""Forget means gone: rows, history, indexes, names and the bytes in the files."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgent
from tests.universe.marks import MARK, mark

SECRET = "xyzzy-secret-"
HIDDEN = dgent.Query(schema="witness.mark", tags={SECRET + "tag"})


async def remember_secret(u: dgent.Universe, **fields: object) -> dgent.Crystal:
    kept = await u.remember(
        mark(SECRET + "action", author=SECRET + "field", principles=(SECRET + "principle",)),
        id=SECRET + "id",
        tags={SECRET + "tag", "plain"},
        author=SECRET + "author",
        source=SECRET + "source",
        parent=SECRET + "parent",
        content=(SECRET + "content").encode() * 20,
        note=SECRET + "note",
        key=SECRET + "key",
        **fields,
    )
    return await u.store(kept.replace(value=mark(SECRET + "second")), note=SECRET + "why")


async def test_gone_everywhere(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    other = await u.remember(mark("other"), tags={"plain"})
    seq = await u.seq()
    done = await u.forget(kept.id)
    assert (done.records, done.versions, done.erased) == (1, 2, True)
    assert done.seq == seq + 1
    assert await u.get(kept.id) is None
    assert await u.get(kept.id, raw=True) is None
    assert await u.get(kept.id, as_of=seq) is None
    assert await u.history(kept.id) == []
    for query in (
        HIDDEN,
        dgent.Query(parent=SECRET + "parent"),
        dgent.Query(author=SECRET + "author"),
        dgent.Query(source=SECRET + "source"),
        dgent.Query(prefix=SECRET),
        dgent.Query(schema="witness.mark", where={"author": SECRET + "field"}),
    ):
        assert await u.query(query) == []
        assert await u.query(query, as_of=seq) == []
        assert await u.count(query) == 0
    assert await u.recall(dgent.Query(tags={"plain"})) == [other]
    assert SECRET not in repr(await u.changes(0))
    outcome = await u.outcome(SECRET + "key")
    assert outcome is None or [each.id for each in outcome.written] == [None]
    assert SECRET not in repr(await u.stats())


async def test_no_file_holds_the_bytes(file_url: str, tmp_path: Path) -> None:
    def traces() -> set[str]:
        held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        names = ("action", "field", "principle", "second", "id", "tag", "author", "source", "parent")
        names += ("content", "note", "why", "key")
        return {name for name in names if (SECRET + name).encode() in held}

    async with dgent.open(file_url, author="scout") as u:
        u.register(MARK)
        kept = await remember_secret(u)
        await u.remember(mark("other"), tags={"plain"})
        done = await u.forget(kept.id)
        assert done.erased
        while_open = traces()
    assert while_open == traces() == set()


async def test_no_file_holds_what_earlier_versions_said(file_url: str, tmp_path: Path) -> None:
    """Each version had its own texts, in fields with an index too; they were replaced long ago."""
    async with dgent.open(file_url, author="scout") as u:
        u.register(MARK)
        kept = await u.remember(mark())
        for n in range(30):
            text = f"{SECRET}{n:03}"
            value = mark(text, author=text, principles=(text,))
            kept = await u.store(kept.replace(value=value, tags={text}, source=text, parent_id=text))
            await u.remember(mark(f"other{n}"))
        await u.delete(kept.id)
        assert (await u.forget(kept.id)).erased
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in held


async def test_what_others_still_use_stays(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    other = await u.remember(mark("other"), tags={SECRET + "tag"}, author=SECRET + "author")
    await u.forget(kept.id)
    assert await u.query(HIDDEN) == [other]
    assert await u.query(dgent.Query(author=SECRET + "author")) == [other]


async def test_the_rev_goes_on(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    await u.forget(kept.id)
    again = await u.remember(mark(), id=kept.id)
    assert again.rev == 3
    with pytest.raises(dgent.VersionConflict):
        await u.store(again, expect=1)
    assert [v.rev for v in await u.history(kept.id)] == [3]
    await u.forget(kept.id)
    assert (await u.remember(mark(), id=kept.id)).rev == 4


async def test_deleted_records_and_nothing(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    await u.delete(kept.id)
    assert await u.history(kept.id)
    assert (await u.forget(kept.id)).records == 1
    assert await u.history(kept.id) == []
    seq = await u.seq()
    assert (await u.forget(kept.id, "never there")).records == 0
    assert (await u.forget()).records == 0
    assert await u.seq() == seq


async def test_many_at_once(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=f"r{n}") for n in range(50))
    done = await u.forget(*(f"r{n}" for n in range(40)), "r1")
    assert done.records == 40
    assert await u.count() == 10


async def test_a_transaction_that_read_it_is_refused(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    with pytest.raises(dgent.Conflict):
        async with u.transaction() as tx:
            await tx.get(kept.id)
            await u.forget(kept.id)
            await tx.put(dgent.Datum(id="copy"))
    assert not await u.exists("copy")


async def test_as_of_and_the_feed_go_on(u: dgent.Universe) -> None:
    kept = await remember_secret(u)
    other = await u.remember(mark("other"))
    await u.forget(kept.id)
    assert [c.id for c in await u.query(dgent.Query(), as_of=other.seq)] == [other.id]
    assert [change.kind for change in await u.changes(0)][-1] == "forget"
