"""The pages of the reference that are made from the verbs: the verbs themselves, and the command line."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from wording import HIDDEN, cell, default_of, every_error, fenced, has_fields, page, sentence, table, wrapped

from dgent import errors
from dgent.doors.cli.main import BROKEN_PIPE, BUILTIN, root
from dgent.doors.tools.catalog import GROUPS, SETS
from dgent.verbs import outcome, registry
from dgent.verbs.caller import ALLOWED, Effect
from dgent.verbs.index import NOUNS, SHORT
from dgent.verbs.registry import Verb

# -- verbs --------------------------------------------------------------------------------


def spelled(hint: Any) -> str:
    """A type as Python spells it, without what only says how to read it."""
    if hasattr(hint, "__metadata__"):
        hint = get_args(hint)[0]
    kind, inner = get_origin(hint), get_args(hint)
    if hint is NoneType:
        return "None"
    if hint is ...:
        return "..."
    if kind in (Union, UnionType):
        return " | ".join(map(spelled, inner))
    if kind is Literal:
        return " | ".join(f'"{each}"' if isinstance(each, str) else repr(each) for each in inner)
    if kind is not None:
        return f"{kind.__name__}[{', '.join(map(spelled, inner))}]"
    return str(getattr(hint, "__name__", hint))


def structs_in(hint: Any) -> Iterator[type]:
    """The structs of a type: itself, or what it holds."""
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and has_fields(kind):
        yield kind
    for inner in get_args(hint):
        yield from structs_in(inner)


def answer_fields(cls: type) -> dict[str, Any]:
    """The fields of an answer and their types."""
    hints = get_type_hints(cls, include_extras=True)
    names = (
        [field.name for field in dataclasses.fields(cls)]
        if dataclasses.is_dataclass(cls)
        else [field.name for field in msgspec.structs.fields(cls)]
    )
    return {name: _without_unset(hints[name]) for name in names if name not in HIDDEN}


def _without_unset(hint: Any) -> Any:
    kept = [each for each in get_args(hint) if each is not msgspec.UnsetType]
    return reduce(or_, kept) if get_origin(hint) in (Union, UnionType) else hint


def reached(verbs: list[Verb]) -> list[type]:
    """Every struct that an answer is or holds, outer ones first."""
    found: list[type] = []
    waiting = [struct for verb in verbs for struct in structs_in(verb.output)]
    while waiting:
        struct = waiting.pop(0)
        if struct not in found:
            found.append(struct)
            waiting += [inner for hint in answer_fields(struct).values() for inner in structs_in(hint)]
    assert len({struct.__name__ for struct in found}) == len(found), "two answers have one name"
    return found


def linked(hint: Any) -> str:
    """An answer's type, each struct in it leading to its fields."""
    if get_origin(hint) is registry.Items:
        return f"{linked(registry.Items)} of {linked(get_args(hint)[0])}"
    text = cell(spelled(hint))
    for struct in dict.fromkeys(structs_in(hint)):
        text = text.replace(struct.__name__, f"[`{struct.__name__}`](#{struct.__name__.lower()})")
    return text if "`" in text else f"`{text}`"


def input_table(verb: Verb) -> str:
    """The fields that a verb takes."""
    hints = get_type_hints(verb.input, include_extras=True)
    rows = []
    for field in msgspec.structs.fields(verb.input):
        plain, meta = get_args(hints[field.name])
        default = default_of(field, msgspec.NODEFAULT)
        rows.append(f"| `{field.name}` | `{cell(spelled(plain))}` | {default} | {cell(meta.description)} |")
    return table("Field | Type | Default | Meaning", rows) if rows else "It takes nothing.\n"


def effect_told(verb: Verb) -> str:
    """What a verb does to what is there, and when it does less."""
    told = f"Effect: **{verb.effect}**."
    if verb.lighter is not None and verb.lighter.__doc__:
        told += f" {sentence(verb.lighter)}"
    if "dry_run" in verb.input.__struct_fields__:
        told += " With `dry_run` it only reads."
    if verb.partner:
        told += " For partners only."
    if verb.local:
        told += " Local: it touches files, so only a door of the same machine has it."
    return told


def verb_section(verb: Verb) -> str:
    many = get_origin(verb.output) is registry.Items
    back = "a stream of " if verb.streams else "" if many else "one "
    raised = ", ".join(f"`{error.__name__}`" for error in verb.errors) or "none of its own"
    return "\n".join(
        [
            f"### {verb.id}\n",
            f"{verb.help}\n",
            wrapped(effect_told(verb)) + "\n",
            input_table(verb),
            f"Answers with {back}{linked(verb.output)}. Errors: {raised}.\n",
        ]
    )


