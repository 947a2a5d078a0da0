"""Run a server: listen, serve until it is asked to stop, finish what is under way."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from dgent.doors.http.app import Server
from dgent.doors.http.limit import protocol_of
from dgent.errors import ConfigError, InputError, Unavailable

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]", "::1"))
CLOSE_S = 10  # for requests that are under way when the server stops
KEEP_ALIVE_S = 30


class _Runner(uvicorn.Server):
    """A server that ends streams when it is asked to stop, so that nobody waits for them."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._served = server
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop: refuse new work, end streams, finish what is under way."""
        self._loop.call_soon_threadsafe(self._begin_stop)
        super().handle_exit(sig, frame)

    def _begin_stop(self) -> None:
        self._stopping = asyncio.ensure_future(self._served.stop())


async def run(
    server: Server,
    bound: socket.socket,
    *,
    reload: Callable[[], Awaitable[None]] | None = None,
    ready: Callable[[], None] = lambda: None,
    certificate: tuple[Path, Path] | None = None,
    proxies: Sequence[str] = (),
) -> None:
    """Serve at a socket until the program is interrupted; a hang-up signal reads the settings again.

    With a `certificate`, which is a file and that of its key, over TLS only. `proxies` are believed when they
    say where a request comes from, as one on this machine is.
    """
    config = uvicorn.Config(
        server,
        http=protocol_of(server.limits),
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
        limit_concurrency=server.limits.connections,
        lifespan="on",
        forwarded_allow_ips=["127.0.0.1", "::1", *proxies],
        ssl_certfile=None if certificate is None else certificate[0],
        ssl_keyfile=None if certificate is None else certificate[1],
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not one line for each request it cannot read
    tasks: set[asyncio.Task[None]] = set()

    def begin_reload() -> None:
        assert reload is not None
        task = asyncio.ensure_future(_reload(reload))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if reload is not None and hasattr(signal, "SIGHUP"):
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not on the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin_reload)
    with bound:
        _load(config)
        ready()
        await _Runner(config, server).serve(sockets=[bound])


def _load(config: uvicorn.Config) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate cannot be used: {error}", hint="see --tls-cert, --tls-key"
        ) from None


async def _reload(reload: Callable[[], Awaitable[None]]) -> None:
    try:
        await reload()
    except Exception:
        logging.getLogger("dgent.http").exception("the settings could not be read again; the old ones stay")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address."""
    if not 0 <= port <= 65_535:
        raise InputError(
            f"{port} is not a valid port", hint="use 0 to 65535; 0 is any free one", field="port"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=2048)
        # asyncio does so only for sockets that name their protocol; without it, each answer of two writes
        # waits 40 ms for the client's acknowledgement. Connections inherit it.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unavailable(
            f"{host} port {port} cannot be used: {reason}", hint="give another --port"
        ) from None


def is_loopback(host: str) -> bool:
    """Return whether an address is one that only this machine can reach."""
    return host in LOOPBACK or host.startswith("127.")
