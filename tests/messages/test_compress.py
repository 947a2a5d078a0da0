"""Compression: whole batches behind a boundary, summaries paid once, and everything comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dgent.errors import Conflict, InputError, NotFound, TransactionConflict, UndoConflict
from dgent.messages import Entry, Importance, Messages, RecursiveSummary, TimeDecay, Truncate


class Summariser:
    """Counts its calls, and says what it was given."""

    def __init__(self, fails: int = 99) -> None:
        self.calls: list[list[str]] = []
        self._fails = fails

    async def __call__(self, parts: Sequence[str]) -> str:
        self.calls.append(list(parts))
        if len(self.calls) > self._fails:
            raise OSError("the model is away")
        return f"summary {len(self.calls)} of {len(parts)} parts about lanterns"


async def fill(messages: Messages, batches: int, first: int = 0) -> None:
    for number in range(first, first + batches):
        await messages.add_all([Entry("user", f"question {number}"), Entry("assistant", f"answer {number}")])


async def shown(messages: Messages) -> list[str]:
    return [each.text for each in (await messages.history()).messages if each.role == "user"]


async def test_summaries_are_a_chain_paid_once_and_come_back(everywhere: Messages) -> None:
    messages, ask = everywhere, Summariser()
    await messages.add("user", "untrusted words", trust="untrusted")
    await fill(messages, 6)
    running = await messages.begin(entries=[Entry("user", "running")])
    await fill(messages, 2, 6)
    rule = RecursiveSummary(keep=4, chunk_tokens=16)
    done = await messages.compress(rule, messages=10, summarise=ask)
    assert (done.batches, done.messages, done.fell_back) == (7, 13, False)
    assert len(ask.calls) == len(done.summaries) == 3 and ask.calls[0][1] == "user: question 0"
    assert ask.calls[1][0].endswith("summary 1 of 5 parts about lanterns")
    history = await messages.history()
    assert [each.text for each in history.messages] == ["question 6", "answer 6", "question 7", "answer 7"]
    assert history.summary is not None and history.summary.text.startswith("summary 3")
    assert (history.summary.depth, history.summary.trust) == (2, "untrusted")

    # Nothing is paid again before there is more, and an open batch is never archived.
    assert (await messages.compress(rule, messages=10, summarise=ask)).summaries == []
    assert len(ask.calls) == 3
    await running.complete()
    assert "running" in await shown(messages)
    hits = await messages.search("lanterns", k=20)
    assert {hit.summary.id for hit in hits if hit.summary} == set(done.summaries)
    old = (await messages.search("question 0"))[0].message
    assert old is not None and old.archived and not (await messages.page(1)).items[0].archived

    back = await messages.restore()
    assert [each.id for each in back] == [done.summaries[-1]]
    assert (await messages.history()).summary.id == done.summaries[-2]  # type: ignore[union-attr]
    assert len(await messages.restore(done.summaries[0])) == 2
    assert (await shown(messages))[1:] == [
        *(f"question {n}" for n in range(6)),
        "running",
        "question 6",
        "question 7",
    ]
    with pytest.raises(NotFound):
        await messages.restore()


async def test_a_failing_summariser_falls_back_and_says_so(messages: Messages) -> None:
    await fill(messages, 6)
    ask = Summariser(fails=1)
    done = await messages.compress(RecursiveSummary(keep=2, chunk_tokens=10), summarise=ask)
    assert done.fell_back and done.note == "the summariser failed: OSError: the model is away"
    assert done.messages == 10 and len(done.summaries) == 2
    history = await messages.history()
    assert history.summary is not None
    # The text of the summary that was made still stands for what it covers.
    assert history.summary.text.startswith("summary 1") and history.summary.note == done.note
    assert await shown(messages) == ["question 5"]
    await fill(messages, 2)
    again = await messages.compress(RecursiveSummary(keep=2), summarise=(later := Summariser()))
    assert not again.fell_back and later.calls[0][0].endswith("summary 1 of 4 parts about lanterns")
    await fill(messages, 2)
    none = await messages.compress(RecursiveSummary(keep=2))
    assert none.fell_back and "no summariser" in none.note
    for wrong in ("", None, 3):

        async def answer(parts: Sequence[str], given: object = wrong) -> str:
            return given  # type: ignore[return-value]

        await fill(messages, 2)
        assert (await messages.compress(RecursiveSummary(keep=2), summarise=answer)).fell_back


async def test_the_strategies_choose_whole_batches(messages: Messages) -> None:
    await fill(messages, 8)
    assert (await messages.compress(Truncate(keep=100))).batches == 0
    assert (await messages.compress(Truncate(keep=3), tokens=10_000)).batches == 0
    assert (await messages.compress(TimeDecay(keep=2, hours=1))).batches == 0
    done = await messages.compress({"strategy": "truncate", "keep": 3})
    assert done.batches == 6 and await shown(messages) == ["question 6", "question 7"]
    await messages.restore()
    assert (await messages.compress(Truncate(keep=0))).batches == 7  # one stays, whatever is asked
    await messages.restore()
    assert (await messages.compress(Truncate(keep=100), tokens=9)).batches == 7
    await messages.restore()
    (found,) = [each for each in (await messages.page()).items if each.text == "question 3"]
    await messages.edit(found.id, "remember, this is important: never swim, always row")
    await messages.compress(Importance(keep=2, important=1))
    assert await shown(messages) == ["remember, this is important: never swim, always row", "question 7"]
    await fill(messages, 1)
    await messages.compress(Importance(keep=2, important=2))
    assert (await shown(messages))[0].startswith("remember")
    await messages.compress(TimeDecay(keep=1, hours=0))
    assert await shown(messages) == ["question 0"]
    await messages.restore((await messages.list_summaries())[-1].id)

    async def by_number(texts: Sequence[str]) -> float:
        if "question 2" in texts[0]:
            return 10.0
        return 0.0

    await messages.compress(Importance(keep=2, important=1), score=by_number)
    assert (await shown(messages))[0] == "question 2"
    for wrong in ("shrink", {"strategy": "truncate", "keep": "x"}, {"strategy": "truncate", "keep": -1}, 3):
        with pytest.raises(InputError):
            await messages.compress(wrong)  # type: ignore[arg-type]


async def test_what_is_forgotten_leaves_the_summaries_too(messages: Messages) -> None:
    await fill(messages, 6)
    done = await messages.compress(RecursiveSummary(keep=2, chunk_tokens=14), summarise=Summariser())
    assert len(done.summaries) == 3
    (found,) = await messages.search("question 2", k=1)
    assert found.message is not None
    await messages.forget(found.message.id)
    # Of the chain only what came before it is left; the rest is in the history again.
    assert [each.id for each in await messages.list_summaries()] == done.summaries[:1]
    assert await shown(messages) == ["question 3", "question 4", "question 5"]
    assert (await messages.history()).messages[0].text == "answer 2"
    await messages.redact("lanterns")
    assert (await messages.list_summaries())[0].text == "summary 1 of 4 parts about [redacted]"


async def test_undo_of_an_archive_keeps_the_chain_whole(messages: Messages) -> None:
    u = messages.universe
    await fill(messages, 4)
    await messages.compress(Truncate(keep=2))
    first = await u.seq()
    await fill(messages, 2)
    await messages.compress(Truncate(keep=2))
    second = await u.seq()
    with pytest.raises(UndoConflict, match="newer one"):
        await u.undo(first)
    await u.undo(second)
    await u.undo(first)
    assert len(await shown(messages)) == 6 and await messages.list_summaries() == []
    await messages.compress(Truncate(keep=2))
    with pytest.raises(Conflict):
        await messages.restore("nonsense")


async def test_a_batch_of_a_longer_transaction_is_not_archived_unseen(messages: Messages) -> None:
    u = messages.universe
    with pytest.raises(TransactionConflict):
        async with u.transaction() as tx:
            await messages.add("user", "slow", tx=tx)
            for number in range(4):
                await messages.add("user", f"message {number}")
            assert (await messages.compress({"strategy": "truncate", "keep": 1})).batches
    async with u.transaction() as tx:
        await messages.add("user", "slow", tx=tx)
    assert "slow" in [each.text for each in (await messages.history()).messages]
