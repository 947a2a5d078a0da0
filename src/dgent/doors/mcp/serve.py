"""Run a server: over standard input and output for one client, or over HTTP on this machine for many."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dgent.doors.mcp.pipe import is_watchable, open_pipes
from dgent.doors.mcp.unreadable import ReadableStream
from dgent.errors import ConfigError, InputError, Unavailable
from dgent.system.files import FILE

HOST = "127.0.0.1"
PATH = "/mcp"
LEAST_TOKEN = 16  # characters
CLOSE_S = 3  # for requests that are under way when the server stops


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client at standard input and output, until it closes them."""
    async with open_pipes() if is_watchable() else stdio_server() as (read, write):
        await server.run(ReadableStream(read, write), write, server.create_initialization_options())


async def serve_http(server: Server[Any], port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve clients on this machine that know the token, until the program is interrupted.

    `ready` gets the address when clients can connect.
    """
    import uvicorn  # only this way of serving needs it

    app = RequireToken(server.streamable_http_app(streamable_http_path=PATH, host=HOST), token)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=CLOSE_S, lifespan="on"
    )
    with _listen(port) as bound:
        ready(f"http://{HOST}:{bound.getsockname()[1]}{PATH}")
        await uvicorn.Server(config).serve(sockets=[bound])


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise InputError(
            f"{port} is not a valid port", hint="use 0 to 65535; 0 is any free one", field="port"
        )
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise Unavailable(
            f"port {port} cannot be used: {error.strerror}", hint="give another --port"
        ) from None


class RequireToken:
    """Lets requests through that carry the token, and answers all others with 401."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not self._is_known(scope):
            refusal = JSONResponse(
                {"error": "the token is missing or wrong"}, 401, {"WWW-Authenticate": "Bearer"}
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._wanted)


def make_token() -> str:
    """Return a new token."""
    return secrets.token_urlsafe(24)


def read_token(path: Path) -> str:
    """Return the token in a file, which is made with a new one if it does not exist."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _write_token(path, make_token())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read from {path}: {error}") from None
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(f"{path} has no token of at least {LEAST_TOKEN} characters")
    return token


def _write_token(path: Path, token: str) -> str:
    try:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE), "w", encoding="ascii") as file:
            file.write(token + "\n")
    except FileExistsError:
        return read_token(path)  # another process was faster
    except OSError as error:
        raise ConfigError(f"the token cannot be written to {path}: {error.strerror}") from None
    return token
