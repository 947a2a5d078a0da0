"""A real server: `dgent serve` as a process of its own, at a port that was free."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.mcp.host import command, environment


class Process:
    """A running server and its address."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.port = process, port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server."""
        os.kill(self.process.pid, number)

    async def ended(self) -> int:
        """Wait until it has ended; its exit code."""
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def serve(url: str, home: Path, words: Sequence[str] = ()) -> AsyncIterator[Process]:
    """Start a server of one store, and stop it in the end."""
    process = await asyncio.create_subprocess_exec(
        *command("--url", url, "serve", "--port", "0", *words),
        stdout=asyncio.subprocess.PIPE,
        env=environment(home),
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield Process(process, int(found[1]))
    finally:
        if process.returncode is None:
            process.terminate()
        code = await asyncio.wait_for(process.wait(), 60)
    assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM), code


async def exchange(port: int, raw: bytes, end: bytes = b"\r\n\r\n", timeout_s: float = 60) -> bytes:
    """Send bytes to a server and return what it sends, up to some end, or until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        writer.write(raw)
        async with asyncio.timeout(timeout_s):
            while end not in got and (part := await reader.read(65_536)):
                got += part
    except ConnectionError:
        pass
    finally:
        writer.close()
    return got


def status_of(got: bytes) -> int:
    """The status of the first answer; 0 if there is none."""
    found = re.match(rb"HTTP/1\.1 (\d{3})", got)
    return int(found[1]) if found else 0
