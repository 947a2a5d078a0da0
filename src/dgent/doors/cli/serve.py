"""The command `dgent serve`: programs use the stores of this machine over HTTP."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dgent.doors.cli.options import DoorOptions, door_options, options_of
from dgent.errors import Denied, InputError, Unsupported
from dgent.store.registry import is_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dgent.config.settings import Settings
    from dgent.doors.http.house import Opener
    from dgent.doors.http.limit import Limits
    from dgent.universe.universe import Universe

PORT = 8730
MAIN = "main"
"""The name of a store that is not a constellation."""


def check_installed() -> None:
    """Raise Unsupported when the packages of the server are missing."""
    try:
        import httptools  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            f"the server is not installed ({error.name})", hint="pip install 'dgent[server]'"
        ) from None


def load_settings(chosen: DoorOptions) -> Settings:
    """Return the settings of the store that was chosen."""
    from dgent.config import settings as config

    settings = config.load(url=chosen.url, constellation=chosen.constellation)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    return settings


def openers_of(chosen: DoorOptions, stores: tuple[str, ...]) -> Mapping[str, Opener]:
    """Return how to open each store to serve: the chosen one, or all constellations, and those named."""
    from dgent.config.places import constellations

    settings = load_settings(chosen)
    found = {settings.constellation or MAIN: _opener(chosen, settings)}
    if chosen.url is None and chosen.constellation is None and settings.constellation is not None:
        for name in constellations(settings.places):
            if name not in found:
                found[name] = _opener(*_choose_place(chosen, constellation=name))
    for each in stores:
        name, sign, url = each.partition("=")
        if not sign or not name.isidentifier() or name in ("v1", "mcp"):
            raise InputError(
                f"{each!r} is not name=URL", hint="write --store team=postgresql://…", field="store"
            )
        found[name] = _opener(*_choose_place(chosen, url=url))
    return found


def _choose_place(
    chosen: DoorOptions, url: str | None = None, constellation: str | None = None
) -> tuple[DoorOptions, Settings]:
    other = DoorOptions()
    other.__dict__.update(chosen.__dict__, url=url, constellation=constellation)
    return other, load_settings(other)


def _opener(chosen: DoorOptions, settings: Settings) -> Opener:
    if is_server(settings.url):
        raise Unsupported(
            "a store on another server is served there", hint="give --url or -C of a store here"
        )

    async def open(stack: AsyncExitStack) -> Universe:
        from dgent.doors.cli.session import Store

        return await Store(stack, settings, chosen, makes=True).open_running()

    open.place = settings.url  # type: ignore[attr-defined]  # so that a reload sees another one
    return open


def _limits(rate: float | None, body: int | None, patience: float | None) -> Limits:
    from dgent.doors.http.limit import Limits

    usual = Limits()
    return Limits(
        body_bytes=usual.body_bytes if body is None else body * 2**20,
        rate=usual.rate if rate is None else rate,
        burst=usual.burst if rate is None else 2 * rate,
        head_s=usual.head_s if patience is None else min(usual.head_s, patience),
        body_s=usual.body_s if patience is None else patience,
    )


@click.command(
    "serve",
    params=[
        click.Option(["--host"], default="127.0.0.1", show_default=True, help="The address to listen at."),
        click.Option(["--port"], type=int, default=PORT, show_default=True, help="0 is any free one."),
        click.Option(
            ["--host-name"],
            multiple=True,
            metavar="NAME",
            help="A name that clients use for this server, as behind a proxy; may be given more than once.",
        ),
        click.Option(
            ["--store"],
            multiple=True,
            metavar="NAME=URL",
            help="Another store to serve at /NAME; may be given more than once.",
        ),
        click.Option(["--rate"], type=float, metavar="N", help="Requests a second with one token. [5000]"),
        click.Option(["--max-body"], type=int, metavar="MB", help="The largest body. [10]"),
        click.Option(
            ["--trusted-proxy"],
            multiple=True,
            metavar="ADDRESS",
            help="A proxy that says where requests come from, besides those on this machine.",
        ),
        click.Option(["--patience"], type=float, metavar="S", help="Seconds for sending a request. [30]"),
        click.Option(["--tls-cert"], type=click.Path(path_type=Path), metavar="FILE", help="A certificate."),
        click.Option(["--tls-key"], type=click.Path(path_type=Path), metavar="FILE", help="Its key."),
        click.Option(["--no-studio"], is_flag=True, help="Serve no pages for people, only programs."),
        click.Option(["--log"], is_flag=True, help="Write a line for each request to standard error."),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def serve_(
    ctx: click.Context,
    host: str,
    port: int,
    host_name: tuple[str, ...],
    store: tuple[str, ...],
    rate: float | None,
    max_body: int | None,
    trusted_proxy: tuple[str, ...],
    patience: float | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    no_studio: bool,
    log: bool,
) -> None:
    """Serve constellations to programs over HTTP, each with a token of its own.

    Without -C or --url all constellations of this machine are served: one at /v1, each at /NAME/v1. A hang-up
    signal reads the settings again. People open the address in a browser, and log in with a token.
    """
    check_installed()
    chosen = options_of(ctx)
    if log:
        log_requests()
    if (tls_cert is None) != (tls_key is None):
        raise InputError("TLS needs both --tls-cert and --tls-key")
    certificate = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    limits = _limits(rate, max_body, patience)
    place = ServerPlace(host, port, host_name, store, certificate, trusted_proxy)
    asyncio.run(_serve(chosen, place, limits, not no_studio))


def log_requests() -> None:
    """Write a line for each request to standard error."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("dgent.http").setLevel(logging.INFO)


class ServerPlace(NamedTuple):
    """The place of a server: its address, its names, its stores, and the proxies it trusts."""

    host: str
    port: int
    names: tuple[str, ...]
    stores: tuple[str, ...]
    certificate: tuple[Path, Path] | None
    proxies: tuple[str, ...] = ()


async def _serve(chosen: DoorOptions, place: ServerPlace, limits: Limits, studio: bool) -> None:
    from dgent.doors.http import serve
    from dgent.doors.http.agent import MachineAgents
    from dgent.doors.http.app import Server
    from dgent.doors.http.house import House, enter
    from dgent.doors.studio.pages import Pages
    from dgent.universe.token import list_tokens

    host = place.host
    house = House(openers_of(chosen, place.stores), MachineAgents(lambda: load_settings(chosen)))

    async def check(name: str, token: str) -> None:
        await enter(house, name or house.default, token)

    try:
        tokens = await list_tokens((await house.store(house.default)).universe)
        if not tokens and not serve.is_loopback(host):
            raise Denied(
                f"there are no tokens, and others can reach {host}", hint="`dgent token create` first"
            )
        hosts = (*serve.LOOPBACK, host.lower(), *place.names)
        pages = Pages(check, limits=limits) if studio else None
        server = Server(house, hosts=hosts, limits=limits, pages=pages)
        bound = serve.listen(host, place.port)

        async def reload() -> None:
            await house.reload(openers_of(chosen, place.stores))

        def announce() -> None:
            scheme, name = "https" if place.certificate else "http", f"[{host}]" if ":" in host else host
            where = f"{scheme}://{name}:{bound.getsockname()[1]}"
            click.echo(f"dgent serves {', '.join(house.names)} at {where}")
            if not tokens:
                click.echo("nobody has a token yet: `dgent token create --agent scout` makes one")
            sys.stdout.flush()

        await serve.run(
            server,
            bound,
            reload=reload,
            ready=announce,
            certificate=place.certificate,
            proxies=place.proxies,
        )
    finally:
        await house.close()
