"""The nine tools of the reference memory server: their schemas, and what each does with the graph."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import mcp_types as types
import msgspec

from dgent.errors import DgentError
from dgent.graph import Graph, Part
from dgent.graph.wire import EntityJSON, RelationJSON, entity_json, relation_json

Schema = dict[str, Any]
Answer = tuple[str, dict[str, Any]]
"""The text of an answer, and its structured content."""


# -- what they take -------------------------------------------------------------------------


class Entities(msgspec.Struct):
    """Entities to create."""

    entities: list[EntityJSON]


class Relations(msgspec.Struct):
    """Relations to create or delete."""

    relations: list[RelationJSON]


class Added(msgspec.Struct, rename="camel"):
    """New observations of one entity."""

    entity_name: str
    contents: list[str]


class Observations(msgspec.Struct):
    """Observations to add."""

    observations: list[Added]


class Deleted(msgspec.Struct, rename="camel"):
    """Observations of one entity to delete."""

    entity_name: str
    observations: list[str]


class Deletions(msgspec.Struct):
    """Observations to delete."""

    deletions: list[Deleted]


class EntityNames(msgspec.Struct, rename="camel"):
    """Entities to delete."""

    entity_names: list[str]


class Nothing(msgspec.Struct):
    """No arguments."""


class Words(msgspec.Struct):
    """A text to search for."""

    query: str


class Names(msgspec.Struct):
    """Entities to open."""

    names: list[str]


# -- what they do ---------------------------------------------------------------------------


async def _create_entities(graph: Graph, given: Entities) -> Answer:
    new = await graph.create_entities([each.record() for each in given.entities])
    return _answer("entities", [entity_json(each) for each in new])


async def _create_relations(graph: Graph, given: Relations) -> Answer:
    new = await graph.create_relations([each.record() for each in given.relations])
    return _answer("relations", [relation_json(each) for each in new])


async def _add_observations(graph: Graph, given: Observations) -> Answer:
    added = await graph.add_observations([(each.entity_name, each.contents) for each in given.observations])
    results = [
        {"entityName": each.entity_name, "addedObservations": new}
        for each, new in zip(given.observations, added, strict=True)
    ]
    return _answer("results", results)


async def _delete_entities(graph: Graph, given: EntityNames) -> Answer:
    await graph.delete_entities(given.entity_names)
    return _confirm("Entities deleted successfully")


async def _delete_observations(graph: Graph, given: Deletions) -> Answer:
    await graph.delete_observations([(each.entity_name, each.observations) for each in given.deletions])
    return _confirm("Observations deleted successfully")


async def _delete_relations(graph: Graph, given: Relations) -> Answer:
    await graph.delete_relations([each.record() for each in given.relations])
    return _confirm("Relations deleted successfully")


async def _read_graph(graph: Graph, _given: Nothing) -> Answer:
    return _part(await graph.read())


async def _search_nodes(graph: Graph, given: Words) -> Answer:
    return _part(await graph.search(given.query))


async def _open_nodes(graph: Graph, given: Names) -> Answer:
    return _part(await graph.open(given.names))


def _answer(name: str, found: list[dict[str, Any]]) -> Answer:
    return write_json(found), {name: found}


def _confirm(message: str) -> Answer:
    return message, {"success": True, "message": message}


def _part(part: Part) -> Answer:
    found = part_json(part)
    return write_json(found), found


def part_json(part: Part) -> dict[str, Any]:
    """Return the JSON of a part of the graph."""
    return {
        "entities": [entity_json(each) for each in part.entities],
        "relations": [relation_json(each) for each in part.relations],
    }


def write_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


# -- how they are described -----------------------------------------------------------------


def _text(about: str = "") -> Schema:
    return {"type": "string", "description": about} if about else {"type": "string"}


def _list(of: Schema, about: str = "") -> Schema:
    return {"type": "array", "items": of} | ({"description": about} if about else {})


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_ENTITY = _object(
    name=_text("Its name, which no other entity has"),
    entityType=_text("What kind of thing it is"),
    observations=_list(_text(), "What is known of it, a fact each"),
)
_RELATION = _object(
    **{"from": _text("The name of the entity that it begins at")},
    to=_text("The name of the entity that it leads to"),
    relationType=_text("What the first entity is or does to the second"),
)
_PART = _object(entities=_list(_ENTITY), relations=_list(_RELATION))
_DONE = _object(success={"type": "boolean"}, message=_text())
_READS, _ADDS, _DELETES = ((True, False, True), (False, False, False), (False, True, True))


class GraphTool(NamedTuple):
    """A tool: its description, schemas, hints (it reads, destroys, may be repeated), and what it does."""

    about: str
    takes: type[msgspec.Struct]
    input: Schema
    output: Schema
    hints: tuple[bool, bool, bool]
    run: Callable[[Graph, Any], Awaitable[Answer]]


TOOLS: dict[str, GraphTool] = {
    "create_entities": GraphTool(
        "Add new entities to the graph of what is known; names that are there already are left as they are.",
        Entities,
        _object(entities=_list(_ENTITY)),
        _object(entities=_list(_ENTITY)),
        _ADDS,
        _create_entities,
    ),
    "create_relations": GraphTool(
        "Relate entities to each other; say it in the active voice, such as 'works at'.",
        Relations,
        _object(relations=_list(_RELATION)),
        _object(relations=_list(_RELATION)),
        _ADDS,
        _create_relations,
    ),
    "add_observations": GraphTool(
        "Add facts to entities that are in the graph; facts that are there already are left out.",
        Observations,
        _object(
            observations=_list(
                _object(entityName=_text("The entity"), contents=_list(_text(), "The facts to add"))
            )
        ),
        _object(results=_list(_object(entityName=_text(), addedObservations=_list(_text())))),
        _ADDS,
        _add_observations,
    ),
    "delete_entities": GraphTool(
        "Delete entities, with every relation from or to them.",
        EntityNames,
        _object(entityNames=_list(_text(), "The names of the entities")),
        _DONE,
        _DELETES,
        _delete_entities,
    ),
    "delete_observations": GraphTool(
        "Delete facts of entities.",
        Deletions,
        _object(
            deletions=_list(
                _object(entityName=_text("The entity"), observations=_list(_text(), "The facts to delete"))
            )
        ),
        _DONE,
        _DELETES,
        _delete_observations,
    ),
    "delete_relations": GraphTool(
        "Delete relations between entities.",
        Relations,
        _object(relations=_list(_RELATION, "The relations to delete")),
        _DONE,
        _DELETES,
        _delete_relations,
    ),
    "read_graph": GraphTool("Read all of the graph.", Nothing, _object(), _PART, _READS, _read_graph),
    "search_nodes": GraphTool(
        "Find entities with a text in their names, types or facts, and the relations around them.",
        Words,
        _object(query=_text("The text, in any case")),
        _PART,
        _READS,
        _search_nodes,
    ),
    "open_nodes": GraphTool(
        "Read some entities by their names, and the relations around them.",
        Names,
        _object(names=_list(_text(), "The names of the entities")),
        _PART,
        _READS,
        _open_nodes,
    ),
}


def list_tools() -> list[types.Tool]:
    """Return the nine tools."""
    return [
        types.Tool(
            name=name,
            title=name.replace("_", " ").title(),
            description=tool.about,
            input_schema=tool.input,
            output_schema=tool.output,
            annotations=types.ToolAnnotations(
                read_only_hint=tool.hints[0],
                destructive_hint=tool.hints[1],
                idempotent_hint=tool.hints[2],
                open_world_hint=False,
            ),
        )
        for name, tool in TOOLS.items()
    ]


async def call_tool(graph: Graph, name: str, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
    """Call one of the tools; a mistake is an answer that says so."""
    tool = TOOLS[name]
    try:
        text, content = await tool.run(graph, msgspec.convert(arguments or {}, tool.takes))
    except msgspec.ValidationError as error:
        return _refuse(f"Invalid arguments for tool {name}: {error}")
    except DgentError as error:
        return _refuse(f"{error.message}\nhint: {error.hint}" if error.hint else error.message)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=content
    )


def _refuse(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)
