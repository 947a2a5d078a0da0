"""Export OpenTelemetry spans to the telemetry of a store: `pip install 'dgent[otel]'`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from dgent import clock
from dgent.errors import DgentError, InputError
from dgent.store.port.telemetry import ITelemetryStore, TelemetryEvent, rows_of
from dgent.store.registry import backend_for, telemetry_beside
from dgent.sync.runner import runner

R = TypeVar("R")

WAIT_S = 30.0
MAX_TEXT = 32_768  # letters of an attribute; a prompt may be as long as a book
_log = logging.getLogger("dgent.otel")


class DgentSpanExporter(SpanExporter):
    """Writes spans as events of the kind `span`, which `dgent telemetry` finds and adds up.

    It takes the URL of a store, beside which the telemetry is, or a telemetry store. Use it with the
    `BatchSpanProcessor` of OpenTelemetry: a batch is one append, made on a thread of dgent's.
    """

    def __init__(self, store: str | ITelemetryStore) -> None:
        self._store = telemetry_beside(backend_for(store)) if isinstance(store, str) else store

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Store spans; an error is logged and reported, never raised into the program that is traced."""
        try:
            _run(self._store.append([_fit(event_of_span(span)) for span in spans]))
        except (DgentError, TimeoutError) as error:
            _log.warning("%d spans could not be stored: %s", len(spans), error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: whatever was exported is stored."""
        return True

    def shutdown(self) -> None:
        """Close the telemetry store."""
        _run(self._store.close())


def event_of_span(span: ReadableSpan) -> TelemetryEvent:
    """Return the event of a span: its attributes under their own names, beside its name and duration.

    The attributes `dgent.datum_id` and `dgent.project_hash` become fields of the event.
    """
    context, start, end = span.get_span_context(), span.start_time or 0, span.end_time or 0
    assert context is not None, "a span that was recorded has a context"
    resource = span.resource.attributes
    data = _plain(span.attributes or {})
    data |= {
        "name": span.name,
        "duration_us": max(end - start, 0) // 1000,
        "status": span.status.status_code.name.lower(),
    }
    if span.status.description:
        data["status_text"] = span.status.description[:MAX_TEXT]
    if span.events:
        data["events"] = [{"name": each.name, **_plain(each.attributes or {})} for each in span.events]
    agent = data.get("gen_ai.agent.name") or resource.get("service.name")
    return TelemetryEvent(
        "span",
        clock.from_us(start // 1000),
        data,
        _text(resource.get("service.instance.id")),
        _text(data.get("dgent.project_hash") or resource.get("dgent.project_hash")),
        f"{context.span_id:016x}",
        f"{context.trace_id:032x}",
        None if span.parent is None else f"{span.parent.span_id:016x}",
        _text(agent),
        _text(data.get("dgent.datum_id")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): _value(value) for name, value in attributes.items()}


def _value(value: Any) -> Any:
    """Return the value of an attribute as JSON can hold it."""
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_value(each) for each in value]
    return str(value)[:MAX_TEXT]


def _fit(event: TelemetryEvent) -> TelemetryEvent:
    """Return an event that can be stored: one that cannot must not cost the others of its batch."""
    try:
        rows_of([event])
    except InputError as error:
        data = {"name": str(event.data["name"])[:200], "refused": error.message}
        return TelemetryEvent(
            event.kind, event.timestamp, data, span_id=event.span_id, trace_id=event.trace_id
        )
    return event


def _run(work: Coroutine[Any, Any, R]) -> R:
    """Run on dgent's own loop, and wait for it; OpenTelemetry calls from threads of its own."""
    return asyncio.run_coroutine_threadsafe(work, runner().loop).result(WAIT_S)