def effects_table() -> str:
    effects = get_args(Effect)
    rows = [
        f"| {trust} | " + " | ".join("yes" if effect in allowed else "" for effect in effects) + " |"
        for trust, allowed in ALLOWED.items()
    ]
    return table("Trust | " + " | ".join(effects), rows)


def verbs_page() -> str:
    every = registry.every()
    out = []
    for noun, help in NOUNS.items():
        out += [f"## {noun}\n", f"{help.capitalize()}.\n"]
        out += [verb_section(verb) for verb in every if verb.id.partition(".")[0] == noun]
    out.append("## Answers\n")
    for struct in reached(every):
        rows = [f"| `{name}` | {linked(hint)} |" for name, hint in answer_fields(struct).items()]
        out += [f"### {struct.__name__}\n", sentence(struct) + "\n", table("Field | Type", rows)]
    return page(
        "Verbs",
        "What dgent can do, the same at every door. A verb takes the fields named here and answers with one "
        "kind of answer, whose fields are listed at the end. The [command line](command-line.md) makes "
        "commands of them; a program calls them by their path, such as `self.data.query`, with "
        "`dgent.verbs.path.invoke`. Besides its own errors any verb may raise `InputError` for a field it "
        "does not take, `Denied`, and whatever the store raises ([errors](errors.md)).",
        "## Who may do what\n",
        wrapped(
            "Every call has a caller, and every caller a trust. Append only adds records; destroy cannot be "
            "undone. The command line is partner."
        )
        + "\n",
        effects_table(),
        *out,
    )


# -- the command line ---------------------------------------------------------------------


def usage(command: click.Command, *names: str) -> str:
    """The line that says how a command is written."""
    ctx = click.Context(command, info_name=" ".join(names))
    return " ".join([*names, *command.collect_usage_pieces(ctx)])


def option_rows(command: click.Command) -> list[str]:
    rows = []
    for param in command.params:
        if not isinstance(param, click.Option) or param.hidden:
            continue
        names = ", ".join(sorted([*param.opts, *param.secondary_opts], key=len))
        choices = getattr(param.type, "choices", None)
        value = "" if param.is_flag else "\\|".join(choices) if choices else param.metavar or "TEXT"
        again = "; may be repeated" if param.multiple and "more than" not in (param.help or "") else ""
        rows.append(f"| `{names}`{' ' + value if value else ''} | {cell((param.help or '') + again)} |")
    return rows


def command_section(verb: Verb, command: click.Command) -> str:
    noun, _, name = verb.id.partition(".")
    short = [f"`dgent {word}`" for word, (id, _) in SHORT.items() if id == verb.id]
    hints = get_type_hints(verb.input, include_extras=True)
    places = []
    for field in msgspec.structs.fields(verb.input):
        meta = get_args(hints[field.name])[1]
        if (meta.extra or {}).get("place"):
            shown = field.name.upper().replace("_", "-")
            places.append(f"| `{shown}` | {cell(meta.description)} |")
    options = option_rows(command)
    lead = f"{verb.help} The verb [{verb.id}](verbs.md#{verb.id.replace('.', '')})"
    out = [
        f"### dgent {noun} {name}\n",
        f"{lead}{'; short: ' + ', '.join(short) if short else ''}.\n",
        fenced(usage(command, "dgent", noun, name)) + "\n",
    ]
    if places:
        out.append(table("Argument | Meaning", places))
    if options:
        out.append(table("Option | Meaning", options))
    return "\n".join(out)


def own_section(command: click.Command, *words: str) -> str:
    """A command of the door itself, and those below it."""
    text = inspect.cleandoc(command.help or "")
    plain, _, listing = text.partition("\b\n")
    out = [f"### {' '.join(words)}\n", fenced(usage(command, *words)) + "\n", plain.strip() + "\n"]
    if listing:
        out.append(fenced(listing) + "\n")
    if options := option_rows(command):
        out.append(table("Option | Meaning", options))
    if isinstance(command, click.Group):
        out += [own_section(below, *words, name) for name, below in command.commands.items()]
    return "\n".join(out)


def exit_rows() -> list[str]:
    """Each exit code, what it means, and the codes of the errors that end so."""
    by_exit: dict[int, list[type[errors.DgentError]]] = {}
    for error in every_error():
        made = next(made for base, made in outcome.TABLE if issubclass(error, base))
        by_exit.setdefault(made.exit, []).append(error)
    meaning = {code: sentence(found[0]).rstrip(".") for code, found in by_exit.items()} | {
        0: "it is done",
        1: "something else went wrong, or `dgent doctor` found a problem",
        outcome.UNFORESEEN.exit: "a fault of dgent itself",
        outcome.outcome_of(KeyboardInterrupt()).exit: "you stopped it",
        BROKEN_PIPE: "whoever read its output stopped reading",
    }
    return [
        f"| {code} | {told[0].lower() + told[1:]} "
        f"| {', '.join(f'`{error.code}`' for error in by_exit.get(code, []))} |"
        for code, told in sorted(meaning.items())
    ]


