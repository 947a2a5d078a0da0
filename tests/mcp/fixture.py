"""A server with the tools, resources and prompts that the conformance suite asks for, on dgent's transport.

The suite fixes their names and texts. They show what the transport carries; dgent's own are in its door.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext

from dgent.doors.mcp.serve import serve_http

Request = ServerRequestContext[Any, Any]


def _png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b"")).decode()


def _wav() -> str:
    form = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", 0)
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(form)) + form).decode()


PNG = _png()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def resource(uri: str, kind: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


FIXED: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": _wav(), "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}
"""Tools that always answer the same."""

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


async def log(request: Request, _given: dict[str, Any]) -> str:
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await request.session.send_log_message("info", message, related_request_id=request.request_id)
        await asyncio.sleep(0.05)
    return "done"


async def progress(request: Request, _given: dict[str, Any]) -> str:
    for part in (0, 50, 100):
        await request.session.report_progress(part, 100)
        await asyncio.sleep(0.05)
    return "done"


async def sample(request: Request, given: dict[str, Any]) -> str:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=given["prompt"]))
    answer = await request.session.create_message(
        [asked], max_tokens=100, related_request_id=request.request_id
    )
    return f"LLM response: {getattr(answer.content, 'text', '')}"


def _asks(message: str, properties: dict[str, Any], required: list[str]) -> Callable[..., Awaitable[str]]:
    async def ask(request: Request, given: dict[str, Any]) -> str:
        schema = {"type": "object", "properties": properties, "required": required}
        answer = await request.session.elicit_form(given.get("message", message), schema, request.request_id)
        return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"

    return ask


OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
ASKING: dict[str, Callable[..., Awaitable[str]]] = {
    "test_tool_with_logging": log,
    "test_tool_with_progress": progress,
    "test_sampling": sample,
    "test_elicitation": _asks(
        "", {"username": {"type": "string"}, "email": {"type": "string"}}, ["username", "email"]
    ),
    "test_elicitation_sep1034_defaults": _asks(
        "Who are you?",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
        [],
    ),
    "test_elicitation_sep1330_enums": _asks(
        "Choose.",
        {
            "untitledSingle": {"type": "string", "enum": OPTIONS},
            "titledSingle": {"type": "string", "oneOf": TITLED},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
            "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
        },
        [],
    ),
}
"""Tools that send something to the client before they answer."""

ARGUMENTS = {"test_sampling": "prompt", "test_elicitation": "message"}
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}
RESOURCES = {"test://static-text": "text/plain", "test://static-binary": "image/png"}


async def list_tools(_request: Request, _params: Any) -> types.ListToolsResult:
    schemas: dict[str, Any] = {name: {"type": "object"} for name in (*FIXED, *ASKING, "test_error_handling")}
    for name, argument in ARGUMENTS.items():
        schemas[name] = {
            "type": "object",
            "properties": {argument: {"type": "string"}},
            "required": [argument],
        }
    schemas["json_schema_2020_12_tool"] = SCHEMA
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=f"Answers for {name}.", input_schema=schema)
            for name, schema in schemas.items()
        ]
    )


async def call_tool(request: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name in ASKING:
        content = [text(await ASKING[params.name](request, params.arguments or {}))]
    else:
        error = text("This tool intentionally returns an error for testing")
        content = FIXED.get(params.name, [error])
    return types.CallToolResult.model_validate(
        {"content": content, "isError": params.name == "test_error_handling"}
    )


async def list_resources(_request: Request, _params: Any) -> types.ListResourcesResult:
    found = [{"uri": uri, "name": uri, "mimeType": kind} for uri, kind in RESOURCES.items()]
    return types.ListResourcesResult.model_validate({"resources": found})


async def list_templates(_request: Request, _params: Any) -> types.ListResourceTemplatesResult:
    template = {"uriTemplate": "test://template/{id}/data", "name": "data", "mimeType": "application/json"}
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def read_resource(
    _request: Request, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = params.uri
    id = uri.removeprefix("test://template/").removesuffix("/data")
    found: dict[str, Any] = {
        "test://static-text": {"text": "This is the content of the static text resource."},
        "test://static-binary": {"blob": PNG},
    }.get(uri, {"text": json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})})
    kind = RESOURCES.get(uri, "application/json")
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, "mimeType": kind, **found}]})


async def accept(_request: Request, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(_request: Request, _params: Any) -> types.ListPromptsResult:
    found = [
        {
            "name": name,
            "description": f"Answers for {name}.",
            "arguments": [{"name": each, "required": True} for each in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return types.ListPromptsResult.model_validate({"prompts": found})


async def get_prompt(_request: Request, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    content = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            resource(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    }[params.name]
    messages = [{"role": "user", "content": each} for each in content]
    return types.GetPromptResult.model_validate({"messages": messages})


async def complete(_request: Request, params: types.CompleteRequestParams) -> types.CompleteResult:
    found = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=found, total=len(found), has_more=False))


def server() -> Server[Any]:
    """The server of the suite."""
    return Server(
        "fixture",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
    )


if __name__ == "__main__":
    asyncio.run(serve_http(server(), 0, sys.argv[1], lambda url: print(url, flush=True)))
