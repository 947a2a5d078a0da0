"""The description for programs: whole, true, and no input that it allows is a fault of the server."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dgent
from dgent.doors.http import openapi
from dgent.doors.http.limit import Limits
from dgent.doors.http.route import ROUTES
from dgent.verbs import registry
from tests.http.client import Client, serve_universe, token_for
from tests.soak import times

TEXTS = (
    *("", "a", "note", "notes", "dg-aaaa", "0", "-1", "2026-01-01", "2h", "é\u0301\u202e", "x" * 3000),
    *("../..", "a/b", "{}", "[", "%00", "\0", "🙂", "n>=1", "ready", "scout", "self.data", " ", "\n"),
)


def test_the_description_is_whole() -> None:
    found = json.loads(openapi.document())
    assert found["openapi"] == "3.1.0"
    names = [
        operation["operationId"] for methods in found["paths"].values() for operation in methods.values()
    ]
    assert len(names) == len(set(names))
    for path, methods in found["paths"].items():
        for operation in methods.values():
            inside = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert inside == set(re.findall(r"\{(\w+)\}", path))
            assert operation["summary"] and set(operation["responses"]) >= {"default"}
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', openapi.document().decode()))
    assert references <= set(found["components"]["schemas"])
    for route in ROUTES:
        assert route.method.lower() in found["paths"][route.path]
    for verb in registry.every():
        offered = not verb.local or verb.unless is not None
        assert (f"/v1/verbs/{verb.id}" in found["paths"]) is offered


def invent(schema: dict[str, Any], known: dict[str, Any], dice: random.Random, depth: int = 0) -> Any:
    """Any value that a schema allows, and at times one that it does not."""
    if dice.random() < 0.05:
        return dice.choice([None, True, -1, 1e308, 2**70, "x", [], {}, [[]], {"$gt": 1}])
    if "$ref" in schema:
        return invent(known[schema["$ref"].rpartition("/")[2]], known, dice, depth)
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if "anyOf" in schema:
        return invent(dice.choice(schema["anyOf"]), known, dice, depth)
    kind = schema.get("type") or dice.choice(["string", "object", "integer", "array"])
    if kind == "object":
        fields = schema.get("properties", {"a": {}, "text": {"type": "string"}} if depth < 3 else {})
        wanted = set(schema.get("required", ()))
        return {
            name: invent(each, known, dice, depth + 1)
            for name, each in fields.items()
            if name in wanted or dice.random() < 0.4
        }
    if kind == "array":
        return [invent(schema.get("items") or {}, known, dice, depth + 1) for _ in range(dice.randrange(3))]
    if kind == "integer":
        return dice.choice([0, 1, 2, 5, -1, 10**6, 2**62])
    if kind == "number":
        return dice.choice([0, 0.5, -1, 1e9])
    return {"boolean": dice.random() < 0.5, "null": None}.get(kind, dice.choice(TEXTS))


async def test_no_input_is_a_fault(tmp_path: Path) -> None:
    dice = random.Random(4)
    found = json.loads(openapi.document())
    known = found["components"]["schemas"]
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        server = await serve_universe(u, limits=Limits(rate=10**9, burst=10**9))
        client = Client(server, await token_for(u, "partner"))
        await client.post("/v1/blocks", {"label": "notes", "text": "one"})
        await client.put("/v1/data/note/a", {"data": {"n": 1}})
        await client.post("/v1/crumbs", {"text": "x"})
        for _ in range(times(4)):
            for path, methods in found["paths"].items():
                if "data.watch" in path or path == "/v1/changes":
                    continue  # it would not end
                for method, operation in methods.items():
                    address, query = path, []
                    for each in operation["parameters"]:
                        value = invent(each["schema"], known, dice)
                        text = value if isinstance(value, str) else json.dumps(value)
                        if each["in"] == "path":
                            address = address.replace(f"{{{each['name']}}}", quote(text or "-", safe=""))
                        elif each["required"] or dice.random() < 0.4:
                            query.append(f"{each['name']}={quote(text)}")
                    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                    given = b"" if body is None else json.dumps(invent(body["schema"], known, dice)).encode()
                    answer = await client.send(method.upper(), f"{address}?{'&'.join(query)}", given)
                    said = (method, address, query, given, answer)
                    assert answer.status < 500 or answer.status == 501, said
                    assert answer.status != 401, said
                    if address.endswith("data.undo") and answer.status == 200:
                        client = Client(server, await token_for(u, "partner"))  # it may have undone the first
        assert (await client.get("/v1/status")).status == 200
