"""The transport over standard input and output: lines in pieces, slow readers, closed ends, stray output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from dgent.doors.mcp.pipe import MOST_WAITING, Input, Output
from tests.mcp.host import environment, own_command

PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe; the test may close them."""
    ends = os.pipe()
    yield ends
    for each in ends:
        with suppress(OSError):
            os.close(each)


def message(id: int, text: str = "") -> SessionMessage:
    """An answer with a text."""
    return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=id, result={"text": text}))


def number(item: SessionMessage | Exception) -> object:
    """The id of a request."""
    assert isinstance(item, SessionMessage), item
    return getattr(item.message, "id", None)


async def read_all(file: int, size: int) -> bytes:
    """Read so many bytes without holding up the loop."""
    found = b""
    while len(found) < size:
        found += await asyncio.to_thread(os.read, file, 1 << 16)
    return found


async def test_a_line_may_come_in_pieces_and_many_at_once(pipe: tuple[int, int]) -> None:
    source, sender = pipe
    async with Input(source) as read:
        line = PING % 1
        for piece in (line[:9], line[9:30], line[30:] + PING % 2 + line[:5]):
            os.write(sender, piece)
            await asyncio.sleep(0.01)
        first, second = await read.receive(), await read.receive()
        assert (number(first), number(second)) == (1, 2)


async def test_more_lines_than_are_kept_wait_with_the_sender(pipe: tuple[int, int]) -> None:
    source, sender = pipe
    sent = MOST_WAITING * 50

    def send() -> None:
        for n in range(sent):
            os.write(sender, PING % n)
        os.close(sender)

    async with Input(source) as read:
        writing = asyncio.ensure_future(asyncio.to_thread(send))
        assert [number(item) async for item in read] == list(range(sent))
        await writing


async def test_the_last_line_needs_no_end_and_wrong_ones_are_errors(pipe: tuple[int, int]) -> None:
    source, sender = pipe
    os.write(sender, b'nonsense\n\xff{"half": \n' + PING.rstrip() % 7)
    os.close(sender)
    async with Input(source) as read:
        wrong, half, last = [item async for item in read]
    assert isinstance(wrong, ValueError) and isinstance(half, ValueError)
    assert number(last) == 7


async def test_an_answer_larger_than_the_pipe_does_not_hold_up_the_loop(pipe: tuple[int, int]) -> None:
    source, target = pipe
    write = Output(target)
    first = asyncio.ensure_future(write.send(message(1, "x" * 1_000_000)))
    second = asyncio.ensure_future(write.send(message(2, "y")))
    await asyncio.sleep(0.05)
    assert not first.done() and not second.done(), "nobody has read"
    size = len('{"jsonrpc":"2.0","id":1,"result":{"text":""}}\n') * 2 + 1_000_001
    lines = (await read_all(source, size)).splitlines()
    await asyncio.gather(first, second)
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    await write.aclose()


async def test_a_cancelled_sender_leaves_no_half_message(pipe: tuple[int, int]) -> None:
    source, target = pipe
    write = Output(target)
    first = asyncio.ensure_future(write.send(message(1, "x" * 500_000)))
    await asyncio.sleep(0.01)
    first.cancel()
    second = asyncio.ensure_future(write.send(message(2)))
    size = len('{"jsonrpc":"2.0","id":1,"result":{"text":""}}\n') * 2 + 500_000
    lines = (await read_all(source, size)).splitlines()
    await second
    assert first.cancelled()
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    await write.aclose()


async def test_a_reader_that_is_gone_is_an_error_and_no_wait(pipe: tuple[int, int]) -> None:
    source, target = pipe
    write = Output(target)
    waiting = asyncio.ensure_future(write.send(message(1, "x" * 500_000)))
    await asyncio.sleep(0.01)
    os.close(source)
    async with asyncio.timeout(30):
        with pytest.raises(anyio.BrokenResourceError):
            await waiting
        with pytest.raises(anyio.ClosedResourceError):
            await write.send(message(2))
        await write.aclose()


GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "scout", "version": "1"},
    },
}


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_input_may_be_a_pipe_or_a_file(tmp_path: Path, kind: str) -> None:
    given = tmp_path / "given"
    given.write_text(json.dumps(GREETING) + "\n")
    words = own_command("--url", f"sqlite:///{tmp_path}/s.db", "mcp")
    with given.open() as file:
        ended = subprocess.run(
            words,
            **({"stdin": file} if kind == "file" else {"input": given.read_bytes()}),
            capture_output=True,
            env=environment(tmp_path),
            timeout=60,
        )
    assert ended.returncode == 0, ended.stderr
    (answer,) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert answer["result"]["serverInfo"]["name"] == "dgent"


def test_stray_output_and_input_do_not_get_between_messages(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from dgent.doors.mcp.pipe import open_pipes\n"
        "from tests.mcp.test_pipe import message\n"
        "async def main():\n"
        "    async with open_pipes() as (read, write):\n"
        "        print('stray', flush=True); os.write(1, b'stray'); assert os.read(0, 1) == b''\n"
        "        await write.send(message((await read.receive()).message.id))\n"
        "asyncio.run(main())\n"
        "print('after')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], input=PING % 5, capture_output=True, cwd=Path.cwd(), timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    answer, after = ended.stdout.splitlines()
    assert json.loads(answer)["id"] == 5 and after == b"after"
    assert ended.stderr.count(b"stray") == 2


def test_a_last_line_that_cannot_be_read_is_the_end(tmp_path: Path) -> None:
    """A client that leaves behind such a line is no fault of the server."""
    words = own_command("--url", f"sqlite:///{tmp_path}/s.db", "mcp")
    done = subprocess.run(
        words, input=b"not json\n", capture_output=True, env=environment(tmp_path), timeout=60
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
