"""Calls of embedders: whatever these do, the caller gets good vectors or an error, and does not wait long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy
import pytest

from dgent.embedder import Embedder, HashedEmbedder
from dgent.embedder.embedder import MOST_CALLS, EmbedderCalls, check_embedder
from dgent.errors import EmbedderFailed, EmbedderRefused, InputError


class Given:
    """An embedder that answers what a function says."""

    name, dim = "given", 2

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def embed(self, texts: Sequence[str], /) -> Any:
        return self._answer(texts)


class Async(Given):
    async def embed(self, texts: Sequence[str], /) -> Any:
        await asyncio.sleep(0)
        return self._answer(texts)


@pytest.mark.parametrize("kind", [Given, Async])
async def test_sync_and_async_embedders(kind: type[Given]) -> None:
    calls = EmbedderCalls(kind(lambda texts: [[len(text), 1] for text in texts]))
    found = await calls.embed(["a", "bb"], 5)
    assert found.dtype == numpy.float32 and found.tolist() == [[1, 1], [2, 1]]
    assert isinstance(calls.embedder, Embedder)


async def test_a_function_that_returns_an_awaitable() -> None:
    async def later(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 2.0] for _ in texts]

    assert (await EmbedderCalls(Given(later)).embed(["a"], 5)).tolist() == [[1, 2]]


async def test_a_sync_embedder_does_not_hold_the_loop() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    calls = EmbedderCalls(Given(lambda texts: time.sleep(0.3) or [[1, 2]]))
    await calls.embed(["a"], 5)
    ticking.cancel()
    assert ticks > 5


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([], "0 vectors for 1 texts"),
        ([[1, 2], [3, 4]], "2 vectors for 1 texts"),
        ([1, 2], "2 vectors for 1 texts"),
        ([[1, 2, 3]], "vectors of 3 numbers, not 2"),
        ([[]], "vectors of 0 numbers"),
        ([[1, float("nan")]], "not finite"),
        ([[1, float("inf")]], "not finite"),
        ([[1, 1e300]], "not finite"),
        ([["a", "b"]], "a vector of numbers"),
        (None, "0 vectors"),
        ("ab", "a vector of numbers"),
        ([[1, 2], [3]], "a vector of numbers"),
        (7, "0 vectors"),
    ],
)
async def test_nonsense_is_refused(answer: Any, reason: str) -> None:
    with pytest.raises(EmbedderFailed, match=reason):
        await EmbedderCalls(Given(lambda texts: answer)).embed(["a"], 5)


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), StopIteration(), KeyError("x"), SystemExit(3)]
)
@pytest.mark.parametrize("kind", [Given, Async])
async def test_what_an_embedder_raises(kind: type[Given], error: BaseException) -> None:
    def fail(texts: Sequence[str]) -> Any:
        raise error

    if kind is Async and isinstance(error, SystemExit):
        return  # code on the loop may end the program
    with pytest.raises(EmbedderFailed, match="given"):
        await EmbedderCalls(kind(fail)).embed(["a"], 5)


async def test_errors_of_ours_stay_as_they_are() -> None:
    def refuse(texts: Sequence[str]) -> Any:
        raise EmbedderRefused("the key is wrong")

    with pytest.raises(EmbedderRefused, match="the key is wrong"):
        await EmbedderCalls(Given(refuse)).embed(["a"], 5)


@pytest.mark.parametrize("kind", [Given, Async])
async def test_calls_that_hang_are_left_and_few(kind: type[Given]) -> None:
    go = threading.Event()
    calls = EmbedderCalls(Given(lambda texts: go.wait(20) and [[1, 2]]))
    for _ in range(MOST_CALLS):
        with pytest.raises(EmbedderFailed, match=r"did not answer within 0\.01 s"):
            await calls.embed(["a"], 0.01)
    with pytest.raises(EmbedderFailed, match="have not returned yet"):
        await calls.embed(["a"], 5)
    go.set()
    while True:
        try:
            assert len(await calls.embed(["a"], 5)) == 1
            break
        except EmbedderFailed:
            await asyncio.sleep(0.01)


def test_a_hanging_embedder_does_not_keep_the_process() -> None:
    program = """
import asyncio, time
from dgent.embedder.embedder import EmbedderCalls
class Hangs:
    name, dim = "hangs", 2
    def embed(self, texts):
        time.sleep(600)
async def main():
    try:
        await EmbedderCalls(Hangs()).embed(["a"], 0.05)
    except Exception as error:
        print(error)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "the embedder 'hangs' did not answer within 0.05 s\n" and done.returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        object(),
        "minilm",
        type("NoDim", (), {"name": "x", "embed": print})(),
        type("Long", (), {"name": "x" * 300, "dim": 1, "embed": print})(),
        type("Line", (), {"name": "a\nb", "dim": 1, "embed": print})(),
        type("Half", (), {"name": "x", "dim": 1.5, "embed": print})(),
        type("Much", (), {"name": "x", "dim": 10**6, "embed": print})(),
    ],
)
def test_what_is_not_an_embedder(wrong: Any) -> None:
    with pytest.raises(InputError) as raised:
        check_embedder(wrong)
    assert raised.value.details["field"] == "embedder"


def test_the_hashed_one_puts_similar_words_near() -> None:
    embedder = HashedEmbedder()
    one, other, far, nothing = numpy.array(
        embedder.embed(["the runner ran home", "a runner is running home", "onion soup", ""])
    )
    assert one @ other > one @ far + 0.03
    assert numpy.allclose([one @ one, nothing @ nothing], 1)
    assert embedder.embed(["same"]) == HashedEmbedder().embed(["same"])
    assert (embedder.name, embedder.dim, len(HashedEmbedder(8).embed(["x"])[0])) == ("hashed-1024", 1024, 8)
    with pytest.raises(InputError):
        HashedEmbedder(0)


def test_nothing_heavy_loads_before_it_is_used() -> None:
    code = "import sys, dgent.embedder, dgent.embedder.named as n; n.make_embedder('minilm'); "
    done = subprocess.run(
        [sys.executable, "-c", code + "print('numpy' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
