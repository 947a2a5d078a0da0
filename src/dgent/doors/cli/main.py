"""`dgent`: what is there, listed without loading any of it; a command is built when it is called."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import click

from dgent.config import settings
from dgent.verbs.index import MODULES, NOUNS, SHORT

GARBAGE = 50_000  # objects before the collector looks: loading modules makes many, and no garbage

OWN = {
    "invoke": "Call a verb by its path, such as self.data.query.",
    "demo": "An agent's story in the terminal, on a store of its own.",
    "completion": "Print what makes your shell complete dgent's commands.",
    "help": "Explain a command or a verb.",
}


class Tree(click.Group):
    """A group whose commands are known by name and built when called."""

    def __init__(self, noun: str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.noun = noun

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without loading what they do."""
        if self.noun is None:
            return [*SHORT, *NOUNS, *OWN]
        return [id.partition(".")[2] for id in MODULES if id.partition(".")[0] == self.noun]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name; None when there is none."""
        if self.noun is not None:
            id = f"{self.noun}.{name}"
            return _built(id, name) if id in MODULES else None
        if name in SHORT:
            return _built(SHORT[name][0], name)
        if name in NOUNS:
            return _noun(name)
        return _own(name) if name in OWN else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command; a mistyped one names the nearest."""
        name = args[0]
        if self.get_command(ctx, name) is None:
            from dgent.verbs.registry import nearest

            hint = nearest(name, self.list_commands(ctx))
            if not hint and self.noun is None:
                # Someone may know the verb and not its noun.
                verbs = {id.partition(".")[2]: id.replace(".", " ") for id in reversed(MODULES)}
                words = [name] if name in verbs else verbs
                hint = next((f"did you mean {verbs[word]}?" for word in words if nearest(name, [word])), "")
            raise click.UsageError(f"there is no command {name!r}" + (f"; {hint}" if hint else ""), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in their groups, from plain texts where that is enough."""
        if self.noun is not None:
            super().format_commands(ctx, formatter)
            return
        groups = {
            "Everyday": [(name, help) for name, (_, help) in SHORT.items()],
            "Everything, by noun": list(NOUNS.items()),
            "Around it": list(OWN.items()),
        }
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _built(id: str, name: str) -> click.Command:
    from dgent.doors.cli.command import command_of

    return command_of(id, name)


def _own(name: str) -> click.Command:
    from dgent.doors.cli import builtin

    found: click.Command = getattr(builtin, name + "_")
    return found


def _noun(name: str) -> click.Command:
    from dgent.doors.cli.options import DOOR

    # `dgent config` alone shows the settings; the other nouns alone show their help.
    bare = name == "config"
    group = Tree(
        noun=name,
        name=name,
        help=NOUNS[name].capitalize() + ".",
        params=[*DOOR()],
        invoke_without_command=bare,
        no_args_is_help=not bare,
    )
    if bare:

        @click.pass_context
        def shown(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                ctx.invoke(_built("config.show", "show"))

        group.callback = shown
    return group


def root() -> Tree:
    """The command `dgent`."""
    from dgent.doors.cli.options import DOOR

    return Tree(
        name="dgent",
        help="Where AI agents keep what they know.\n\nThe options below work behind every command too.",
        params=[*DOOR(), _version()],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        no_args_is_help=True,
    )


def _version() -> click.Option:
    def told(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            click.echo(f"dgent {version('dgent')}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=told,
        help="Say which dgent this is.",
    )


def _prepare_streams() -> None:
    """A letter that the terminal cannot show is spelled out; what is closed swallows what it gets."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it stays until the end
        else:
            stream.reconfigure(errors="backslashreplace")


def main(args: list[str] | None = None) -> None:
    """Run the command line; ends the process with the exit code of the table."""
    from dgent.doors.cli.failure import exit_code

    gc.set_threshold(GARBAGE)
    _prepare_streams()
    with settings.private_files():
        sys.exit(exit_code(lambda: root().main(args, prog_name="dgent", standalone_mode=False)))
