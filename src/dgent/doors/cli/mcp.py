"""The command `dgent mcp`: serve agent hosts, and write their configuration."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from dgent.doors.cli.options import DoorOptions, door_options, options_of
from dgent.errors import InputError, NotFound, Unsupported
from dgent.verbs import registry
from dgent.verbs.caller import Trust
from dgent.verbs.context import Context

if TYPE_CHECKING:
    from mcp.server import Server

    from dgent.config.settings import Settings
    from dgent.doors.mcp.server import McpDoor
    from dgent.universe.universe import Universe

PORT = 8731


SERVER = ("trust", "tools", "compat", "import_")  # options of the server that `install` writes down


def _server_options() -> list[click.Option]:
    return [
        click.Option(
            ["--trust"], type=click.Choice(get_args(Trust)), default="friend", help="What agents may do."
        ),
        click.Option(
            ["--tools"],
            default="",
            help="Tools: everyday (the default), memory, work, data, search or all; several with commas.",
            shell_complete=_complete_tools,
        ),
        click.Option(
            ["--compat"],
            type=click.Choice(["memory-server"]),
            help="Have the tools of the reference memory server instead.",
        ),
        click.Option(
            ["--import", "import_"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="MEMORY_FILE_PATH",
            help="The memory.jsonl that --compat begins with; what is or was there already stays as it is.",
        ),
    ]


def _complete_tools(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from dgent.doors.tools.catalog import SETS

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in (*SETS, "all") if name.startswith(last)]


@click.group(
    "mcp",
    invoke_without_command=True,
    params=[
        *_server_options(),
        click.Option(["--http"], is_flag=True, help="Serve many clients of this machine over HTTP."),
        click.Option(
            ["--port"],
            metavar="PORT",
            type=int,
            default=PORT,
            show_default=True,
            help="The port of --http; 0 is any free one.",
        ),
        click.Option(
            ["--token-file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A file with the token of --http, made if need be; else a new token is shown at each start.",
        ),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def mcp_(
    ctx: click.Context,
    trust: Trust,
    tools: str,
    http: bool,
    port: int,
    token_file: Path | None,
    compat: str | None,
    import_: Path | None,
) -> None:
    """Serve an agent's host over the Model Context Protocol, on standard input and output.

    The agent is the one of --agent, or has the name of the client; its commits carry it. `dgent mcp install`
    writes the configuration of a host, which then starts the server by itself.
    """
    if ctx.invoked_subcommand is not None:
        return
    from dgent.config import settings as config

    chosen = options_of(ctx)
    settings = config.load(url=chosen.url, constellation=chosen.constellation)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    if compat is None and ctx.get_parameter_source("import_") is ParameterSource.COMMANDLINE:
        raise InputError("--import needs --compat memory-server", hint="or use `dgent graph import`")
    gc.disable()  # until all is loaded: loading makes many objects, and no garbage
    try:
        _check_installed()
        way = (port if http else None, token_file)
        asyncio.run(_serve(settings, chosen, trust, tools, *way, compat, import_))
    finally:
        gc.enable()


def _check_installed() -> None:
    try:
        import mcp.server  # noqa: F401 - a second long to load, so only here
    except ImportError as error:
        raise Unsupported(
            f"the Model Context Protocol is not installed ({error.name})", hint="pip install 'dgent[mcp]'"
        ) from None


async def _serve(
    settings: Settings,
    chosen: DoorOptions,
    trust: Trust,
    tools: str,
    port: int | None,
    token_file: Path | None,
    compat: str | None,
    import_: Path | None,
) -> None:
    from dgent.doors.cli.session import Store
    from dgent.doors.mcp import serve
    from dgent.doors.mcp.client import Clients, tools_of

    named = tools_of(tools)
    async with AsyncExitStack() as stack:
        universe = await Store(stack, settings, chosen, makes=True).open_running()
        clients = Clients(universe, trust, chosen.agent, named)
        if compat is not None and import_ is not None:
            await _import_graph(universe, import_.expanduser())
        server: Server[Any] = _door(compat)(clients).server()
        gc.freeze()
        gc.enable()
        if port is None:
            await serve.serve_stdio(server)
            return
        token = serve.make_token() if token_file is None else serve.read_token(token_file)
        await serve.serve_http(server, port, token, lambda url: _announce(url, token, token_file))


def _door(compat: str | None) -> type[McpDoor]:
    if compat is None:
        from dgent.doors.mcp.server import McpDoor as Door

        return Door
    from dgent.doors.mcp.memory_server import MemoryServer

    return MemoryServer


async def _import_graph(universe: Universe, path: Path) -> None:
    """Import the file of the reference memory server; a missing one only gets a warning."""

    async def here() -> Universe:
        return universe

    try:
        done = await registry.call(registry.find("graph.import"), Context(here), {"path": str(path)})
    except NotFound as error:
        click.echo(f"warning: {error.message}; nothing is imported", err=True)
        return
    if done.added:
        click.echo(f"{done.added:,} entities and relations of {path} are imported", err=True)
    if done.odd:
        hint = f"`dgent graph import {path} --dry-run` lists them"
        click.echo(f"warning: {done.odd:,} lines of {path} are not imported; {hint}", err=True)


def _announce(url: str, token: str, token_file: Path | None) -> None:
    click.echo(f"dgent serves agents at {url}")
    click.echo(f"they send the token in {token_file}" if token_file else f"Authorization: Bearer {token}")


# -- configuration of hosts -----------------------------------------------------------------------


def _host_parameters() -> list[click.Parameter]:
    from dgent.config.hosts import HOSTS

    return [
        click.Argument(["host"], type=click.Choice(list(HOSTS))),
        click.Option(["--project"], is_flag=True, help="The file of the project in the current folder."),
        click.Option(["--name"], default="dgent", show_default=True, help="The server's name in the file."),
    ]


@mcp_.command(
    "install",
    params=[
        *_host_parameters(),
        click.Option(["--print", "print_"], is_flag=True, help="Print the entry and change no file."),
        *_server_options(),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def install_(
    ctx: click.Context, /, host: str, project: bool, name: str, print_: bool, **_server: Any
) -> None:
    """Write dgent into a host's configuration; all else in the file stays as it is.

    The host then starts this dgent with the store, the agent, the trust and the tools that are given here.
    """
    from dgent.config.hosts import HOSTS
    from dgent.doors.mcp import install

    chosen = options_of(ctx)
    words = [*_door_words(chosen, project), "mcp", *_server_words(ctx)]
    path, folder = _place(host, project)
    server = install.entry(HOSTS[host], [*install.command(), *words])
    if print_:
        click.echo(install.edit(path, "", HOSTS[host], name, server), nl=False)
        click.echo(f"this belongs in {path}", err=True)
        return
    changed = install.change(path, HOSTS[host], name, server, folder)
    said = f"{HOSTS[host].title} starts dgent as {name!r}" if changed else f"{name!r} was there already"
    _report_change(chosen, host, path, changed, said)


@mcp_.command("uninstall", params=[*_host_parameters(), *door_options(hidden=True)])
@click.pass_context
def uninstall_(ctx: click.Context, host: str, project: bool, name: str) -> None:
    """Remove dgent from a host's configuration; all else in the file, and the store, stay as they are."""
    from dgent.config.hosts import HOSTS
    from dgent.doors.mcp import install

    path, folder = _place(host, project)
    changed = install.change(path, HOSTS[host], name, None, folder)
    said = f"{HOSTS[host].title} no longer starts {name!r}" if changed else f"there was no {name!r}"
    _report_change(options_of(ctx), host, path, changed, said)


