"""Models of providers, through pydantic-ai's direct interface. The only file that imports it.

One call is one request: the provider's own retries are off, since dgent's are above, where budgets are.
A thought keeps its provider as its name and its id as its call, because both have to go back with its
signature, and only to the provider that signed it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import msgspec

from dgent.errors import (
    ConfigError,
    ContextTooLong,
    DgentError,
    InputError,
    ModelFailed,
    ModelRefused,
    ModelThrottled,
    Unsupported,
)
from dgent.messages.part import Part
from dgent.runtime.model.call import (
    CallDelta,
    Delta,
    ModelCall,
    Piece,
    Reply,
    Settings,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    Turn,
    read_arguments,
)
from dgent.runtime.model.cost import find_cost
from dgent.runtime.model.redact import redact

try:
    from pydantic_ai import exceptions as failures
    from pydantic_ai import messages as wire
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.models import Model as ForeignModel
    from pydantic_ai.models import ModelRequestParameters, infer_model
    from pydantic_ai.providers import Provider, infer_provider_class
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
except ImportError as error:
    raise Unsupported(
        f"models of providers need a package that is not installed: {error.name}",
        hint="pip install 'dgent[agent]'",
    ) from None

MAX_SAID = 500
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9_]*_KEY)`")


class ProviderModel:
    """A model of a provider, as `anthropic:claude-sonnet-5-5`.

    With a `base_url`, `openai:` speaks chat completions, which is what compatible servers have.
    """

    def __init__(
        self, name: str, *, key: str | None = None, base_url: str | None = None, model: Any = None
    ) -> None:
        self.name = name
        self._secrets = (key,) if key else ()
        self._model: ForeignModel = model or _build(name, key, base_url)
        self._entered = False

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Send one request and yield its answer as it arrives."""
        if not self._entered:
            self._entered = True
            await self._model.__aenter__()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.settings.timeout_s
        try:
            async with model_request_stream(
                self._model,
                _write_messages(call),
                model_settings=_write_settings(call.settings),
                model_request_parameters=_write_parameters(call),
                instrument=False,
            ) as answer:
                names: dict[int, str] = {}
                events = aiter(answer)
                while True:
                    # Around each wait, not around the yield: a timeout may not outlive its task's frame.
                    async with asyncio.timeout_at(deadline):
                        event = await anext(events, None)
                    if event is None:
                        break
                    for delta in _read_event(event, names):
                        yield delta
                reply = self._read_reply(answer.get())
            yield reply
        except TimeoutError:
            raise ModelFailed(
                f"{self.name} did not finish within {call.settings.timeout_s:g} s", model=self.name
            ) from None
        except (DgentError, Warning):
            raise
        except Exception as error:  # the packages of providers raise errors of their own as well
            raise map_error(error, self.name, self._secrets) from error

    async def close(self) -> None:
        """Close the connections to the provider."""
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    def _read_reply(self, response: wire.ModelResponse) -> Reply:
        usage, told = response.usage, (response.provider_details or {}).get("finish_reason")
        # Where a compatible server says neither why it stopped nor what it used, its stream was cut:
        # the layer below takes that for a stop.
        ended = response.finish_reason if told or usage.output_tokens else None
        if response.state != "complete" or ended is None:
            raise ModelFailed(f"{self.name} broke off its answer", model=self.name)
        counted = TokenUsage(
            usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens
        )
        return Reply(
            tuple(_read_parts(response)),
            msgspec.structs.replace(counted, cost=find_cost(self.name, counted, response.model_name)),
            ended,
            self.name,
        )


def _build(name: str, key: str | None, base_url: str | None) -> ForeignModel:
    def make(provider: str) -> Provider[Any]:
        given: dict[str, Any] = {"api_key": key, "base_url": base_url}
        return infer_provider_class(provider)(**{each: value for each, value in given.items() if value})

    asked = "openai-chat:" + name[7:] if base_url and name.startswith("openai:") else name
    try:
        return infer_model(asked, make)
    except ImportError as error:
        raise Unsupported(
            f"the provider of {name!r} needs a package that is not installed: {error}",
            hint="install the extra of pydantic-ai-slim that the message names",
        ) from None
    except ValueError as error:
        raise InputError(f"{name!r} is not the name of a model: {error}", field="model") from None
    except (failures.UserError, TypeError) as error:
        said = str(error)
        if key is None and _VARIABLE.search(said):
            raise ConfigError(f"{name} needs a key, and there is none", hint=_hint_key(name, said)) from None
        raise ConfigError(f"{name!r} cannot be used: {redact(said, (key or '',))}") from None


def _hint_key(name: str, said: str = "") -> str:
    """Return where the key of a model comes from: the variable that a message names, or the usual one."""
    found = _VARIABLE.search(said)
    usual = f"{name.partition(':')[0].partition('-')[0].upper()}_API_KEY"
    return f"set {found[1] if found else usual}, or key in the settings of the agent"


# -- what is sent ---------------------------------------------------------------------------


def _write_settings(settings: Settings) -> ModelSettings:
    made: dict[str, Any] = {"max_retries": 0, "timeout": settings.timeout_s, **settings.extra}
    if settings.cache:
        made["cache"] = True
    if settings.stop:
        made["stop_sequences"] = list(settings.stop)
    for field in ("max_tokens", "temperature", "thinking"):
        value = getattr(settings, field)
        if value is not None:
            made[field] = value
    return cast(ModelSettings, made)


def _write_parameters(call: ModelCall) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool["name"],
                description=tool.get("description"),
                parameters_json_schema=dict(tool.get("parameters") or {"type": "object", "properties": {}}),
            )
            for tool in call.tools
        ],
        instruction_parts=[wire.InstructionPart(part.text, dynamic=not part.stable) for part in call.system],
    )


