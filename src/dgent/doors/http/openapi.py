"""The description of the server for programs: OpenAPI 3.1, made from the verbs and the routes."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from dgent.doors.http import agent
from dgent.doors.http.route import NO_SCHEMA, ROUTES, Route
from dgent.verbs import registry
from dgent.verbs.caller import ALLOWED, Trust
from dgent.verbs.registry import Verb

ABOUT = (
    "Where AI agents keep what they know. The calls below /v1/store are not listed: they carry MessagePack in"
    " a format of its own, for the Python client of dgent, and change with it."
)
_REF = "#/components/schemas/{name}"
_ERROR = {
    "type": "object",
    "required": ["ok", "code", "error", "hint", "retryable"],
    "properties": {
        "ok": {"const": False},
        "code": {"type": "string"},
        "error": {"type": "string"},
        "hint": {"type": "string"},
        "retryable": {"type": "boolean"},
    },
}
_BODIES = ("POST", "PUT", "PATCH")


def offered() -> list[Verb]:
    """Return the verbs that can be called from elsewhere: those that touch no file of this machine."""
    return [verb for verb in registry.every() if not verb.local or verb.unless is not None]


def list_verbs(trust: Trust) -> list[dict[str, Any]]:
    """Return the verbs that a visitor may call."""
    return [
        {"id": verb.id, "effect": verb.effect, "help": verb.help}
        for verb in offered()
        if verb.effect in ALLOWED[trust] or verb.lighter is not None
    ]


@cache
def document() -> bytes:
    """Return the description as JSON."""
    verbs = {verb.id: verb for verb in offered()}
    types = [each for verb in verbs.values() for each in (verb.input, verb.output)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = {id: (schemas[2 * at], schemas[2 * at + 1]) for at, id in enumerate(verbs)}
    paths: dict[str, dict[str, Any]] = {}
    for verb in verbs.values():
        call = Route("POST", f"/v1/verbs/{verb.id}", verb.id)
        paths[call.path] = {"post": _operation(call, verb, *known[verb.id], components)}
    paths |= agent.describe_paths()
    for route in ROUTES:
        verb = verbs[route.verb]
        place = paths.setdefault(route.path, {})
        place[route.method.lower()] = _operation(route, verb, *known[route.verb], components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "dgent",
                "version": version("dgent"),
                "description": ABOUT,
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "paths": dict(sorted(paths.items())),
            "components": {
                "schemas": {**components, "Error": _ERROR},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(
    route: Route, verb: Verb, input: dict[str, Any], output: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    fields = components[input["$ref"].rpartition("/")[2]]
    inside = [each[1:-1] for each in route.path.split("/") if each[:1] == "{"]
    rest = {
        name: schema
        for name, schema in fields["properties"].items()
        if name not in inside and name not in route.preset
    }
    made: dict[str, Any] = {
        "operationId": f"{route.method.lower()} {route.path}",
        "summary": verb.help,
        "tags": [verb.id.partition(".")[0]],
        "parameters": [_in_path(name, fields["properties"].get(name, {"type": "string"})) for name in inside],
        "responses": {
            "201"
            if route.verb == "data.put"
            and route.method == "POST"
            and inside != ["id"]
            and not route.path.startswith("/v1/verbs/")
            else "200": _answer(verb, output),
            "default": {
                "description": "what was wrong, and what to do",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if route.method in _BODIES and verb.id == "data.import":
        lines: dict[str, Any] = {"application/x-ndjson": {"schema": {"type": "string"}}}
        made["requestBody"] = {"required": True, "content": lines}
    elif route.path == "/v1/blobs/{key}" and route.method in _BODIES:
        made["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif route.method in _BODIES:
        needed = [name for name in fields.get("required", ()) if name in rest]
        schema = {"type": "object", "properties": rest, "required": needed, "additionalProperties": False}
        made["requestBody"] = {"required": bool(needed), "content": {"application/json": {"schema": schema}}}
    else:
        made["parameters"] += [
            {
                "name": name,
                "in": "query",
                "required": name in fields.get("required", ()),
                "schema": schema,
                "description": schema.get("description", ""),
            }
            for name, schema in rest.items()
        ]
    return made


def _in_path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"type": "integer"} if name in ("seq", "version") else {"type": "string", "minLength": 1}
    if name == "schema":
        described["description"] = f"the name of a schema, or {NO_SCHEMA} for none"
    elif "description" in schema:
        described["description"] = schema["description"]
    return {"name": name, "in": "path", "required": True, "schema": described}


def _answer(verb: Verb, output: dict[str, Any]) -> dict[str, Any]:
    if verb.streams:
        return {"description": "commits as events", "content": {"text/event-stream": {}}}
    if verb.id == "blob.get":
        return {"description": "the content of the blob", "content": {"*/*": {}}}
    if verb.id == "data.export":
        return {"description": "records as lines of JSON", "content": {"application/x-ndjson": {}}}
    schema = {
        "type": "object",
        "required": ["ok", "data"],
        "properties": {"ok": {"const": True}, "data": output},
    }
    return {"description": verb.help, "content": {"application/json": {"schema": schema}}}
