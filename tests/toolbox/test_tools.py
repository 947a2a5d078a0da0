"""Every tool: a flat schema made from its verbs, and operations that are those verbs."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from typing import Any

import msgspec
import pytest

import dgent
from dgent.blocks import Library
from dgent.doors.tools.answer import MOST_ANSWER, AnswerPart, report
from dgent.doors.tools.catalog import GROUPS, ROOMS, USUAL
from dgent.doors.tools.tool import tool_of
from dgent.doors.tools.toolbox import ToolCall, translate
from dgent.errors import InputError
from dgent.tools import Toolbox
from dgent.universe.gate import Principal
from dgent.verbs import registry
from dgent.verbs.caller import ALLOWED, Caller
from dgent.verbs.context import Context
from dgent.verbs.index import MODULES, SHORT
from tests.toolbox.tooling import minimal
from tests.verbs.case import Case
from tests.verbs.cases import CASES, fill

EVERY = [(name, operation) for name, group in GROUPS.items() for operation in group.operations]
OFFERS = {
    operation.verb.id: ToolCall(name, each, operation.fields)
    for name in GROUPS
    for each, operation in tool_of(name).operations.items()
}
_VARIES = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z|\d+@\d+"
    r"|dg-[0-9a-z]{4,}|\"cursor\": *\"[^\"]*\""
)


# -- schemas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GROUPS)
def test_schemas_are_flat_and_everything_is_explained(name: str) -> None:
    schema = tool_of(name).schema()
    assert set(schema) == {"name", "description", "parameters"} and schema["name"] == name
    assert 40 < len(schema["description"]) < 2500
    parameters = schema["parameters"]
    assert parameters["type"] == "object" and parameters["additionalProperties"] is False
    assert not {"$ref", "anyOf", "oneOf", "allOf", "$defs"} & {*json.dumps(schema).split('"')}
    for field, each in parameters["properties"].items():
        assert 5 < len(each["description"]) < 400, field
        assert set(each) <= {"type", "description", "enum", "items"}
        assert isinstance(each.get("type", ""), str)
        assert not re.search(r"--\w|standard input|dgent |more than once", each["description"]), field
    assert set(parameters["required"]) <= set(parameters["properties"])
    assert len(json.dumps(schema)) < 7_000, "it is in every prompt"


@pytest.mark.parametrize(("name", "operation"), EVERY)
def test_every_operation_is_explained_and_takes_what_its_verb_takes(name: str, operation: str) -> None:
    tool = tool_of(name)
    found = tool.operations[operation]
    known = {each.name for each in msgspec.structs.fields(found.verb.input)}
    assert set(found.fields) - {"offset"} <= known - set(found.use.hide)
    assert set(found.use.hide) | set(found.use.preset) | set(found.use.needs) <= known
    assert set(found.fields) <= set(tool.parameters)
    assert not found.verb.streams and not found.verb.local
    assert found.verb.effect_of(_least(found)) != "destroy", "that is the partner's own"
    if operation and GROUPS[name].says is None:
        assert f"\n{operation}: {found.verb.help}" in tool.description
    elif operation:
        assert re.search(rf"\b{operation}\b", GROUPS[name].about)


def test_the_tools_of_memory_take_little_of_a_prompt() -> None:
    tools = [tool_of(name).schema() for name in ("block", "block_edit", "archive", "search")]
    assert len(json.dumps(tools, ensure_ascii=False)) / 4 < 1_800, "tokens of four characters"


def _least(operation: Any) -> Any:
    given = {each: CASES[operation.verb.id][0].args.get(each, "x") for each in operation.needs}
    return registry.read_input(operation.verb, {**operation.use.preset, **given})


def test_every_verb_is_one_operation_at_most() -> None:
    """Beside those that the everyday tools offer once more."""
    for everyday in (False, True):
        groups = [group for group in GROUPS.values() if (group.room == "everyday") is everyday]
        verbs = [use.verb for group in groups for use in group.operations.values()]
        assert len(verbs) == len(set(verbs)) and set(verbs) <= set(MODULES)


# -- calls --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "membrane.db"
    asyncio.run(fill(path))
    return path.read_bytes()


def _given(case: Case, operation: Any) -> dict[str, Any] | None:
    """The arguments of a case; None for one that the tool does not take."""
    taken = set(operation.needs) <= set(case.args) <= set(operation.fields)
    return dict(case.args) if taken else None


@pytest.mark.parametrize(("name", "operation"), EVERY)
async def test_an_operation_answers_as_its_verb_does(
    name: str, operation: str, filled: bytes, tmp_path: Any
) -> None:
    found = tool_of(name).operations[operation]
    tried = 0
    for case in CASES[found.verb.id]:
        given = _given(case, found)
        if given is None:
            continue
        answers = []
        for door in ("verb", "tool"):
            path = tmp_path / f"{door}{tried}.db"
            path.write_bytes(filled)
            async with dgent.open(f"sqlite:///{path}", author="system") as u:
                if door == "tool":
                    arguments = {"operation": operation, **given} if operation else given
                    answers.append(await Toolbox(u, tools=[name]).call(name, msgspec.json.encode(arguments)))
                    continue
                try:
                    context = Context(lambda u=u: _same(u), caller=Caller("system", "system", "partner"))  # type: ignore[misc]
                    asked, part = found.read(msgspec.to_builtins(given))
                    answers.append(report(await registry.call(found.verb, context, asked), part, str))
                except dgent.DgentError as error:
                    answers.append({"ok": False, "code": error.code})
        tried += 1
        verb, tool = answers
        assert tool["ok"] is verb["ok"] is (case.error is None), tool
        if case.error is None:
            assert _plain(tool["data"]) == _plain(verb["data"])
        else:
            assert tool["data"]["code"] == verb["code"] == case.error
            assert "`dgent" not in tool["data"]["hint"] and "--" not in tool["data"]["hint"]
    assert tried, "a case of its verb fits it"


async def _same(u: dgent.Universe) -> dgent.Universe:
    return u


def _plain(data: Any) -> str:
    return _VARIES.sub("V", json.dumps(data))


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_trust_is_checked_at_every_operation(trust: Any) -> None:
    async with dgent.open("memory:") as u:
        box = Toolbox(u.acting(Principal("eve", trust)), tools=GROUPS)
        for name, operation in EVERY:
            found = tool_of(name).operations[operation]
            answer = await box.call(name, minimal(name, operation))
            least = minimal(name, operation)
            least.pop("operation", None)
            asked, _ = found.read(least)
            allowed = found.verb.effect_of(registry.read_input(found.verb, asked)) in ALLOWED[trust]
            denied = not answer["ok"] and answer["data"]["code"] == "denied"
            assert allowed or denied, (name, operation, answer)
            assert not (trust == "friend" and denied), (name, operation, answer)


# -- the toolbox --------------------------------------------------------------------------------


async def test_rooms_choose_the_tools() -> None:
    async with dgent.open("memory:", author="scout") as u:
        library = Library(u, agent="scout", trust="friend")
        blocks = ["block", "block_edit", "archive", "search"]

        def names(source: Any, **rooms: Any) -> list[str]:
            return [each["name"] for each in Toolbox(source, **rooms).schemas()]

        assert names(library) == blocks
        assert names(u) == names(library, rooms=USUAL) == [*blocks, "work", "data"]
        assert names(library, rooms=ROOMS) == [*blocks, "work", "data", "messages"]
        assert names(u, rooms=("data",)) == ["data"]
        assert Toolbox(u).library.agent == "scout" and Toolbox(library).library is library
        with pytest.raises(InputError, match="did you mean cupboard"):
            Toolbox(u, rooms=("cupbord",))
        with pytest.raises(InputError, match="Library or a Universe"):
            Toolbox("memory:")  # type: ignore[arg-type]
        answer = await Toolbox(u, rooms=("data",)).call("block", {"operation": "list"})
        assert not answer["ok"] and answer["data"]["hint"] == "use one of data"


async def test_a_tool_is_a_function_too() -> None:
    async with dgent.open("memory:", author="scout") as u:
        box = Toolbox(u)
        functions = box.functions()
        assert list(functions) == [name for name, group in GROUPS.items() if group.room in USUAL]
        for schema, (name, function) in zip(box.schemas(), functions.items(), strict=True):
            assert inspect.iscoroutinefunction(function) and function.__name__ == name
            signature = inspect.signature(function)
            assert list(signature.parameters) == list(schema["parameters"]["properties"])
            needed = [name for name, each in signature.parameters.items() if each.default is each.empty]
            assert needed == schema["parameters"]["required"]
            assert set(function.__annotations__) == {*signature.parameters, "return"}
            assert inspect.getdoc(function) == schema["description"]
        done = await functions["block"]("create", "persona", text="Always.")
        assert done["ok"] and done["data"]["label"] == "persona"
        assert (await functions["search"]("always"))["data"]["items"][0]["label"] == "persona"
        assert not (await functions["block"]("get", label="nobody"))["ok"]
        with pytest.raises(TypeError):
            await functions["block"]()


# -- hints and bounds ---------------------------------------------------------------------------


def _commands() -> list[str]:
    """Every command that a hint of a verb names."""
    found: set[str] = set()
    for module in {*MODULES.values(), "dgent.verbs.cupboard.input", "dgent.verbs.block.library"}:
        source = inspect.getsource(__import__(module, fromlist=["x"]))
        found |= set(re.findall(r"`(dgent [^`{}]+)`", source))
    return sorted(found)


@pytest.mark.parametrize("command", _commands())
def test_a_command_in_a_hint_becomes_a_call_or_is_left_out(command: str) -> None:
    text = translate(f"first; `{command}` helps", OFFERS)
    if text == "first":
        words = command.split()[1:]
        assert SHORT.get(words[0], (".".join(words[:2]),))[0] not in OFFERS
        return
    tool, _, arguments = text.split("`")[1].partition(" ")
    given = json.loads(arguments)
    assert set(given) <= set(tool_of(tool).parameters)
    assert given.get("operation", "") in tool_of(tool).operations


def test_hints_name_arguments_and_calls() -> None:
    assert translate("give --all or --drop-this", OFFERS) == "give all or drop_this"
    assert translate("`dgent block list --shared` shows them", OFFERS) == (
        '`block {"operation": "list", "shared": true}` shows them'
    )
    assert translate("`dgent crumb state ID ready` offers one", OFFERS) == (
        '`work {"operation": "state", "id": "ID", "state": "ready"}` offers one'
    )
    assert translate("see `dgent help x`", OFFERS) == ""


def test_an_answer_is_never_longer_than_its_bound() -> None:
    class Odd(msgspec.Struct):
        items: list[Any]
        more: dict[str, Any]

    wide = {f"key {n}": "v" * 500 for n in range(1000)}
    answer = report(Odd([wide] * 100, wide), AnswerPart(), str)
    assert answer["ok"] and answer["data"] is None and "too long" in answer["message"]
    answer = report(Odd([{"text": "t" * 5000}] * 100, {"x": ["y"] * 1000}), AnswerPart(), str)
    assert len(json.dumps(answer)) < MOST_ANSWER and "cut" in answer["message"]
    assert "go on with offset=50" in answer["message"] and len(answer["data"]["more"]["x"]) == 200


async def test_what_nobody_declared_is_found_by_the_tool() -> None:
    async with dgent.open("memory:", author="scout") as u:
        await u.remember({"action": "ship it"})
        await u.put(dgent.Datum("deed", data={"action": "ship two"}, schema="deed", schema_version=1))
        box = Toolbox(u, tools=("find",))
        answer = await box.call("find", {"words": "ships"})
        assert answer["ok"] and len(answer["data"]["items"]) == 2
