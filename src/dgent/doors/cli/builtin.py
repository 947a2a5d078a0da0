"""Commands of the door itself: paths, completion, help, the demo."""

from __future__ import annotations

from typing import Any

import click

from dgent.doors.cli.options import door_options, options_of
from dgent.verbs.index import MODULES


@click.command(
    "invoke",
    params=[click.Argument(["path"]), click.Argument(["args"], nargs=-1), *door_options(hidden=True)],
)
@click.pass_context
def invoke_(ctx: click.Context, path: str, args: tuple[str, ...]) -> int:
    """Call a verb by its path, such as self.data.query schema=witness.mark limit=5.

    `dgent invoke self` lists the paths there are.
    """
    from dgent.config import settings
    from dgent.doors.cli import session
    from dgent.errors import InputError
    from dgent.verbs import path as paths
    from dgent.verbs import registry
    from dgent.verbs.index import NOUNS

    if path == paths.ROOT or path.removeprefix(paths.ROOT + ".") in NOUNS:
        chosen = options_of(ctx)
        return session.print_answer(paths.offers(path), settings.load(), chosen)
    verb = registry.find(paths.verb_of(path))
    given: dict[str, Any] = {}
    for word in args:
        name, sign, value = word.partition("=")
        if not sign:
            raise InputError(f"{word!r} is not name=value", hint="write limit=5", field=name)
        name = name.replace("-", "_")
        many = isinstance(given.get(name), list)
        given[name] = [*given[name], value] if many else [value] if _is_list(verb, name) else value
    return session.answer(ctx, verb, given)


def _is_list(verb: Any, name: str) -> bool:
    from typing import get_args, get_origin, get_type_hints

    hint = get_type_hints(verb.input, include_extras=True).get(name)
    return hint is not None and get_origin(get_args(hint)[0]) is tuple


@click.command(
    "completion",
    params=[
        click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"])),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def completion_(ctx: click.Context, shell: str) -> None:
    """Print the script that completes dgent's commands, ids and schemas in your shell.

    \b
    bash:  eval "$(dgent completion bash)"    in ~/.bashrc
    zsh:   eval "$(dgent completion zsh)"     in ~/.zshrc
    fish:  dgent completion fish | source     in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "dgent", "_DGENT_COMPLETE").source())


@click.command("help", params=[click.Argument(["words"], nargs=-1), *door_options(hidden=True)])
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command or a verb: `dgent help recall`, `dgent help data.query`."""
    names = [part for word in words for part in (word.split(".") if word in MODULES else [word])]
    command = ctx.find_root().command
    place = click.Context(command, info_name="dgent")
    for name in names:
        if not isinstance(command, click.Group):
            raise click.UsageError(f"{place.command_path} has nothing below it", place)
        _, found, _ = command.resolve_command(place, [name])
        assert found is not None
        command, place = found, click.Context(found, info_name=name, parent=place)
    click.echo(command.get_help(place))


@click.command("demo", params=[*door_options(hidden=True)])
def demo_() -> None:
    """Show an agent's story in the terminal, on a temporary store."""
    from dgent.doors.cli.demo import play

    play()
