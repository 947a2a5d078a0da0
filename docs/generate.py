"""Writes docs/reference/ from the signatures and docstrings of dgent: `python docs/generate.py`.

A test compares the pages with what this would write, so they cannot go stale.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from verbs import command_line, doors_page, verbs_page
from wording import HIDDEN, default_of, doc, every_error, fenced, has_fields, page, section, sentence, table

import dgent
from dgent import blocks, errors, membrane, messages, tools
from dgent import cupboard as room
from dgent.blocks.edit.editable import Editable
from dgent.cupboard.tables import crumb, link, metadata, stash, trail
from dgent.cupboard.tables import property as properties
from dgent.doors.tools.catalog import GROUPS
from dgent.doors.tools.tool import tool_of
from dgent.model import lens
from dgent.store import backend
from dgent.universe import focus, relation, upgrade, vectors

FOLDER = Path(__file__).resolve().parent / "reference"
WIDTH = 100

OPERATORS = {
    "$eq": ("any value", "is this value; a plain value in `where` means the same"),
    "$ne": ("any value", "is not this value; holds when nothing is there"),
    "$gt": ("a number, text, bool or datetime", "is of the same kind and greater"),
    "$gte": ("a number, text, bool or datetime", "is of the same kind and greater or equal"),
    "$lt": ("a number, text, bool or datetime", "is of the same kind and less"),
    "$lte": ("a number, text, bool or datetime", "is of the same kind and less or equal"),
    "$in": ("a list", "is one of these"),
    "$nin": ("a list", "is none of these; holds when nothing is there"),
    "$exists": ("`True` or `False`", "is there, or is not; null is there"),
    "$prefix": ("a text", "is a text that starts so"),
    "$contains": ("any value", "is a list with this item, a text with this part, or a map with this key"),
}
"""What each operator takes, and when it holds for the value at the path."""

COMBINING = {
    "$and": ("a list of `where` maps", "all of them hold; at the top of a `where`"),
    "$or": ("a list of `where` maps", "at least one of them holds; at the top of a `where`"),
    "$not": ("a `where` map, or operators", "it does not hold; at the top of a `where`, or at a path"),
}


class Part(NamedTuple):
    """A class on a page, and how its methods are called there."""

    cls: type
    handle: str
    leave_out: frozenset[str] = frozenset()


# -- texts --------------------------------------------------------------------------------


def annotation(given: Any) -> str:
    """A type as the source spells it."""
    text = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    return text.replace("builtins.", "")


def signature(function: Callable[..., Any], call: str, drop_first: bool = True) -> str:
    """A call with its parameters, on one line if it fits, else one parameter a line."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if drop_first else 0 :]
    parts: list[str] = []
    kinds = inspect.Parameter
    starred = False
    for parameter in parameters:
        stars = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is kinds.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)
        text = stars + parameter.name.rstrip("_")
        if parameter.annotation is not kinds.empty:
            text += f": {annotation(parameter.annotation)}"
        if parameter.default is not kinds.empty:
            plain = getattr(parameter.default, "__name__", None)  # of a function or a class
            text += f" = {plain or repr(parameter.default)}"
        parts.append(text)
    back = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    line = f"{call}({', '.join(parts)}){back}"
    if len(line) <= WIDTH:
        return line
    return f"{call}(\n" + "".join(f"    {part},\n" for part in parts) + f"){back}"


def way(function: Any) -> str:
    """What stands before a call."""
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        return "async for ... in " if inspect.isasyncgenfunction(function) else "async with "
    return "await " if inspect.iscoroutinefunction(function) else ""


# -- classes ------------------------------------------------------------------------------