def command_line() -> str:
    top = root()
    ctx = click.Context(top, info_name="dgent")
    everyday = [
        f"| `{cell(usage(_command(top, ctx, word), 'dgent', word))}` | {cell(help)} "
        f"| [dgent {id.replace('.', ' ')}](#dgent-{id.replace('.', '-')}) |"
        for word, (id, help) in SHORT.items()
    ]
    by_noun = []
    for noun in NOUNS:
        group = _command(top, ctx, noun)
        assert isinstance(group, click.Group)
        by_noun += [f"## {noun}\n", f"{NOUNS[noun].capitalize()}.\n"]
        by_noun += [
            command_section(registry.find(f"{noun}.{name}"), _command(group, ctx, name))
            for name in group.list_commands(ctx)
        ]
    return page(
        "Command line",
        "Every command of `dgent`, made from the [verbs](verbs.md). For a first look read the "
        "[guide](../guides/command-line.md).",
        "## Everyday\n",
        table("Command | What it does | The same as", everyday),
        "## Options of every command\n",
        "They may stand anywhere behind `dgent`.\n",
        table("Option | Meaning", option_rows(top)),
        *by_noun,
        "## Around it\n",
        *(own_section(_command(top, ctx, name), "dgent", name) for name in BUILTIN),
        "## JSON\n",
        *((fenced(part) if part.startswith("{") else wrapped(part)) + "\n" for part in JSON),
        "## Exit codes\n",
        table("Exit code | Meaning | `code` of the error", exit_rows()),
        "## Paths\n",
        wrapped(PATHS) + "\n",
        effects_table(),
    )


def doors_page() -> str:
    """Where each verb is reached: its commands, and the tools that offer it."""
    rows = []
    for verb in registry.every():
        noun, _, name = verb.id.partition(".")
        short = [f"`dgent {word}`" for word, (id, _) in SHORT.items() if id == verb.id]
        commands = [f"`dgent {noun} {name}`", *short]
        everyday, rest = [], []
        for tool, group in GROUPS.items():
            for operation, use in group.operations.items():
                if use.verb == verb.id:
                    shown = f"`{tool}`" + (f" `{operation}`" if operation else "")
                    (everyday if tool in SETS["everyday"] else rest).append(shown)
        rows.append(
            f"| [{verb.id}](verbs.md#{verb.id.replace('.', '')}) | {', '.join(commands)} "
            f"| {', '.join(everyday)} | {', '.join(rest)} |"
        )
    sets = [f"| `{name}` | {', '.join(f'`{tool}`' for tool in tools)} |" for name, tools in SETS.items()]
    return page(
        "Verbs by door",
        "Each verb, its commands, and the tools and operations that offer it to a model. The everyday tools "
        "are what `dgent mcp` offers by itself; `dgent mcp --tools` chooses other sets. A verb without a "
        "tool is for people and programs.",
        "## Sets of tools\n",
        table("Set | Tools", sets),
        "## Verbs\n",
        table("Verb | Commands | Everyday tool | Other tools", rows),
    )


def _command(group: click.Group, ctx: click.Context, name: str) -> click.Command:
    found = group.get_command(ctx, name)
    assert found is not None
    return found


JSON = (
    "With `--json` the answer is one object on standard output. `data` is the answer of the verb, with the "
    "fields that [Verbs](verbs.md#answers) lists:",
    '{"ok":true,"data":{"count":3}}',
    "An error is one object on standard error, and standard output stays empty. `code` is stable, the texts "
    "are not:",
    '{"ok":false,"code":"not_found","error":"there is no record \'nope\'","hint":"see `dgent data list`"}',
    "With `--jsonl` an answer that is a list gives one object a line, without the envelope. A stream gives "
    "one object a line in both cases. Fields may be added to an object; none is renamed or taken away.",
)

PATHS = (
    "`dgent invoke self.data.query schema=witness.mark limit=5` calls a verb by its path, with the verb's "
    "own field names; a field that takes several values is given several times. `dgent invoke self` lists "
    "every path, `dgent invoke self.data` those of one noun. In a program it is "
    '`await invoke(u, "self.data.query", schema="witness.mark", caller=caller)`, from `dgent.verbs.path`. '
    "What the caller may do depends on its trust and on the effect of the verb, and is checked at each call:"
)
