"""The pause of the garbage collector while a large batch is made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dgent
from dgent import Datum
from dgent.errors import InputError
from dgent.system.collector import LARGE, pause


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_only_large_batches_pause_it() -> None:
    with pause(LARGE - 1):
        assert gc.isenabled()
    with pause(LARGE):
        assert not gc.isenabled()
        with pause(LARGE):
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer batch is not done"
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off() -> None:
    gc.disable()
    with pause(LARGE):
        pass
    assert not gc.isenabled()


def test_batches_on_several_threads() -> None:
    both = threading.Barrier(2)

    def batch() -> None:
        for _ in range(200):
            with pause(LARGE):
                assert not gc.isenabled()
        both.wait()

    threads = [threading.Thread(target=batch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


async def test_it_is_on_again_after_a_batch_and_after_a_refused_one(tmp_path: Any) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 's.db'}") as u:
        stored = await u.put_many([Datum(data={"n": n}) for n in range(LARGE)])
        assert [each.rev for each in stored] == [1] * LARGE
        assert gc.isenabled()
        with pytest.raises(InputError):
            await u.put_many([Datum(data={"n": object()}) for n in range(LARGE)])
        assert gc.isenabled()
        with pytest.raises(InputError):
            await u.put_many([Datum(id="same")] * LARGE)
        assert gc.isenabled()