def methods(part: Part) -> Iterator[str]:
    """A table of the properties that the class itself defines, and a section for each method."""
    # The members of a universe stand in several files, for those who read the source.
    classes = reversed(part.cls.__mro__) if part.cls is dgent.Universe else (part.cls,)
    found = {
        name: member
        for cls in classes
        for name, member in vars(cls).items()
        if not name.startswith("_") and name not in part.leave_out
    }
    kinds = property | cached_property
    properties = {name: member for name, member in found.items() if isinstance(member, kinds)}
    if properties:
        yield (
            "\n".join(["| Property | Type | Meaning |", "|---|---|---|", *map(_property, properties.items())])
            + "\n"
        )
    for name, member in found.items():
        if isinstance(member, classmethod | staticmethod):
            call = f"{part.cls.__name__}.{name}"
            drop = isinstance(member, classmethod)
            yield section(name, signature(member.__func__, call, drop), doc(member.__func__))
        elif inspect.isfunction(member):
            call = f"{way(member)}{part.handle}.{name}"
            yield section(name, signature(member, call), doc(member))


def _property(named: tuple[str, property | cached_property[Any]]) -> str:
    name, member = named
    made = member.fget if isinstance(member, property) else member.func
    assert made is not None
    kind = annotation(made.__annotations__.get("return", "Any")).replace("|", "\\|")
    return f"| `{name}` | `{kind}` | {sentence(member)} |"


def fields(cls: type) -> str:
    """The fields of a struct or dataclass as a table."""
    rows = ["| Field | Type | Default |", "|---|---|---|"]
    for name, kind, default in list_fields(cls):
        if name in HIDDEN or name.startswith("_"):
            continue
        shown = kind.replace("|", "\\|")
        rows.append(f"| `{name}` | `{shown}` | {default} |")
    return "\n".join(rows) + "\n"


def list_fields(cls: type) -> Iterator[tuple[str, str, str]]:
    hints = {
        name: kind for base in reversed(cls.__mro__) for name, kind in inspect.get_annotations(base).items()
    }
    if cls is dgent.Datum:
        for parameter in list(inspect.signature(cls.__new__).parameters.values())[1:]:
            made = parameter.name in ("id", "created_at", "data")
            yield (
                parameter.name,
                str(parameter.annotation),
                "made for each" if made else f"`{parameter.default!r}`",
            )
        return
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.init:
                yield field.name, annotation(hints[field.name]), default_of(field, dataclasses.MISSING)
        return
    for field in msgspec.structs.fields(cls):
        yield field.name, annotation(hints[field.name]), default_of(field, msgspec.NODEFAULT)


def described(part: Part) -> str:
    """A class: what it is, its fields, its methods."""
    out = [f"## {part.cls.__name__}\n", doc(part.cls) + "\n"]
    if has_fields(part.cls) and part.cls is not dgent.Lens:
        out.append(fields(part.cls))
    return "\n".join([*out, *methods(part)])


# -- the pages ----------------------------------------------------------------------------

HOMES = {
    "universe": (
        "Collection",
        "DataMixin",
        "Transaction",
        "Universe",
        "copy",
        "get_universe",
        "open",
        "set_universe",
    ),
    "model": ("Crystal", "CrystalMeta", "Datum", "Lens", "Ref", "Schema"),
    "query": ("Query",),
}


def index() -> str:
    homes = {name: stem for stem, names in HOMES.items() for name in names}
    rows = ["| Name | What it is |", "|---|---|"]
    for name in sorted(dgent.__all__, key=str.lower):
        stem = homes.get(name, "errors")
        rows.append(f"| [`dgent.{name}`]({stem}.md) | {sentence(getattr(dgent, name))} |")
    more = [
        "| Module | What is in it |",
        "|---|---|",
        "| `dgent.sync` | The same calls without async: [guide](../guides/without-async.md). |",
        "| `dgent.cupboard` | [Work items an agent can back out of](cupboard.md), and their errors. |",
        "| `dgent.membrane` | [Sessions, running programs, states of agents, proposals](membrane.md). |",
        "| `dgent.messages` | [What was said, in batches; archives, and a queue](messages.md). |",
        "| `dgent.blocks` | [Memory documents with their history](blocks.md), and their errors. |",
        "| `dgent.tools` | [Tools for models](tools.md) over verbs. |",
        "| `dgent.errors` | [Every error](errors.md), also those that `dgent` itself does not name. |",
        "| `dgent.model.lens` | [Lenses](model.md#lenses) and the other optics. |",
        "| `dgent.store.backend` | [Ops and answers](answers.md), and the contract of an engine. |",
        "| `dgent.testing` | The tests any engine must pass: [guide](../guides/write-an-engine.md). |",
        "| `dgent.verbs` | [Every verb](verbs.md), and `invoke` to call one by its path. |",
    ]
    return page(
        "Reference",
        "Everything the package `dgent` exports by name. [Universe](universe.md), [model](model.md), "
        "[query](query.md), [ops and answers](answers.md) and [errors](errors.md) have the details. "
        "[Verbs](verbs.md) is what every door offers, [command line](command-line.md) how `dgent` says it.",
        "\n".join(rows) + "\n",
        "## Modules\n",
        "\n".join(more) + "\n",
    )


