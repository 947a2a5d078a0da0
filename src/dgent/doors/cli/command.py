"""Build a command from a verb: its fields become arguments and options."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dgent.doors.cli.options import completer, door_options, options_of, side_by_side
from dgent.errors import InputError
from dgent.verbs import parse, registry
from dgent.verbs.field import VerbField, fields_of
from dgent.verbs.registry import Verb

FILE = "from_file"
_NEGATIVE = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class VerbCommand(click.Command):
    """A command that takes a negative number for a value: no option of dgent begins with a digit."""

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, with negative numbers among the arguments."""
        parser: Any = super().make_parser(ctx)
        parse_option = parser._process_opts

        def parse_word(word: str, state: Any) -> None:
            if _NEGATIVE.fullmatch(word):
                state.largs.append(word)
            else:
                parse_option(word, state)

        parser._process_opts = parse_word
        return parser


def command_of(id: str, name: str) -> click.Command:
    """Build the command that calls a verb."""
    verb = registry.find(id)
    fields = fields_of(verb, CommandField)

    @click.pass_context
    def run(ctx: click.Context, /, **given: Any) -> int:
        from dgent.doors.cli.session import answer

        values = _read_values(fields, given)
        for field in fields:
            if field.prompt and field.name not in values and not options_of(ctx).yes and _can_ask():
                values[field.name] = click.confirm(field.prompt, err=True)
        return answer(ctx, verb, values)

    return VerbCommand(
        name=name,
        callback=run,
        help=_help(verb, fields),
        params=[
            *(field.param() for field in fields),
            *_files(fields),
            *_looks(verb),
            *door_options(hidden=True),
        ],
        short_help=verb.help,
    )


class CommandField(VerbField):
    """One field of a verb's input, as the command line takes it."""

    def param(self) -> click.Parameter:
        """Build the click parameter of this field."""
        rest: dict[str, Any] = {"shell_complete": completer(self.complete)} if self.complete else {}
        kind: Any = click.Choice(self.choices) if self.choices else str
        if self.place:
            many = self.many or self.words
            return click.Argument(
                [self.name],
                type=kind,
                nargs=-1 if many else 1,
                required=self.required and not self.file,
                metavar=self._metavar(many),
                **rest,
            )
        names = [self.name, f"--{self.option}", *([f"-{self.short}"] if self.short else [])]
        if self.kind is bool:
            return click.Option(names, is_flag=True, help=self.help)
        help = self.help if self.default in (None, (), "") else f"{self.help} [{self.default}]"
        metavar = (
            None if self.choices else self.kind.__name__.upper() if self.kind in (int, float) else "TEXT"
        )
        return click.Option(
            names, type=kind, multiple=self.many, required=self.required, help=help, metavar=metavar, **rest
        )

    def _metavar(self, many: bool) -> str:
        name = self.name.replace("_", "-").upper() + ("..." if many else "")
        return name if self.required and not self.file else f"[{name}]"


def _files(fields: Sequence[CommandField]) -> list[click.Option]:
    """Build the option that takes a long text from a file."""
    return [
        click.Option(
            [FILE, "--file", "-f"],
            type=str,
            metavar="PATH",
            help=f"take {field.name} from this file",
            shell_complete=completer("file"),
        )
        for field in fields
        if field.file
    ]


def _looks(verb: Verb) -> list[click.Option]:
    """Build the options that change only the look of an answer."""
    return [side_by_side()] if verb.id in ("data.diff", "block.diff") else []


_EFFECTS = {
    "read": "Only reads.",
    "append": "Adds, and changes nothing that is there.",
    "write": "Changes what is stored.",
    "destroy": "Cannot be undone, so it asks first; --yes agrees.",
}


def _help(verb: Verb, fields: Sequence[CommandField]) -> str:
    places = [field for field in fields if field.place]
    lines = [verb.help]
    if places:
        width = max(len(field.name) for field in places) + 2
        lines += ["", "\b"]
        lines += [f"{field.name.upper().replace('_', '-'):{width}}{field.help}" for field in places]
    lines += ["", f"{_EFFECTS[verb.effect]} Programs call it by the path self.{verb.id}."]
    return "\n".join(lines)


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def read_stdin() -> str:
    """Read standard input without the final line end, which echo or an editor adds."""
    if sys.stdin is None:
        raise InputError("standard input is closed", field="data")
    try:
        raw = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8 text", field="data") from None


def _read_file(path: str) -> str:
    """Read a whole file as text, including a final line end."""
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", field="file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}", field="file") from None


def _read_values(fields: Sequence[CommandField], given: dict[str, Any]) -> dict[str, Any]:
    """Return the given values without those left out, so that the verb's defaults hold."""
    values: dict[str, Any] = {}
    for field in fields:
        value = given[field.name]
        if field.file and given[FILE] is not None:
            if value:
                raise InputError(f"{field.name} is given twice", hint="leave out --file", field=field.name)
            values[field.name] = _read_file(given[FILE])
            continue
        if value is None or value == () or value is False:
            continue
        if field.words:
            value = " ".join(value)
            value = read_stdin() if value == "-" else value
        elif field.kind is Any:
            value = parse.value(value)
        values[field.name] = list(value) if isinstance(value, tuple) else value
    return values
