"""Options of the door rather than of a verb: the store, the agent, the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_FORMATS = ("human", "json", "jsonl")


class DoorOptions:
    """The values of the door's options; a later one, nearer to the verb, overrides."""

    def __init__(self) -> None:
        self.constellation: str | None = None
        self.url: str | None = None
        self.agent: str | None = None
        self.color: str | None = None
        self.output = "human"
        self.yes = False
        self.strict: bool | None = None
        self.side_by_side = False


def options_of(ctx: click.Context) -> DoorOptions:
    """Return the door's options of this call."""
    found: DoorOptions = ctx.ensure_object(DoorOptions)
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value in (None, False):
        return
    assert param.name is not None
    if param.name in _FORMATS:
        options_of(ctx).output = param.name
    else:
        setattr(options_of(ctx), param.name, value)


def completer(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return the function that click asks for one kind of thing when a shell completes a word."""

    def run(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        from dgent.doors.cli.complete import complete  # only a shell that completes needs it

        return complete(kind, ctx, incomplete)

    return run


def side_by_side() -> click.Option:
    """Build the option of `diff` for two columns."""
    return click.Option(
        ["--side-by-side"], is_flag=True, expose_value=False, callback=_keep, help="two columns"
    )


def door_options(hidden: bool = False) -> list[click.Option]:
    """Build the door's options; every command takes them too."""
    rest: dict[str, Any] = {"expose_value": False, "callback": _keep, "hidden": hidden}
    return [
        click.Option(
            ["-C", "--constellation"],
            help="Another constellation.",
            shell_complete=completer("constellation"),
            **rest,
        ),
        click.Option(["--url"], help="Another store, such as sqlite:///memory.db.", **rest),
        click.Option(["--json"], is_flag=True, help="Answer with one JSON object.", **rest),
        click.Option(["--jsonl"], is_flag=True, help="Answer with one JSON object a line.", **rest),
        click.Option(["--agent"], help="Who acts; the author of what is written.", **rest),
        click.Option(["--yes", "-y"], is_flag=True, help="Do what it says without asking.", **rest),
        click.Option(
            ["--color"], type=click.Choice(["auto", "always", "never"]), help="Colours or none.", **rest
        ),
        click.Option(["--strict"], is_flag=True, help="A wrong setting is an error.", **rest),
    ]