def universe() -> str:
    functions = [dgent.open, dgent.copy, dgent.get_universe, dgent.set_universe]
    opening = [
        section(each.__name__, signature(each, f"dgent.{each.__name__}", False), doc(each))
        for each in functions
    ]
    return page(
        "Universe",
        "`u` stands for an open universe, `tx` for a transaction. The blocking twin in `dgent.sync` has the "
        "same calls without `await`.",
        "## Opening\n",
        *opening,
        described(Part(dgent.Universe, "u")),
        described(Part(dgent.Transaction, "tx")),
        described(Part(dgent.Collection, "u.collection(T)")),
        described(Part(focus.Focus, "u.focus(id, lens)")),
        described(Part(vectors.Vectors, "vectors")),
        described(Part(vectors.VectorHit, "hit")),
        described(Part(dgent.DataMixin, "self")),
    )


def model() -> str:
    optics = [
        f"| `{signature(each, 'lens.' + name, False).replace('|', chr(92) + '|')}` | {sentence(each)} |"
        for name, each in vars(lens).items()
        if inspect.isfunction(each) and each.__module__ == lens.__name__ and not name.startswith("_")
    ]
    return page(
        "Model",
        "Pure values: making and changing them touches no store.",
        described(Part(dgent.Datum, "datum")),
        described(Part(dgent.Crystal, "crystal")),
        described(Part(dgent.CrystalMeta, "crystal.meta")),
        described(Part(dgent.Schema, "schema", frozenset({"shape"}))),
        f"## Ref\n\n{doc(dgent.Ref)}\n",
        "## Lenses\n",
        "In `dgent.model.lens`. `a >> b` looks with `b` inside what `a` found; "
        "[`u.focus`](universe.md#focus) uses them on stored records.\n",
        "\n".join(["| Lens | What it looks at |", "|---|---|", *optics]) + "\n",
    )


def query() -> str:
    rows = [f"| `{name}` | {takes} | {holds} |" for name, (takes, holds) in OPERATORS.items()]
    joins = [f"| `{name}` | {takes} | {holds} |" for name, (takes, holds) in COMBINING.items()]
    return page(
        "Query",
        "What the words mean is in [Queries and the order of values](../concepts/queries.md).",
        described(Part(dgent.Query, "query")),
        "## Operators\n",
        "\n".join(["| Operator | Takes | Holds when the value at the path … |", "|---|---|---|", *rows])
        + "\n",
        "\n".join(["| Combining | Takes | Holds when … |", "|---|---|---|", *joins]) + "\n",
    )


OPS = (backend.Put, backend.Delete, backend.Check)
ANSWERS = (
    backend.Committed,
    backend.Written,
    backend.Page,
    backend.Version,
    backend.Change,
    backend.Item,
    backend.Keep,
    backend.Compacted,
    backend.Forgotten,
    backend.BackendStats,
    backend.SchemaStats,
    upgrade.Upgraded,
    relation.Resolved,
    relation.Association,
)


def answers() -> str:
    return page(
        "Ops and answers",
        "What `u.commit` takes, and what calls give back. Ops and answers live in `dgent.store.backend` "
        "unless said otherwise: `Upgraded` is in `dgent.universe.upgrade`, `Resolved` and `Association` in "
        "`dgent.universe.relation`.",
        *(described(Part(each, each.__name__.lower())) for each in (*OPS, *ANSWERS)),
    )