def _place(host: str, project: bool) -> tuple[Path, Path | None]:
    from dgent.config.hosts import project_file, user_file

    if not project:
        return user_file(host), None
    folder = Path.cwd()
    return project_file(host, folder), folder


def _door_words(chosen: DoorOptions, project: bool) -> list[str]:
    """Return the options of the door that choose the store and the agent."""
    from dgent.config.secret import mask
    from dgent.config.url import resolve_url

    words = []
    if chosen.constellation is not None:
        words += ["-C", chosen.constellation]
    if chosen.url is not None:
        if project and mask(chosen.url) != chosen.url:
            raise InputError(
                "the address of the store has a password, and a project's file is for others too",
                hint="leave out --project, or set the store in your own settings",
                field="url",
            )
        words += ["--url", resolve_url(chosen.url, Path.cwd(), inside=False)]
    if chosen.agent is not None:
        words += ["--agent", chosen.agent]
    if chosen.read_only:
        words.append("--read-only")
    return words


def _server_words(ctx: click.Context) -> list[str]:
    """Return the options of the server that were given, before or behind `install`."""
    assert ctx.parent is not None
    words = []
    for option in ctx.parent.command.params:
        for place in (ctx, ctx.parent):
            name = str(option.name)
            if place.get_parameter_source(name) is ParameterSource.COMMANDLINE and name in place.params:
                if name not in SERVER:
                    raise click.UsageError(f"{option.opts[0]} is not for a server that the host starts", ctx)
                value = place.params[name]
                words += [option.opts[0], str(value.absolute() if isinstance(value, Path) else value)]
                break
    return words


def _report_change(chosen: DoorOptions, host: str, path: Path, changed: bool, said: str) -> None:
    if chosen.output == "human":
        click.echo(f"{said}: {path}")
        return
    from dgent.verbs.wire import as_ascii

    click.echo(as_ascii({"ok": True, "data": {"host": host, "path": str(path), "changed": changed}}))
