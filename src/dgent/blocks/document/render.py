"""Render a document as text, and as plain values.

The same content always gives the same text. A value of several lines is indented, so that no value can look
like another field, item or entry.
"""

from __future__ import annotations

import re
from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Field, SectionShape, Shape, container, field_container

_BREAKS = r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_BREAK = re.compile(rf"\r\n|{_BREAKS}")
_HEADING = re.compile(rf"(?:\A|(?<={_BREAKS}))(?=\\*=== )")
STAMPS = ("at", "agent")


def render_document(shape: Shape, document: Document, limit: int | None = None, section: str = "") -> str:
    """Return a document as text; a log shows its newest entries, as many as fit the limit."""
    return _RENDER.get(shape.document, _unknown)(shape, document, limit, section)


def contents(shape: Shape, document: Document, section: str = "") -> dict[str, Any]:
    """Return a document as plain values: the fields of a map, anything else under the name of its kind."""
    name = container(section, BODY.get(shape.document, ""))
    if shape.document == "composite":
        return {each.name: contents(each.shape, document, each.name) for each in shape.sections}
    if shape.document == "map":
        return fields_of(shape, document, section)
    if shape.document == "text":
        return {"content": document.text(name)}
    if shape.document == "list":
        return {"items": items_of(shape, document, section)}
    if shape.document == "log":
        return {"entries": document.entries(name)}
    if shape.document == "tree":
        return {"nodes": document.nodes(name)}
    if shape.document == "counter":
        return {"count": document.count(name)}
    return document.value()


def fields_of(shape: Shape, document: Document, section: str = "") -> dict[str, Any]:
    """Return the fields of a map, in the order of its shape; unknown fields come after, by name."""
    plain = document.fields(container(section, BODY["map"]))
    found: dict[str, Any] = {}
    for field in shape.fields:
        if field.type == "list":
            found[field.name] = document.items(field_container(section, field))
        elif field.type == "counter":
            found[field.name] = document.count(field_container(section, field))
        elif field.name in plain:
            found[field.name] = plain[field.name]
        elif _fills_in(field):
            found[field.name] = field.default
    return found | {name: plain[name] for name in sorted(plain) if name not in found}


def _fills_in(field: Field) -> bool:
    """Check whether a field has its default where it is missing: the template of the block gained it."""
    return field.required and field.default is not None


def items_of(shape: Shape, document: Document, section: str = "") -> list[Any]:
    """Return the items of a list; fields that its template gained have their default."""
    items = document.items(container(section, BODY["list"]))
    gained = {field.name: field.default for field in shape.fields if _fills_in(field)}
    return [gained | each if isinstance(each, dict) else each for each in items] if gained else items


# -- each kind of document ----------------------------------------------------------------------------------


def _text(_shape: Shape, document: Document, _limit: int | None, section: str) -> str:
    return document.text(container(section, BODY["text"]))


def _map(shape: Shape, document: Document, _limit: int | None, section: str) -> str:
    known = {field.name: field for field in shape.fields}
    lines = []
    for name, value in fields_of(shape, document, section).items():
        field = known.get(name, Field(name, "any"))
        title = flat(name) + (" [read-only]" if field.read_only else "")
        if field.type != "list":
            lines.append(f"{title}: {flat(value)}")
        elif value:
            lines += [f"{title}:", *(f"- {flat(each)}" for each in value)]
    return "\n".join(lines)


def _list(shape: Shape, document: Document, _limit: int | None, section: str) -> str:
    items = items_of(shape, document, section)
    return "\n".join(_item(place, each) for place, each in enumerate(items, 1))


def _item(place: int, value: Any) -> str:
    if not isinstance(value, dict) or not isinstance(value.get("done"), bool):
        return f"{place}. {_record(value)}"
    rest = {name: each for name, each in value.items() if name != "done"}
    return f"{place}. [{'x' if value['done'] else ' '}] {_record(rest)}"