def errors_page() -> str:
    rows = ["| Error | Is a | `code` | Retryable | Meaning | Hint |", "|---|---|---|---|---|---|"]
    for each in every_error():
        bases = ", ".join(f"`{base.__name__}`" for base in each.__bases__)
        retry = "yes" if each.retryable else "no"
        rows.append(
            f"| `{each.__name__}` | {bases} | `{each.code}` | {retry} | {sentence(each)} | {each.hint} |"
        )
    tree = doc(errors).split("\n\n", 1)[1]
    return page(
        "Errors",
        "Every error is a `DgentError` from `dgent.errors`. It has a stable `code`, a `hint` that says what "
        "to do, `retryable`, and `details`, a dict with what it is about (an `id`, a `field`, a `seq` …). "
        "`retryable` means that the same call may well succeed when it is made again. A hint here is the "
        "usual one; an error may carry a more exact one.",
        fenced(tree) + "\n",
        "\n".join(rows) + "\n",
    )


TABLES: dict[str, type] = {
    "crumbs": crumb.Crumbs,
    "trails": trail.Trails,
    "properties": properties.Properties,
    "categories": properties.Categories,
    "links": link.Links,
    "stashes": stash.Stashes,
    "metadata": metadata.Metadatas,
    "schemas": metadata.MetadataSchemas,
}


def cupboard() -> str:
    tables = []
    for name, cls in TABLES.items():
        filters = ", ".join(f"`{column}`" for column in sorted(cls.columns))
        own = list(methods(Part(cls, f"cupboard.{name}", frozenset({"columns"}))))
        tables.append("\n".join([f"## cupboard.{name}\n", f"{doc(cls)} Filters: {filters}.\n", *own]))
    shown = [getattr(room, name) for name in room.__all__ if name not in ("Cupboard", "Table", "errors")]
    return page(
        "Cupboard",
        "Everything the package `dgent.cupboard` exports; what it is for is in "
        "[The cupboard](../concepts/cupboard.md). `cupboard` stands for an open one. The blocking twin in "
        "`dgent.sync.cupboard` has the same calls without `await`.",
        described(Part(room.Cupboard, "cupboard")),
        described(Part(room.Table, "cupboard.table(name)")),
        *tables,
        *(described(Part(each, each.__name__.lower())) for each in shown),
        *errors_of(room.errors),
    )


def errors_of(module: Any) -> tuple[str, ...]:
    """The errors of a room."""
    rows = [
        f"| `{each.__name__}` | {', '.join(f'`{base.__name__}`' for base in each.__bases__)} | `{each.code}` "
        f"| {sentence(each)} |"
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module.__name__
    ]
    return (
        "## Errors\n",
        f"In `{module.__name__}`; each is also one of the [errors of dgent](errors.md).\n",
        table("Error | Is a | `code` | Meaning", rows),
    )


EDITS = {
    "Texts": ("The edits of a text.", {"write", "replace", "edit_range", "patch"}),
    "Maps and counters": (
        "The edits of a map and of a counter.",
        {"set_field", "clear_field", "append_to_field", "remove_from_field", "increment"},
    ),
    "Lists and logs": (
        "The edits of a list and of a log.",
        {"insert_item", "set_item", "move_item", "delete_item", "log"},
    ),
    "Trees": ("The edits of a tree.", {"add_node", "set_node", "move_node", "delete_node"}),
}
"""The edits that only one kind of document has."""
HANDLES: dict[type, str] = {blocks.Roster: "lib.agents", blocks.Groups: "lib.groups"}


MEMBRANE = {
    membrane.CLISessionService: "service",
    membrane.Instances: "instances",
    membrane.SelfGrow: "grow",
    membrane.Membrane: "membrane",
    membrane.Catalog: "catalog",
}


