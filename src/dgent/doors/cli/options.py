"""What is said to the door rather than to a verb: which store, who acts, what the output looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_FORMATS = ("human", "json", "jsonl")


class Said:
    """What the options said so far; a later one, nearer to the verb, counts more."""

    def __init__(self) -> None:
        self.constellation: str | None = None
        self.url: str | None = None
        self.agent: str | None = None
        self.color: str | None = None
        self.output = "human"
        self.yes = False
        self.strict: bool | None = None
        self.side_by_side = False


def said(ctx: click.Context) -> Said:
    """What was said to the door in this call."""
    found: Said = ctx.ensure_object(Said)
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value in (None, False):
        return
    assert param.name is not None
    if param.name in _FORMATS:
        said(ctx).output = param.name
    else:
        setattr(said(ctx), param.name, value)


def completer(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return the function that click asks for one kind of thing when a shell completes a word."""

    def run(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        from dgent.doors.cli.complete import complete  # only a shell that completes needs it

        return complete(kind, ctx, incomplete)

    return run


def sided() -> click.Option:
    """How `diff` looks: two columns instead of one."""
    return click.Option(
        ["--side-by-side"], is_flag=True, expose_value=False, callback=_keep, help="two columns"
    )


def DOOR(hidden: bool = False) -> list[click.Option]:
    """The door's options; every command takes them, also behind its own."""
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