def _write_messages(call: ModelCall) -> list[wire.ModelMessage]:
    """Return the history as the provider's layer has it: neighbours of one side are one message."""
    written: list[wire.ModelMessage] = []
    names = {
        part.call: part.name for turn in call.messages for part in turn.parts if part.type == "tool_call"
    }
    for turn in call.messages:
        last = written[-1] if written else None
        if turn.role == "assistant":
            said = list(_write_answer(turn))
            if isinstance(last, wire.ModelResponse):
                last.parts = [*last.parts, *said]
            elif said:
                written.append(wire.ModelResponse(parts=said))
            continue
        asked = list(_write_request(turn, call, names))
        if isinstance(last, wire.ModelRequest):
            last.parts = [*last.parts, *asked]
        elif asked:
            written.append(wire.ModelRequest(parts=asked))
    return written


def _write_answer(turn: Turn) -> Iterator[wire.ModelResponsePart]:
    for part in turn.parts:
        if part.type == "text" and part.text:
            yield wire.TextPart(part.text)
        elif part.type == "thinking":
            yield wire.ThinkingPart(
                part.text,
                id=part.call or None,
                signature=part.signature or None,
                provider_name=part.name or None,
            )
        elif part.type == "tool_call":
            arguments = part.arguments if isinstance(part.arguments, dict) else {}
            yield wire.ToolCallPart(part.name, arguments, tool_call_id=part.call)


def _write_request(turn: Turn, call: ModelCall, names: dict[str, str]) -> Iterator[wire.ModelRequestPart]:
    content: list[wire.UserContent] = []
    for part in turn.parts:
        if part.type == "tool_result":
            yield wire.ToolReturnPart(
                tool_name=part.name or names.get(part.call, "tool"),
                content=part.text,
                tool_call_id=part.call,
                outcome="failed" if part.error else "success",
            )
        elif part.type in ("image", "blob") and part.blob in call.blobs:
            content.append(wire.BinaryContent(call.blobs[part.blob], media_type=part.media_type))
        elif part.type in ("image", "blob"):
            content.append(f"[{part.type} {part.name or part.blob}]")
        elif part.type == "text" and part.text:
            # A system message amid the history would move to the instructions, and change the cached prefix.
            content.append(f"[system] {part.text}" if turn.role == "system" else part.text)
    if content:
        alone = content[0] if len(content) == 1 else None
        yield wire.UserPromptPart(alone if isinstance(alone, str) else content)


# -- what comes back ------------------------------------------------------------------------


def _read_event(event: Any, names: dict[int, str]) -> Iterator[Delta]:
    if isinstance(event, wire.PartStartEvent):
        part = event.part
        if isinstance(part, wire.TextPart) and part.content:
            yield TextDelta(part.content)
        elif isinstance(part, wire.ThinkingPart) and part.content:
            yield ThinkingDelta(part.content)
        elif isinstance(part, wire.ToolCallPart):
            names[event.index] = part.tool_call_id
            yield CallDelta(part.tool_call_id, part.tool_name, _show(part.args))
    elif isinstance(event, wire.PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, wire.TextPartDelta) and delta.content_delta:
            yield TextDelta(delta.content_delta)
        elif isinstance(delta, wire.ThinkingPartDelta) and delta.content_delta:
            yield ThinkingDelta(delta.content_delta)
        elif isinstance(delta, wire.ToolCallPartDelta) and delta.args_delta:
            call = names.get(event.index, delta.tool_call_id or "")
            yield CallDelta(call, "", _show(delta.args_delta))


def _show(arguments: Any) -> str:
    if not arguments:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _read_parts(response: wire.ModelResponse) -> Iterator[Part]:
    for part in response.parts:
        if isinstance(part, wire.TextPart):
            if part.content:
                yield Part("text", part.content)
        elif isinstance(part, wire.ThinkingPart):
            yield Part(
                "thinking",
                part.content,
                call=part.id or "",
                name=part.provider_name or "",
                signature=part.signature or "",
            )
        elif isinstance(part, wire.ToolCallPart):
            arguments = part.args if isinstance(part.args, dict) else read_arguments(part.args or "")
            yield Part("tool_call", call=part.tool_call_id, name=part.tool_name, arguments=arguments)


def map_error(error: Exception, name: str, secrets: tuple[str, ...] = ()) -> ModelFailed:
    """Return the error of a provider as one of dgent's, without keys."""
    said = redact(str(error), secrets)[:MAX_SAID] or type(error).__name__
    status = getattr(error, "status_code", None)
    details: dict[str, Any] = {"model": name, "status": status}
    if isinstance(error, failures.ModelRateLimitError | failures.ModelOverloadedError):
        return ModelThrottled(f"{name} is busy: {said}", retry_s=error.retry_after, **details)
    if isinstance(error, failures.ModelContextWindowExceededError):
        return ContextTooLong(f"the request is too long for {name}: {said}", **details)
    if isinstance(error, failures.ModelAuthenticationError):
        return ModelRefused(f"{name} does not take this key: {said}", hint=_hint_key(name), **details)
    if isinstance(
        error,
        failures.ModelRequestRejectedError
        | failures.ModelQuotaExceededError
        | failures.ContentFilterError
        | failures.UserError,
    ):
        return ModelRefused(f"{name} refused the request: {said}", **details)
    if isinstance(error, failures.ModelAPIError):
        return ModelFailed(f"{name} failed: {said}", retry_s=error.retry_after, **details)
    return ModelFailed(f"{name} sent an answer that cannot be read: {said}", **details)