def membrane_page() -> str:
    made = [getattr(membrane, name) for name in membrane.__all__]
    records = [each for each in made if inspect.isclass(each) and each not in MEMBRANE]
    calls = [each for each in made if not inspect.isclass(each)]
    return page(
        "Membrane",
        "Everything the package `dgent.membrane` exports; what it is for is in "
        "[Keep a log of sessions](../guides/sessions.md). A program without an event loop calls the verbs "
        "of the [command line](command-line.md).",
        *(described(Part(cls, handle)) for cls, handle in MEMBRANE.items()),
        *(f"## {call.__name__}\n\n{doc(call)}\n" for call in calls),
        *(described(Part(each, each.__name__.lower())) for each in records),
    )


MESSAGES = {
    messages.Messages: "messages",
    messages.Batch: "batch",
    messages.Inbox: "inbox",
    messages.Delivery: "delivery",
}


def messages_page() -> str:
    made = [getattr(messages, name) for name in messages.__all__]
    records = [each for each in made if each not in MESSAGES]
    return page(
        "Messages",
        "Everything the package `dgent.messages` exports; what it is for is in "
        "[Messages](../concepts/messages.md). The blocking twin in `dgent.sync.messages` has the same calls "
        "without `await`.",
        *(described(Part(cls, handle)) for cls, handle in MESSAGES.items()),
        *(described(Part(each, each.__name__.lower())) for each in records),
    )


def blocks_page() -> str:
    every = frozenset(vars(Editable))
    edits = [
        "\n".join(
            [
                f"## {title}\n",
                f"{about} `block` may also be a section.\n",
                *methods(Part(Editable, "block", every - names)),
            ]
        )
        for title, (about, names) in EDITS.items()
    ]
    elsewhere = frozenset({"shape", "document_kind"}).union(*(names for _, names in EDITS.values()))
    apart = ("Library", "Block", "Section", "TEMPLATES", "errors")
    shown = [(name, getattr(blocks, name)) for name in blocks.__all__ if name not in apart]
    others = [
        described(Part(each, HANDLES.get(each, name.lower()))).replace(each.__name__, name, 1)
        for name, each in shown
    ]
    return page(
        "Blocks",
        "Everything the package `dgent.blocks` exports; what it is for is in "
        "[Blocks](../concepts/blocks.md). `lib` stands for a library, `block` for one of its blocks. The "
        "blocking twin in `dgent.sync.blocks` has the same calls without `await`. `TEMPLATES` are the "
        f"templates there are, by name: {', '.join(f'`{name}`' for name in blocks.TEMPLATES)}.",
        described(Part(blocks.Library, "lib")),
        described(Part(blocks.Block, "block")),
        *methods(Part(Editable, "block", elsewhere)),
        *edits,
        described(Part(blocks.Section, "section")),
        *others,
        *errors_of(blocks.errors),
    )


def tools_page() -> str:
    parts = []
    for name, group in GROUPS.items():
        rows = ["| Operation | Needs | Verb |", "|---|---|---|"]
        for operation in tool_of(name).operations.values():
            needs = ", ".join(f"`{each}`" for each in operation.needs)
            verb = operation.verb.id
            link = f"[{verb}](verbs.md#{verb.replace('.', '')})"
            rows.append(f"| {f'`{operation.name}`' if operation.name else ''} | {needs} | {link} |")
        parts.append("\n".join([f"## {name}\n", f"{group.about.partition(chr(10))[0]}\n", *rows, ""]))
    return page(
        "Tools",
        "What `dgent.tools` exports, and the tools that it offers to models: how to use them is in the "
        "[guide](../guides/memory-tools-for-an-agent.md). An operation takes the fields of its verb. The "
        "blocking twin in `dgent.sync.tools` has the same calls without `await`.",
        described(Part(tools.Toolbox, "tools")),
        *parts,
    )


def pages() -> dict[str, str]:
    """Every page of the reference by file name."""
    return {
        "index.md": index(),
        "universe.md": universe(),
        "model.md": model(),
        "query.md": query(),
        "answers.md": answers(),
        "errors.md": errors_page(),
        "cupboard.md": cupboard(),
        "blocks.md": blocks_page(),
        "membrane.md": membrane_page(),
        "messages.md": messages_page(),
        "tools.md": tools_page(),
        "verbs.md": verbs_page(),
        "command-line.md": command_line(),
        "doors.md": doors_page(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"wrote {FOLDER.name}/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
