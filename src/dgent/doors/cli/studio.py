"""The command `dgent studio`: a person sees in a browser what their agents know."""

from __future__ import annotations

import asyncio
import sys
import threading
import webbrowser

import click

from dgent.doors.cli.options import DoorOptions, door_options, options_of
from dgent.doors.cli.serve import check_installed, load_settings, log_requests, openers_of

HOST = "127.0.0.1"


@click.command(
    "studio",
    params=[
        click.Option(["--port"], type=int, default=0, help="The port to listen at. [any free one]"),
        click.Option(["--no-browser"], is_flag=True, help="Print the link, and open nothing."),
        click.Option(
            ["--store"],
            multiple=True,
            metavar="NAME=URL",
            help="Another store to show; may be given more than once.",
        ),
        click.Option(["--log"], is_flag=True, help="Write a line for each request to standard error."),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def studio_(ctx: click.Context, port: int, no_browser: bool, store: tuple[str, ...], log: bool) -> None:
    """Open a browser to see what your agents know: memory, work, data, and all that happened.

    The pages are served to this machine alone, by a link that works once. Without -C or --url they show all
    constellations of this machine. Interrupt the command to end it.
    """
    check_installed()
    if log:
        log_requests()
    asyncio.run(_show(options_of(ctx), port, store, not no_browser))


async def _show(chosen: DoorOptions, port: int, stores: tuple[str, ...], browser: bool) -> None:
    from dgent.doors.http import serve
    from dgent.doors.http.agent import MachineAgents
    from dgent.doors.http.app import Server
    from dgent.doors.http.house import House, enter
    from dgent.doors.studio.pages import Pages
    from dgent.doors.studio.session import Sessions

    house = House(openers_of(chosen, stores), MachineAgents(lambda: load_settings(chosen)))

    async def check(name: str, token: str) -> None:
        await enter(house, name or house.default, token)

    sessions = Sessions(chosen.agent or load_settings(chosen).author)
    try:
        await house.store(house.default)  # says what is wrong with it here, not in the browser
        server = Server(
            house, hosts=tuple(serve.LOOPBACK), sessions=sessions.find, pages=Pages(check, sessions)
        )
        bound = serve.listen(HOST, port)

        def announce() -> None:
            link = f"http://{HOST}:{bound.getsockname()[1]}/enter?code={sessions.create_link()}"
            click.echo(f"the studio shows {', '.join(house.names)}; the link works once:\n  {link}")
            click.echo("interrupt with Ctrl-C to end it")
            sys.stdout.flush()
            if browser:
                # Some browsers keep the call until they are closed.
                threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

        await serve.run(server, bound, ready=announce)
    finally:
        await house.close()
