"""Spans of the real OpenTelemetry SDK become events that can be found and added up."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

import dgent
from dgent.bridges.otel import DgentSpanExporter
from dgent.store.port.telemetry import Usage
from dgent.universe.telemetry import telemetry_of

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m1",
    "gen_ai.response.model": "m1-2026",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cost": 0.5,
}


def _provider(exporter: DgentSpanExporter, batch: bool) -> TracerProvider:
    provider = TracerProvider(resource=Resource({"service.name": "scout", "service.instance.id": "i1"}))
    provider.add_span_processor(BatchSpanProcessor(exporter) if batch else SimpleSpanProcessor(exporter))
    return provider


def test_a_trace_is_found_and_its_tokens_are_counted(store_path: Path) -> None:
    """Ids, parents, times and attributes are those of the span; the agent's span is not counted twice."""
    url = f"sqlite:///{store_path / 'x.db'}"
    provider = _provider(DgentSpanExporter(url), batch=True)
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span(
        "run", attributes={**CALL, "gen_ai.operation.name": "invoke_agent"}
    ) as run:
        with tracer.start_as_current_span("chat m1", attributes=CALL) as chat:
            chat.set_attribute("dgent.datum_id", "plan")
            chat.add_event("first token", {"n": 1})
        with (
            pytest.raises(ValueError, match="no such file"),
            tracer.start_as_current_span("execute_tool grep", attributes={"gen_ai.tool.name": "grep"}),
        ):
            raise ValueError("no such file")
    provider.shutdown()

    async def read() -> None:
        async with dgent.open(url) as u:
            store = telemetry_of(u)
            trace = f"{run.get_span_context().trace_id:032x}"
            events = {event.data["name"]: event for event in await store.query(trace=trace)}
            assert set(events) == {"run", "chat m1", "execute_tool grep"}
            found = events["chat m1"]
            assert found.span_id == f"{chat.get_span_context().span_id:016x}"
            assert found.parent_id == events["run"].span_id
            assert (found.kind, found.agent, found.instance_id) == ("span", "scout", "i1")
            assert found.data["gen_ai.request.model"] == "m1" and found.data["duration_us"] >= 0
            assert found.data["events"] == [{"name": "first token", "n": 1}]
            assert events["execute_tool grep"].data["status"] == "error"
            assert await store.usage(by=["model", "tool"]) == [
                Usage(1, 0, 0, 0.0, tool="grep"),
                Usage(1, 100, 20, 0.5, model="m1-2026"),
            ]
            await u.forget("plan")
            assert len(await store.query(trace=trace)) == 2

    asyncio.run(read())


def test_odd_spans_do_not_cost_their_batch(store_path: Path) -> None:
    """Values that JSON cannot hold become text, and what is too large is cut or named."""
    exporter = DgentSpanExporter(f"sqlite:///{store_path / 'x.db'}")
    provider = _provider(exporter, batch=False)
    tracer = provider.get_tracer("test")
    odd: dict[str, Any] = {"nan": float("nan"), "huge": 2**70, "long": "x" * 100_000, "list": ("a", "b")}
    tracer.start_span("odd", attributes=odd).end()
    tracer.start_span("big", attributes={f"k{n}": "y" * 40_000 for n in range(60)}).end()
    tracer.start_span("bad text", attributes={"t": "\ud800"}).end()

    async def read() -> list[Any]:
        return await exporter._store.query()

    data = {event.data["name"]: event.data for event in asyncio.run(read())}
    assert (data["odd"]["nan"], data["odd"]["huge"]) == ("nan", str(2**70))
    assert len(data["odd"]["long"]) == 32_768 and data["odd"]["list"] == ["a", "b"]
    assert "bytes" in data["big"]["refused"]
    assert "surrogate" in data["bad text"]["refused"]
    provider.shutdown()


def test_a_store_that_fails_does_not_fail_the_program(
    store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the traced program goes on."""
    provider = _provider(DgentSpanExporter(f"sqlite:///{store_path}/nowhere/x.db"), batch=False)
    with caplog.at_level(logging.WARNING, "dgent.otel"):
        provider.get_tracer("test").start_span("x").end()
    assert "1 spans could not be stored" in caplog.text
    provider.shutdown()
