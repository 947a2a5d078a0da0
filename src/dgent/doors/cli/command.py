"""Build a command from a verb: its fields become arguments and options."""

from __future__ import annotations

import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from dgent.doors.cli.options import completer, door_options, side_by_side
from dgent.errors import InputError
from dgent.verbs import registry
from dgent.verbs.registry import Verb

FILE = "from_file"


def command_of(id: str, name: str) -> click.Command:
    """Build the command that calls a verb."""
    verb = registry.find(id)
    fields = _fields(verb)

    @click.pass_context
    def run(ctx: click.Context, /, **given: Any) -> int:
        from dgent.doors.cli.session import answer

        return answer(ctx, verb, _read_values(fields, given))

    return click.Command(
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


class Field:
    """One field of a verb's input, as the command line sees it."""

    def __init__(self, name: str, hint: Any, required: bool, default: Any) -> None:
        self.name, self.required, self.default = name, required, default
        plain, meta = get_args(hint)
        self.help: str = meta.description
        extra = meta.extra or {}
        self.place, self.words = extra.get("place", False), extra.get("words", False)
        self.file = extra.get("file", False)
        self.short, self.complete = extra.get("short", ""), extra.get("complete", "")
        kinds = get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,)
        self.kind = next(kind for kind in kinds if kind is not NoneType)
        self.many = get_origin(plain) is tuple
        self.choices = [str(each) for each in get_args(self.kind)] if get_origin(self.kind) is Literal else []

    def param(self) -> click.Parameter:
        """Build the click parameter of this field."""
        shown = self.name.replace("_", "-")
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
        names = [self.name, f"--{shown}", *([f"-{self.short}"] if self.short else [])]
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


def _fields(verb: Verb) -> list[Field]:
    hints = get_type_hints(verb.input, include_extras=True)
    fields = []
    for field in msgspec.structs.fields(verb.input):
        default = (
            field.default_factory()
            if field.default is msgspec.NODEFAULT and not field.required
            else field.default
        )
        fields.append(Field(field.name, hints[field.name], field.required, default))
    return fields


def _files(fields: list[Field]) -> list[click.Option]:
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


def _help(verb: Verb, fields: list[Field]) -> str:
    places = [field for field in fields if field.place]
    lines = [verb.help]
    if places:
        width = max(len(field.name) for field in places) + 2
        lines += ["", "\b"]
        lines += [f"{field.name.upper().replace('_', '-'):{width}}{field.help}" for field in places]
    lines += ["", f"The verb {verb.id}; its effect: {verb.effect}."]
    return "\n".join(lines)


def _read_input() -> str:
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


def _read_values(fields: list[Field], given: dict[str, Any]) -> dict[str, Any]:
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
            value = _read_input() if value == "-" else value
        values[field.name] = list(value) if isinstance(value, tuple) else value
    return values
