"""Templates: what a structured document holds, and how it reads as text."""

from __future__ import annotations

from typing import Any

from dgent.blocks.document import Document


def rendered(kind: str, shape: dict[str, Any], document: Document) -> str:
    """A structured document as text, the same for the same content."""
    if kind == "map":
        return "\n".join(f"{key}: {flat(value)}" for key, value in sorted(document.fields().items()))
    if kind == "list":
        return "\n".join(f"{place}. {flat(item)}" for place, item in enumerate(document.items(), 1))
    if kind == "log":
        return "\n".join(flat(entry) for entry in document.entries())
    if kind == "counter":
        return str(document.count())
    if kind == "tree":
        return "\n".join(_branches(document.nodes(), 0))
    return "\n\n".join(f"{name}:\n{flat(value)}" for name, value in sorted(document.value().items()))


def _branches(nodes: list[dict[str, Any]], depth: int) -> list[str]:
    found = []
    for node in nodes:
        found.append("  " * depth + "- " + flat(node["data"]))
        found += _branches(node["children"], depth + 1)
    return found


def flat(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "[" + ", ".join(flat(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flat(each)}" for key, each in sorted(value.items())) + "}"
    return "true" if value is True else "false" if value is False else "" if value is None else str(value)
