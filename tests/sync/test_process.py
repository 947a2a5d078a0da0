"""Interrupts, forks and the end of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgent import sync
from tests.sync.program import run

INTERRUPT = """
    import os, signal, sys, threading, time
    from dgent import Datum, sync

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    u = sync.open(sys.argv[1])
    u.put(Datum(id="a", data={}))
    feed = u.watch()

    def work(tx):
        tx.put(Datum(id="never", data={}))
        next(u.watch())

    def in_transaction():
        with u.transaction() as tx:
            work(tx)

    def writing():
        while True:
            u.put(Datum(data={}))

    def reading():
        while True:
            u.get("a")

    calls = [lambda: next(feed), lambda: u.transact(work), in_transaction, writing, writing, reading]
    for call in calls:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            call()
        except KeyboardInterrupt as interrupt:
            assert interrupt.__context__ is None, interrupt.__context__
            assert time.monotonic() - started < 30
        else:
            raise AssertionError("not interrupted")
        assert u.get("a") is not None and not u.exists("never")
        u.put(Datum(data={}))  # after the commit that was under way, if there was one
        count = u.count()
        u.put(Datum(data={}))
        assert u.count() == count + 1, "nothing goes on in the background"
    assert next(feed).seq == 2, "nothing was lost while nobody listened"
    feed.close()
    u.close()
    print("fine")
"""

FORK = """
    import os, sys
    from dgent import Datum, sync
    from dgent.errors import Closed

    u = sync.open(sys.argv[1])
    u.put(Datum(id="a", data={}))
    feed = u.watch(since=0)
    next(feed)
    tx = u.transaction()
    tx.__enter__()
    child = os.fork()
    if child == 0:
        calls = [lambda: u.get("a"), u.seq, u.transaction, u.count, lambda: next(feed), lambda: tx.get("a")]
        for call in calls:
            try:
                call()
            except Closed as error:
                assert "before fork" in str(error), error
            else:
                raise AssertionError("a universe of the parent answered")
        feed.close()
        u.close()
        with sync.open(sys.argv[1]) as mine:
            mine.put(Datum(id="child", data={}))
        forgotten = sync.open(sys.argv[1])
        forgotten.put(Datum(id="forgotten", data={}))
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0
    u.put(Datum(id="b", data={}))
    tx.__exit__(None, None, None)
    print(*sorted(datum.id for datum in u.list()))
    u.close()
"""

FORGOTTEN = """
    import atexit, sys, threading, time
    from dgent import Datum, Query, sync

    u = sync.open(sys.argv[1])
    u.put_many(Datum(id=f"{n}", data={}) for n in range(600))
    feed = u.watch(since=0)
    next(feed)
    part = u.iterate(Query(limit=None))
    next(part)
    tx = u.transaction()
    tx.__enter__()
    tx.put(Datum(id="never", data={}))

    def forever(call):
        while True:
            call()

    def for_a_while():
        time.sleep(0.2)
        u.put(Datum(id="late", data={}))
        assert u.count() >= 600
        with sync.open("memory:") as other:
            other.put(Datum(id="x", data={}))
        print("late", flush=True)

    calls = [lambda: u.get("1"), lambda: u.put(Datum(id="again", data={})), u.count, lambda: next(u.watch())]
    for call in calls:
        threading.Thread(target=forever, args=(call,), daemon=True).start()
    threading.Thread(target=for_a_while).start()
    atexit.register(lambda: print("at exit", u.exists("1"), flush=True))
    time.sleep(0.05)
"""


def test_an_interrupt_cancels_and_leaves_the_store_usable(place: str) -> None:
    assert run(INTERRUPT, place) == ["fine"]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_fork(place: str) -> None:
    assert run(FORK, place) == ["a b child forgotten"]


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_a_fork_with_a_store_of_this_process(place: str) -> None:
    assert run(FORK, place) == ["a b"]


def test_a_program_that_forgets_to_close(place: str, tmp_path: Path) -> None:
    assert run(FORGOTTEN, place) == ["late", "at exit True"]
    if place == "memory:":
        return
    assert [path.name for path in tmp_path.iterdir()] == ["u.db"], "the log was folded into the file"
    with sync.open(place) as u:
        assert u.exists("599")
        assert u.exists("late")
        assert not u.exists("never")


def test_use_after_the_end_is_refused_and_closing_is_fine() -> None:
    program = """
        import atexit
        from dgent.errors import Closed

        def last():
            u.close()
            feed.close()
            for call in (u.seq, lambda: u.get("a"), lambda: sync.open("memory:")):
                try:
                    call()
                except Closed as error:
                    print(error.message)

        atexit.register(last)
        from dgent import sync
        u = sync.open("memory:")
        feed = u.watch(since=0)
    """
    assert run(program) == ["the program is ending"] * 3