def _record(value: Any) -> str:
    """Return an item or an entry on one line: its first text as it is, and the rest by name."""
    if not isinstance(value, dict):
        return flat(value)
    if len(value) == 1:
        [(name, only)] = value.items()
        leads = name in _LEADING and isinstance(only, str)
        return "" if only is None else flat(only) if leads else f"{flat(name)}: {flat(only)}"
    first = next((name for name in _LEADING if isinstance(value.get(name), str)), None)
    names = [name for name in sorted(value, key=_order) if name != first and value[name] is not None]
    parts = [f"{flat(name)}: {flat(value[name])}" for name in names]
    return "; ".join(([] if first is None else [flat(value[first])]) + parts)


def _order(name: str) -> tuple[bool, str]:
    return name not in ("tool", "event"), name


_LEADING = ("title", "message", "observation", "summary", "name", "text")


def _log(shape: Shape, document: Document, limit: int | None, section: str) -> str:
    return "\n".join(log_lines(shape, document, limit, section))


def log_lines(shape: Shape, document: Document, limit: int | None, section: str = "") -> list[str]:
    """Return the newest entries of a log, newest first, as many as the shape and the limit allow."""
    lines: list[str] = []
    room = limit
    for entry in document.newest_entries(container(section, BODY["log"])):
        if len(lines) == shape.display:
            break
        line = entry_line(entry, shape.clip)
        if room is not None:
            room -= len(line) + 1
            if room < -1:
                lines += [] if lines else [_clip(line, limit)]
                break
        lines.append(line)
    return lines


def entry_line(entry: Any, clip: int | None = None) -> str:
    """Return an entry of a log on one line: time, agent and text."""
    if not isinstance(entry, dict):
        return _clip(flat(entry), clip)
    stamp = f"[{flat(entry['at'])}] " if "at" in entry else ""
    stamp += f"({flat(entry['agent'])}) " if "agent" in entry else ""
    return stamp + _clip(entry_text(entry), clip)


def entry_text(entry: Any) -> str:
    """Return the text of an entry of a log, without time and agent."""
    if not isinstance(entry, dict):
        return flat(entry)
    return _record({key: each for key, each in entry.items() if key not in STAMPS})


def _clip(text: str, clip: int | None) -> str:
    return text if clip is None or len(text) <= clip else text[: max(clip - 1, 0)].rstrip() + "…"


def _counter(_shape: Shape, document: Document, _limit: int | None, section: str) -> str:
    return str(document.count(container(section, BODY["counter"])))


def _tree(_shape: Shape, document: Document, _limit: int | None, section: str) -> str:
    left = [(node, 0) for node in reversed(document.nodes(container(section, BODY["tree"])))]
    lines = []
    while left:
        node, depth = left.pop()
        lines.append("  " * depth + "- " + flat(_record(node["data"]), "  " * (depth + 1)))
        left += [(each, depth + 1) for each in reversed(node["children"])]
    return "\n".join(lines)


def _composite(shape: Shape, document: Document, limit: int | None, _section: str) -> str:
    return "\n\n".join(_section_text(each, document, limit) for each in shape.sections)


def _section_text(section: SectionShape, document: Document, limit: int | None) -> str:
    title = f"=== {section.name}{' [read-only]' if section.read_only else ''} ==="
    body = render_document(section.shape, document, limit, section.name)
    return title + ("\n" + _HEADING.sub(lambda _: "\\", body) if body else "")


def _unknown(_shape: Shape, document: Document, _limit: int | None, _section: str) -> str:
    """Render a kind of document that only a later version of dgent knows."""
    return flat(document.value())


_RENDER = {
    "text": _text,
    "map": _map,
    "list": _list,
    "log": _log,
    "tree": _tree,
    "counter": _counter,
    "composite": _composite,
}


def flat(value: Any, indent: str = "  ") -> str:
    """Return a value as one text, whose further lines are indented."""
    if isinstance(value, str):
        return value if value.isprintable() else _BREAK.sub("\n" + indent, value)
    if isinstance(value, list):
        return "[" + ", ".join(flat(each, indent) for each in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{flat(key)}: {flat(each, indent)}" for key, each in sorted(value.items())) + "}"
        )
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # a document keeps 3.0 and 3 apart, a reader does not
    return "true" if value is True else "false" if value is False else "" if value is None else str(value)
