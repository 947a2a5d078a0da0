"""Artifacts of ADK, beside its own service in memory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService, artifact_util
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

import dgent
from dgent.bridges.adk import DgentArtifactService
from tests.bridges.adk.place import ENGINES, NAMES, place
from tests.soak import times

FILES = ("f", "a/b.txt", "user:f", "user:", "../x", "é\0")


def make_part(choose: random.Random) -> Any:
    file = choose.choice(("f", "user:f", "missing"))
    session = None if file.startswith("user:") else choose.choice(("s", "t"))
    uri = artifact_util.get_artifact_uri("app", "ann", file, choose.randrange(3), session)
    return choose.choice(
        [
            types.Part(text=f"text {choose.random()}"),
            types.Part(text=""),
            types.Part(inline_data=types.Blob(data=b"\xff\0" * 9, mime_type="image/png", display_name="d")),
            types.Part(inline_data=types.Blob(data=b"", mime_type="application/octet-stream")),
            {"inlineData": {"data": "aGk=", "mimeType": "text/plain"}},
            types.Part(file_data=types.FileData(file_uri="gs://bucket/x", mime_type="a/b")),
            types.Part(file_data=types.FileData(file_uri=uri)),
            types.Part(file_data=types.FileData(file_uri=uri)),
            types.Part(file_data=types.FileData(file_uri="artifact://nonsense")),
            types.Part(function_call=types.FunctionCall(name="f")),
        ]
    )


async def act(service: BaseArtifactService, kind: str, arguments: dict[str, Any]) -> Any:
    try:
        found = await getattr(service, kind)(**arguments)
    except InputValidationError as error:
        return type(error).__name__
    return [*map(describe, found)] if isinstance(found, list) else describe(found)


def describe(value: Any) -> Any:
    """Return a description without its time and the beginning of its address, which differ."""
    if not hasattr(value, "canonical_uri"):
        return value
    return {
        **value.model_dump(exclude={"create_time"}),
        "canonical_uri": value.canonical_uri.partition("://")[2],
    }


def make_step(choose: random.Random) -> tuple[str, dict[str, Any]]:
    kind = choose.choice(
        ("save_artifact",) * 6
        + ("load_artifact",) * 4
        + ("list_artifact_keys", "delete_artifact", "list_versions", "list_artifact_versions")
        + ("get_artifact_version",) * 2
    )
    arguments: dict[str, Any] = {"app_name": "app", "user_id": "ann"}
    arguments["session_id"] = choose.choice(("s", "s", "t", None))
    if kind != "list_artifact_keys":
        arguments["filename"] = choose.choice(FILES[:4] if choose.random() < 0.9 else FILES)
    if kind in ("load_artifact", "get_artifact_version"):
        arguments["version"] = choose.choice((None, None, 0, 1, 2, -1, 99))
    if kind == "save_artifact":
        arguments["artifact"] = make_part(choose)
        arguments["custom_metadata"] = choose.choice((None, {}, {"k": [1, {"a": None}]}))
    return kind, arguments


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(times(3)))
async def test_random_programs(engine: str, seed: int, tmp_path: Path) -> None:
    choose = random.Random(f"{engine} {seed}")
    ours, theirs = DgentArtifactService(place(engine, tmp_path)), InMemoryArtifactService()
    for _ in range(80):
        kind, arguments = make_step(choose)
        expected = await act(theirs, kind, arguments)
        assert await act(ours, kind, arguments) == expected, (kind, arguments)
    await ours.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_names_of_any_kind_stay_apart(engine: str, tmp_path: Path) -> None:
    service = DgentArtifactService(place(engine, tmp_path))
    places = [
        {"app_name": app, "user_id": user, "session_id": session}
        for app, user, session in zip(NAMES, NAMES[::-1], reversed(NAMES[1:] + NAMES[:1]), strict=True)
    ]
    places += [{"app_name": "a", "user_id": "b", "session_id": name} for name in ("s", "s/t", "user", "~u")]
    for number, each in enumerate(places):
        for name in NAMES:
            part = types.Part(text=f"{number} {name}")
            assert await service.save_artifact(**each, filename=name, artifact=part) == 0
    for number, each in enumerate(places):
        assert await service.list_artifact_keys(**each) == sorted(NAMES)
        for name in NAMES:
            assert await service.load_artifact(**each, filename=name) == types.Part(text=f"{number} {name}")
    await service.aclose()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_savers_at_once_get_different_versions(engine: str, tmp_path: Path) -> None:
    url = place(engine, tmp_path)
    async with dgent.open(url) as u, dgent.open(url) as v:
        services = [DgentArtifactService(u), DgentArtifactService(v)]
        name = {"app_name": "app", "user_id": "ann", "session_id": "s", "filename": "f"}
        saved = await asyncio.gather(
            *(services[n % 2].save_artifact(**name, artifact=types.Part(text=f"{n}")) for n in range(20))
        )
        assert sorted(saved) == [*range(20)] == await services[0].list_versions(**name)
        for number, version in enumerate(saved):
            assert await services[1].load_artifact(**name, version=version) == types.Part(text=f"{number}")
        for service in services:
            await service.aclose()


async def test_a_restart_keeps_large_artifacts_and_search_finds_texts(tmp_path: Path) -> None:
    url, data = place("sqlite", tmp_path), random.Random(1).randbytes(3_000_000)
    name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    service = DgentArtifactService(url)
    blob = types.Part(inline_data=types.Blob(data=data, mime_type="image/png"))
    await service.save_artifact(**name, filename="large", artifact=blob)
    await service.save_artifact(**name, filename="user:report", artifact=types.Part(text="the lighthouse"))
    await service.aclose()
    async with dgent.open(url) as u:
        again = DgentArtifactService(u)
        assert await again.load_artifact(**name, filename="large") == blob
        assert (await u.search("lighthouse"))[0].datum.data["filename"] == "user:report"
        await again.delete_artifact(**name, filename="large")
        assert await again.list_artifact_keys(**name) == ["user:report"]
        await again.aclose()
