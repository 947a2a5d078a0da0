"""One call of a tool: the operation somebody asked for, with what it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.blocks import tool_schema
from dgent.blocks.tool_answer import Answer
from dgent.errors import InputError

if TYPE_CHECKING:
    from dgent.blocks.block import Block
    from dgent.blocks.edit.section import Section
    from dgent.blocks.library import Library

WHICH = ("label", "owner", "id")
"""What says which block: its label, perhaps with its owner, or its id."""


class Call:
    """What was asked of a library; what was left out is None, or what a caller says instead."""

    def __init__(self, library: Library, given: Mapping[str, Any]) -> None:
        self.library, self._given = library, given

    def __getitem__(self, name: str) -> Any:
        return self._given.get(name)

    def get(self, name: str, instead: Any) -> Any:
        """An argument, or something else when it was left out."""
        found = self[name]
        return instead if found is None else found

    def some(self, *names: str) -> dict[str, Any]:
        """Those of some arguments that were given."""
        return {name: self[name] for name in names if self[name] is not None}

    @property
    def offset(self) -> int:
        """Where to go on."""
        return max(int(self.get("offset", 0)), 0)

    async def block(self) -> Block:
        """The block that it is about."""
        if self["id"]:
            return await self.library.by_id(self["id"])
        return await self.library.get(self["label"], owner=self["owner"] or None)

    def part(self, block: Block) -> Block | Section:
        """The section that is meant, or the whole block."""
        return block.section(self["section"]) if self["section"] else block

    def content(self) -> Any:
        """What was given as `text` or as `value`; models may fill in the other one with nothing."""
        text, value = self["text"], self["value"]
        if text not in tool_schema.EMPTY and value not in tool_schema.EMPTY:
            raise InputError("text and value are the same thing", hint="give one of them")
        return text if value in tool_schema.EMPTY and text is not None else value


@dataclass(frozen=True)
class Operation:
    """Something that a tool does: what it needs, and what else it takes."""

    run: Callable[[Call], Awaitable[Answer]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Everything it takes, what it needs first."""
        return tuple(dict.fromkeys((*self.needs, *self.takes)))


def check(name: str, operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """What an operation is called with; an argument that it does not take is a mistake worth telling."""
    takes = operation.arguments
    for each, value in given.items():
        if each not in takes and value not in tool_schema.EMPTY:
            raise InputError(f"{name} takes no {each}", hint=f"it takes {', '.join(takes) or 'nothing'}")
    for each in operation.needs:
        if each == "label" and "id" in takes:
            if not given.get("label") and not given.get("id"):
                raise InputError(f"{name} needs a block", hint="give its label, or its id", field="label")
        elif given.get(each) is None:
            raise InputError(f"{name} needs {each}", hint=f"it takes {', '.join(takes)}", field=each)
    return {each: value for each, value in given.items() if each in takes}
