"""Blobs, telemetry and the membrane without an event loop: the same names, and every call blocks."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from dgent import membrane as waiting
from dgent import sync
from dgent.errors import Busy, NotFound
from dgent.store.port.telemetry import TelemetryEvent
from dgent.sync import membrane as blocking
from dgent.sync.membrane import CLISessionService, Instances, Membrane, SelfGrow, Shape
from dgent.sync.storage import BlobStore, ITelemetryStore
from dgent.universe.machine import machine_of


def test_blobs_are_streamed(u: sync.Universe) -> None:
    blobs = u.storage.blob
    assert isinstance(blobs, BlobStore)
    assert blobs.put("a", b"12345").size == 5 and blobs.get("a") == b"12345"
    with blobs.open("b", "w", content_type="text/plain") as writer:
        writer.write(b"abc")
        writer.write(part for part in (b"d", b"e"))
    assert writer.info is not None and writer.info.content_type == "text/plain"
    with blobs.open("b", start=1, end=3) as reader:
        assert reader.read() == b"bc" and reader.info.size == 5
    with blobs.open("a") as reader:
        assert b"".join(reader) == b"12345"
    assert [info.key for info in blobs.iterate()] == ["a", "b"] and blobs.list("b")[0].key == "b"
    with pytest.raises(NotFound), blobs.open("nobody"):
        pass
    assert blobs.delete("a") and not blobs.exists("a")


def test_telemetry_is_appended_and_found(u: sync.Universe) -> None:
    telemetry = u.storage.telemetry
    missing = {name for name in dir(ITelemetryStore) if not name.startswith("_")} - set(dir(telemetry))
    assert not missing and not inspect.iscoroutinefunction(telemetry.append)
    assert telemetry.append([TelemetryEvent("span", trace_id="t")]) == 1
    assert [event.kind for event in telemetry.query(trace="t")] == ["span"] and telemetry.count() == 1


def test_ports_obey_the_storage_machine(u: sync.Universe) -> None:
    u.storage.relational.execute("CREATE TABLE IF NOT EXISTS one (n INTEGER)")
    machine = machine_of(u._source)
    block = machine.migrating()
    u._home.begin().run(block.__aenter__)
    try:
        for call in (
            lambda: u.storage.relational.fetch_all("SELECT 1"),
            lambda: u.storage.blob.put("a", b""),
        ):
            with pytest.raises(Busy):
                call()
    finally:
        u._home.begin().run(block.__aexit__, None, None, None)
    assert u.storage.relational.fetch_all("SELECT n FROM one") == []
    u.storage.relational.execute("DROP TABLE one")


def test_the_membrane_has_the_same_names_and_methods() -> None:
    assert blocking.__all__ == waiting.__all__
    for name in ("Membrane", "Instances", "SelfGrow", "CLISessionService"):
        ours, theirs = getattr(blocking, name), getattr(waiting, name)
        assert ours.__module__ == "dgent.sync.membrane"
        for method, function in inspect.getmembers(theirs, inspect.isfunction):
            if not method.startswith("_"):
                assert not inspect.iscoroutinefunction(getattr(ours, method))
                assert list(inspect.signature(getattr(ours, method)).parameters) == list(
                    inspect.signature(function).parameters
                )


def test_sessions_instances_and_proposals(u: sync.Universe) -> None:
    room = Membrane(u)
    room.put(Shape(id="s", shape_type="wave", observed_at=datetime.now(UTC)))
    changed = room.change(Shape, "s", lambda shape: [shape])
    assert changed is not None and [shape.id for shape in room.list(Shape)] == ["s"]
    with Instances(u).running() as instance:
        assert [each.id for each in Instances(u).list()] == [instance.id]
    service = CLISessionService(u)
    session = service.start_session(name="work")
    service.log_event(session.id, "command", "shell", "look")
    assert len(service.get_session_events(session.id)) >= 1
    service.close()
    assert u.exists("nobody") is False  # a service that was given a universe leaves it open
    assert SelfGrow(u).propose("scout", {"prompt": "look"}).entity == "scout"


def test_a_service_with_its_own_store() -> None:
    with blocking.create_cli_session_service("memory:") as service:
        session = service.start_session()
        assert service.end_session(session.id)
        assert service.get_session(session.id).ended_at is not None
    with pytest.raises(Exception, match="closed"):
        service.list_sessions()
