"""Blocking calls do what the async ones do."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import pytest

from dgent import Datum, InputError, NotFound, Query, VersionConflict, sync
from dgent.errors import Closed, NoUniverse, TransactionConflict
from dgent.model.lens import field
from dgent.sync.twin import make_twin
from tests.sync.marks import MARK, NOTE, OLD_NOTE, Mark, Note, OldNote

WHAT = field("what")


def test_the_program_of_the_front_page(u: sync.Universe) -> None:
    mark = u.remember(Mark("a", 1), tags={"eureka"})
    assert u.get(mark.id) == mark
    assert [found.value for found in u.recall(Query(schema="mark"))] == [Mark("a", 1)]
    with u.transaction() as tx:
        tx.remember(Mark("b"), id="b")
        assert tx.get("b").value == Mark("b")
        assert not u.exists("b")
    assert u.exists("b")
    assert tx.committed is not None
    assert tx.committed.seq == u.seq()
    assert u.collection(Mark).count() == 2
    assert u.delete("b") is True
    assert u.get("b") is None


def test_for_room_is_the_same_universe(u: sync.Universe) -> None:
    room = u.for_room("cupboard")
    room.remember(Mark("a"), id="a")
    assert u.exists("a")
    room.close()
    with pytest.raises(Closed):
        u.exists("a")


def test_an_error_in_a_transaction_rolls_it_back(u: sync.Universe) -> None:
    with pytest.raises(ZeroDivisionError), u.transaction() as tx:
        tx.remember(Mark("a"), id="a")
        raise ZeroDivisionError
    assert not u.exists("a")
    with pytest.raises(Closed):
        tx.get("a")


def test_what_is_expected_of_the_async_words_is_said_in_blocking_ones(u: sync.Universe) -> None:
    with pytest.raises(Closed, match=r"\(use `with u\.transaction\(\) as tx`\)"):
        u.transaction().get("a")


# -- functions of the caller's ----------------------------------------------------------------


def test_transact_runs_the_function_here_with_a_blocking_transaction(u: sync.Universe) -> None:
    here = threading.get_ident()

    def work(tx: sync.Transaction) -> int:
        assert threading.get_ident() == here
        assert isinstance(tx, sync.Transaction)
        tx.remember(Mark("a", u.count()), id="a")
        return u.transact(lambda inner: len(inner.query(Query())))

    assert u.transact(work) == 0
    assert u.get("a").value == Mark("a", 0)


def test_transact_tries_again(u: sync.Universe) -> None:
    u.remember(Mark("a", 0), id="a")
    tries = []

    def work(tx: sync.Transaction) -> None:
        found = tx.get("a")
        if not tries:
            u.store(u.get("a").replace(value=Mark("other", 10)))
        tries.append(found)
        tx.store(found.replace(value=Mark("mine", found.value.n + 1)))

    u.transact(work)
    assert len(tries) == 2
    assert u.get("a").value == Mark("mine", 11)
    tries.clear()
    with pytest.raises(TransactionConflict):
        u.transact(work, attempts=1)


@pytest.mark.parametrize("error", [ValueError("mine"), NotFound("mine"), SystemExit(3), GeneratorExit()])
def test_what_the_function_raises_comes_out_and_nothing_is_written(
    u: sync.Universe, error: BaseException
) -> None:
    def work(tx: sync.Transaction) -> None:
        tx.remember(Mark("a"), id="a")
        raise error

    with pytest.raises(type(error)) as caught:
        u.transact(work)
    assert caught.value is error
    assert not u.exists("a")


def test_a_function_cannot_end_an_iterator_by_accident(u: sync.Universe) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        u.transact(lambda tx: next(iter(())))


def test_an_async_function_is_refused(u: sync.Universe) -> None:
    async def work(tx: Any) -> None:
        raise AssertionError("never runs")

    with pytest.raises(InputError, match="plain functions"):
        u.transact(work)


def test_focus_runs_the_function_here(u: sync.Universe) -> None:
    u.remember(Mark("a", 1), id="a")
    here = threading.get_ident()

    def louder(what: str) -> str:
        assert threading.get_ident() == here
        return what.upper() * (1 + u.count())

    part = u.focus("a", WHAT)
    assert part.modify(louder).value == Mark("AA", 1)
    assert part.get() == "AA"
    part.set("b")
    assert u.get("a").value == Mark("b", 1)
    with pytest.raises(NotFound):
        u.focus("nothing", WHAT).get()


def test_upgrade_all_tells_here(u: sync.Universe) -> None:
    u.register(OLD_NOTE)
    ids = [u.remember(OldNote("two words")).id for _ in range(3)]
    u.register(NOTE)
    told: list[tuple[int, int, int]] = []

    def progress(done: int, every: int) -> None:
        told.append((done, every, u.count(Query(schema="note"))))

    report = u.upgrade_all(Note, progress=progress)
    assert (report.upgraded, report.failed) == (3, {})
    assert told[-1] == (3, 3, 3)
    assert u.get(ids[0]).value == Note("two words", 2)
    assert u.versions("note") == {2: 3}


# -- the current universe ---------------------------------------------------------------------


def test_the_mixin_uses_the_current_universe(u: sync.Universe) -> None:
    class Scout(sync.DataMixin):
        """An agent."""

    scout = Scout()
    assert sync.set_universe(None) is None
    with pytest.raises(NoUniverse, match=r"sync\.set_universe"):
        scout.remember(Mark("a"))
    try:
        sync.set_universe(u)
        assert sync.get_universe() is u
        assert scout.data is u
        scout.remember(Mark("seen"), id="a")
        assert [found.id for found in scout.recall(Query(schema="mark"))] == ["a"]
    finally:
        assert sync.set_universe(None) is u


# -- errors -----------------------------------------------------------------------------------


def test_wrong_arguments_fail_before_anything_is_done(u: sync.Universe) -> None:
    wrong: Any = u
    for call in (lambda: wrong.put(), lambda: wrong.seq(1), lambda: wrong.transact(), lambda: wrong.get()):
        with pytest.raises(TypeError):
            call()


def test_an_error_keeps_its_type_and_a_readable_trace(u: sync.Universe) -> None:
    u.put(Datum(id="a", data={}))
    with pytest.raises(VersionConflict) as caught:
        u.put(Datum(id="a", data={}), expect=7)
    frames = traceback.extract_tb(caught.tb)
    assert frames[0].name == "test_an_error_keeps_its_type_and_a_readable_trace"
    assert [frame.name for frame in frames[1:3]] == ["put", "run"]
    assert not [frame for frame in frames if "asyncio" in frame.filename or "concurrent" in frame.filename]
    assert len(frames) < 15


def test_a_kind_of_member_without_a_blocking_form_is_noticed() -> None:
    class Odd:
        """Has something new."""

        @classmethod
        def make(cls) -> None:
            """It is not known how to block here."""

    with pytest.raises(TypeError, match=r"Odd\.make"):
        make_twin(Odd)


def test_a_schema_registered_twice_by_threads_is_registered_once(u: sync.Universe) -> None:
    threads = [threading.Thread(target=u.register, args=(MARK, OLD_NOTE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    u.remember(OldNote("a"))
    assert {schema.name for schema in u.schemas()} == {"mark", "note"}
