"""Every verb is at every door, says the same there, and fails by the one table."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.config import settings
from dgent.config.places import make_private
from dgent.errors import DgentError
from dgent.exchange import backup, export
from dgent.store.sqlite import kernel
from dgent.verbs import path as paths
from dgent.verbs import registry
from dgent.verbs.caller import ALLOWED, Caller, Trust
from dgent.verbs.context import Context
from dgent.verbs.field import VerbField, fields_of
from dgent.verbs.index import MODULES, NOUNS, SHORT
from dgent.verbs.outcome import outcome_of
from tests.cli.terminal import Terminal
from tests.http.client import Client, serve_universe
from tests.verbs.case import Case
from tests.verbs.cases import CASES, TOKEN, fill, fill_disputed, fill_folder
from tests.verbs.cupboard_cases import fill_crumbs
from tests.verbs.foreign_cases import fill_foreign
from tests.verbs.membrane_cases import fill_legacy

EACH = [pytest.param(id, case, id=f"{id}-{number}") for id in CASES for number, case in enumerate(CASES[id])]
MOVE_AT = kernel.MOVE_AT
VISITOR = Caller("test", None, "partner")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


async def prepare(base: Path) -> None:
    """A filled store, an export of it, a backup of it, and a folder: what every stage is a copy of."""
    store, side = base / "store", base / "side"
    make_private(store)
    side.mkdir()
    await fill(store / "membrane.db")
    async with dgent.open(f"sqlite:///{store}/membrane.db") as u:
        lines: list[bytes] = []
        await export.export(u, lines.append, query=dgent.Query(schema="note", limit=None))
        (side / "exported").write_bytes(b"".join(lines))
        await backup.backup(u, store, side / "backup")
    await fill_folder(side / "folder")
    await fill_disputed(side / "disputed")
    fill_crumbs(side / "crumbs")
    fill_legacy(side / "legacy")
    fill_foreign(side / "foreign")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("prepared")
    kernel.MOVE_AT = 1  # no entries are left for each of two thousand openings to read
    asyncio.run(prepare(base))
    kernel.MOVE_AT = MOVE_AT
    return base


@pytest.fixture(scope="session")
def reading_room(prepared: Path) -> Path:
    """A home that all cases share that only read."""
    home = prepared / "room"
    store = home / ".local/share/dgent/constellations/default"
    make_private(store.parent)
    shutil.copytree(prepared / "store", store)
    return home


def only_reads(id: str, case: Case) -> bool:
    """Tell whether a case leaves the store and all files as they were."""
    verb = registry.find(id)
    if verb.local or "{" in "".join(case.words):
        return False
    try:
        return verb.effect_of(registry.read_input(verb, case.args)) in ("help", "read")
    except DgentError:  # it is refused before anything is opened
        return True


class Stage:
    """A home with a filled default constellation, an export of it and a backup of it.

    It is made anew for each door. Cases that only read share one home.
    """

    def __init__(self, base: Path, prepared: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.base, self.prepared, self.room = base, prepared, room
        self.terminal, self._monkeypatch = Terminal(base / "home", monkeypatch), monkeypatch
        self.made = 0

    def set(self, id: str, case: Case) -> dict[str, str]:
        """Have everything that a case names as at the start; return what stands for its names."""
        if not only_reads(id, case):
            return self.fresh(case)
        self.terminal = Terminal(self.room, self._monkeypatch)
        return {}

    def fresh(self, case: Case) -> dict[str, str]:
        """Make everything that a case names anew; return what stands for its names."""
        self.made += 1
        home = self.base / "home"
        shutil.rmtree(home, ignore_errors=True)
        self.terminal = Terminal(home, self._monkeypatch)
        side = self.base / f"side{self.made}"
        make_private(self.terminal.store.parent.parent)
        shutil.copytree(self.prepared / "store", self.terminal.store.parent)
        side.mkdir()
        asked = repr(case)
        for source in (self.prepared / "side").iterdir():
            if f"{{{source.name}}}" in asked:
                (shutil.copytree if source.is_dir() else shutil.copy)(source, side / source.name)
        names = ("new", "exported", "backup", "folder", "disputed", "crumbs", "legacy", "foreign")
        return {name: str(side / name) for name in names}


@pytest.fixture
def stage(store_path: Path, prepared: Path, reading_room: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(store_path, prepared, reading_room, monkeypatch)


def named(value: Any, names: dict[str, str]) -> Any:
    """A case with its paths filled in."""
    if isinstance(value, str):
        for name, path in names.items():
            value = value.replace(f"{{{name}}}", path)
        return value
    if isinstance(value, dict):
        return {key: named(item, names) for key, item in value.items()}
    return type(value)(named(item, names) for item in value) if isinstance(value, list | tuple) else value


def plain(answer: Any, base: Path) -> Any:
    """An answer without what differs from run to run: times, and where the test's folders are."""
    text = msgspec.json.encode(answer).decode()
    text = _TIME.sub("T", text).replace(str(base), "BASE")
    text = re.sub(r"side\d+", "side", text)
    text = re.sub(r'"(size_bytes|wal_bytes)":\d+', r'"\1":0', text)
    text = re.sub(r'"(sha256|cursor)":"[\w=-]+"', r'"\1":""', text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\b(cli|evt|prop|seed|roll)_[0-9a-f]{12}", r"\1_ID", text)
    text = re.sub(r"\bdg-[0-9a-z]{4,}", "SHORT", text)
    text = re.sub(r"dgent_[a-z2-7]{12}_[\w-]{43}", "TOKEN", text)
    text = re.sub(r'"id":"[a-z2-7]{12}"', '"id":"TOKEN"', text)
    text = re.sub(r"\d+@\d+", "NODE", text)
    # Free space and the size of the log are said in words.
    text = re.sub(r"\d[\d.,]* (B|bytes|KB|MB|GB|TB|KiB|MiB|GiB|TiB|%|pages?)", "SIZE", text)
    return msgspec.json.decode(text)


def context_of(u: dgent.Universe, caller: Caller = VISITOR) -> Context:
    async def same() -> dgent.Universe:
        return u

    out: list[bytes] = []
    return Context(same, settings=settings.load(), caller=caller, out=out.append)


async def by_call(u: dgent.Universe, id: str, args: dict[str, Any]) -> Any:
    return await registry.call(registry.find(id), context_of(u), args)


async def by_path(u: dgent.Universe, id: str, args: dict[str, Any]) -> Any:
    return await paths.dispatch(context_of(u), f"self.{id}", args)


async def answer_inside(stage: Stage, id: str, case: Case) -> list[Any]:
    """Call a verb at both doors of this process, on one store where that changes nothing."""
    answers: list[Any] = []
    async with AsyncExitStack() as stores:
        for door in (by_call, by_path):
            if not answers or not only_reads(id, case):
                names = stage.set(id, case)
                u = await stores.enter_async_context(dgent.open(f"sqlite:///{stage.terminal.store}"))
            try:
                answers.append(plain(await door(u, id, named(case.args, names)), stage.base))
            except DgentError as error:
                assert error.code == case.error, error
                answers.append([error.code, outcome_of(error).exit, outcome_of(error).http])
    return answers


def by_http(stage: Stage, id: str, args: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async def call() -> tuple[int, dict[str, Any]]:
        async with dgent.open(f"sqlite:///{stage.terminal.store}", author="ann") as u:
            client = Client(await serve_universe(u, name="default"), TOKEN)
            answer = await client.post(f"/v1/verbs/{id}", args)
            return answer.status, answer.json

    return asyncio.run(call())


def test_every_verb_has_cases_and_a_noun() -> None:
    assert set(CASES) == set(MODULES)
    assert {id.partition(".")[0] for id in MODULES} == set(NOUNS)


def test_every_short_command_says_what_its_verb_says() -> None:
    assert {name: help for name, (_, help) in SHORT.items()} == {
        name: registry.find(id).help for name, (id, _) in SHORT.items()
    }


@pytest.mark.parametrize("verb", registry.every(), ids=lambda verb: verb.id)
def test_a_verb_is_whole(verb: registry.Verb, stage: Stage) -> None:
    assert verb.help.endswith(".") and len(verb.help) < 100
    assert verb.effect in ALLOWED["partner"]
    fields = {field.name: field for field in msgspec.structs.fields(verb.input)}
    hints = msgspec.json.schema(verb.input)["$defs"][verb.input.__name__]["properties"]
    assert all(hints[name].get("description") for name in fields), "each field is explained"
    assert msgspec.json.schema(verb.output), "its answer has a JSON schema"
    assert all(issubclass(error, DgentError) for error in verb.errors)
    noun, _, name = verb.id.partition(".")
    told = stage.terminal(noun, name, "--help")
    assert told.code == 0 and verb.help.split()[0] in told.out
    assert all(
        (field.name.upper().replace("_", "-") if field.place else f"--{field.option} ") in told.out
        for field in fields_of(verb, VerbField)
    )


@pytest.mark.parametrize(("id", "case"), EACH)
def test_the_same_at_every_door(id: str, case: Case, stage: Stage) -> None:
    answers = asyncio.run(answer_inside(stage, id, case))
    if not registry.find(id).local and not registry.find(id).streams:
        names = stage.set(id, case)
        status, answer = by_http(stage, id, named(case.args, names))
        if answer["ok"]:
            assert status == 200
            answers.append(plain(answer["data"], stage.base))
        else:
            assert case.error is not None, answer
            assert status == answers[0][2]
            answers.append([answer["code"], answers[0][1], status])
    names = stage.set(id, case)
    told = stage.terminal(*id.split("."), *named(case.words, names), "--json")
    if case.error is None:
        assert told.code == case.exit, told.err
        answers.append(plain(told.data, stage.base))
    else:
        assert not told.out
        answers.append([told.error["code"], told.code, answers[0][2]])
    for answer in answers[1:]:
        assert answer == answers[0]
    assert (case.error is None) == isinstance(answers[0], dict)


@pytest.mark.parametrize(("id", "case"), [param for param in EACH if param.values[1].error is None])
def test_people_get_an_answer_too(id: str, case: Case, stage: Stage) -> None:
    names = stage.set(id, case)
    told = stage.terminal(*id.split("."), *named(case.words, names))
    assert told.code == case.exit, told.err
    assert told.out.strip()
    assert "\x1b" not in told.out, "no colours when nobody watches"
    assert told.out.isascii()


@pytest.mark.parametrize("id", MODULES)
def test_trust_is_enforced_at_the_call(id: str, stage: Stage) -> None:
    verb = registry.find(id)
    cases = [case for case in CASES[id] if case.error is None]
    kept: list[tuple[Case, Trust]] = []  # what changes nothing is asked of one store
    for case, trust in itertools.product(cases, ALLOWED):
        if only_reads(id, case) or not _covers(trust, verb, case):
            kept.append((case, trust))
        else:
            names = stage.fresh(case)
            assert asyncio.run(_end_of_calls(stage, verb, [(case, trust)], names)) == ["done"]
    if kept:
        names = stage.fresh(Case({}, [word for case, _ in kept for word in case.words]))
        ends = ["done" if _covers(trust, verb, case) else "denied" for case, trust in kept]
        assert asyncio.run(_end_of_calls(stage, verb, kept, names)) == ends


async def _end_of_calls(
    stage: Stage, verb: registry.Verb, calls: list[tuple[Case, Trust]], names: dict[str, str]
) -> list[str]:
    """Call a verb as callers of some trust, and tell how each call ended."""
    ends: list[str] = []
    async with dgent.open(f"sqlite:///{stage.terminal.store}") as u:
        for case, trust in calls:
            args = registry.read_input(verb, named(case.args, names))
            try:
                await registry.call(verb, context_of(u, Caller("visitor", "eve", trust)), args)
            except dgent.Denied:
                ends.append("denied")
            else:
                ends.append("done")
    return ends


def _covers(trust: Trust, verb: registry.Verb, case: Case) -> bool:
    """Tell whether this trust is enough for a call."""
    effect = verb.effect_of(registry.read_input(verb, case.args))
    return effect in ALLOWED[trust] and (trust == "partner" or not (verb.local or verb.partner))
