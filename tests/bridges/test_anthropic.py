"""The memory tool of Anthropic's SDK on blocks, beside the SDK's own tool on files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.blocks import Library
from dgent.bridges.anthropic import DgentAsyncMemoryTool, DgentMemoryTool

ROOT = "/memories"


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[DgentMemoryTool]:
    made = DgentMemoryTool(f"sqlite:///{tmp_path}/store.db", wording="sdk")
    yield made
    made.close()


def call(tool: Any, command: str, **fields: Any) -> str:
    answer: str = tool.call({"command": command, **fields})
    return answer


def test_a_file_is_a_block_with_versions(tool: DgentMemoryTool, tmp_path: Path) -> None:
    call(tool, "create", path="/memories/notes/todo.md", file_text="one\ntwo\n")
    answer = call(tool, "str_replace", path="/memories/notes/todo.md", old_str="two", new_str="2")
    assert answer.endswith("     1\tone\n     2\t2\n     3\t")
    with dgent.sync.open(f"sqlite:///{tmp_path}/store.db") as u:
        from dgent.sync.blocks import Library as Blocks

        block = Blocks(u, "claude").get("memories/notes/todo.md")
        assert block.text() == "one\n2\n"
        assert [each.number for each in block.history()][-1] in (1, 2)
        block.rollback(1)
    assert "     2\ttwo" in call(tool, "view", path="/memories/notes/todo.md")


PATHS = st.sampled_from(["a", "b.md", "d/a", "d/b", "d/e/f", "d/e/g/h", "a/x", ".hidden", "x y", "d"])
LINES = st.lists(st.sampled_from(["one", "two", "", "a a", "end"]), max_size=4).map("\n".join)
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": LINES}),
    st.fixed_dictionaries(
        {
            "command": st.just("view"),
            "path": PATHS | st.just(""),
            "view_range": st.none() | st.lists(st.integers(-2, 6), min_size=2, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["one", "a", "\n", "zzz", "two\nend"]),
            "new_str": LINES,
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("insert"),
            "path": PATHS,
            "insert_line": st.integers(-1, 5),
            "insert_text": LINES,
        }
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS | st.just("")}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)


@given(st.lists(COMMANDS, max_size=14))
def test_it_answers_as_the_tool_on_files(
    tmp_path_factory: pytest.TempPathFactory, program: list[Any]
) -> None:
    files = BetaLocalFilesystemMemoryTool(str(tmp_path_factory.mktemp("files")))
    ours = DgentMemoryTool("memory:", wording="sdk")
    try:
        for command in program:
            given_ = {
                name: f"{ROOT}/{value}".rstrip("/") if name.endswith("path") else value
                for name, value in command.items()
                if value is not None
            }
            expected = answer_of(files, given_)
            if expected is None:  # the other tool raised an error of the system
                assert answer_of(ours, given_) is not None
                _tidy(files.memory_root)
                continue
            _tidy(files.memory_root)
            assert _plain(answer_of(ours, given_)) == _plain(expected), given_
    finally:
        ours.close()


def answer_of(tool: Any, given_: dict[str, Any]) -> str | None:
    try:
        return call(tool, **given_)
    except ToolError as error:
        return f"refused: {error}"
    except OSError:
        return None


def _tidy(folder: Path) -> None:
    """Remove empty directories: blocks have none."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _plain(answer: str | None) -> str | None:
    """Leave out the sizes of directories, which are those of a file system."""
    if answer is None or not answer.startswith("Here're the files"):
        return answer
    head, _, *lines = answer.split("\n")
    return "\n".join([head, *(re.sub(r"^\S+\t(.*/)$", r"\1", line) for line in lines)])


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "memories/a",
        "/memories/../a",
        "/memories/a/../../b",
        "/memoriesx",
        "/memories/..",
        "",
        "/",
    ],
)
def test_no_path_leads_out(tool: DgentMemoryTool, path: str) -> None:
    for command in ({"command": "view"}, {"command": "create", "file_text": "x"}, {"command": "delete"}):
        with pytest.raises(ToolError, match=r"must start with|would escape"):
            call(tool, **command, path=path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\ud800"])
def test_names_that_cannot_be_labels(tool: DgentMemoryTool, name: str) -> None:
    with pytest.raises(ToolError):
        call(tool, "create", path=f"{ROOT}/{name}", file_text="x")


@pytest.mark.parametrize(
    "name", ["ä/ö", "%2e%2e", "a\\b", "-rf", "~", "~0/~1", "a b", "📝.md", "CON", "a" * 200]
)
def test_odd_names_are_names(tool: DgentMemoryTool, name: str) -> None:
    call(tool, "create", path=f"{ROOT}/{name}", file_text="found")
    assert call(tool, "view", path=f"{ROOT}/{name}").endswith("     1\tfound")
    call(tool, "delete", path=f"{ROOT}/{name}")
    with pytest.raises(ToolError, match="does not exist"):
        call(tool, "view", path=f"{ROOT}/{name}")


def test_a_file_of_many_lines(tool: DgentMemoryTool) -> None:
    call(tool, "create", path=f"{ROOT}/long", file_text="x\n" * 999_997)
    call(tool, "insert", path=f"{ROOT}/long", insert_line=999_997, insert_text="end")
    assert call(tool, "view", path=f"{ROOT}/long", view_range=[999_998, -1]).endswith("999998\tend\n999999\t")
    call(tool, "insert", path=f"{ROOT}/long", insert_line=0, insert_text="begin")
    with pytest.raises(ToolError, match="exceeds maximum line limit"):
        call(tool, "view", path=f"{ROOT}/long")


def test_documented_words(tmp_path: Path) -> None:
    tool = DgentMemoryTool("memory:")
    call(tool, "create", path=f"{ROOT}/a", file_text="1")
    assert "excluding hidden items and node_modules:\n" in call(tool, "view", path=ROOT)
    for command, text in (
        (
            {"command": "create", "path": f"{ROOT}/a", "file_text": ""},
            "Error: File /memories/a already exists",
        ),
        ({"command": "delete", "path": f"{ROOT}/b"}, "Error: The path /memories/b does not exist"),
        (
            {"command": "insert", "path": f"{ROOT}/a", "insert_line": 9, "insert_text": ""},
            "Error: Invalid `insert_line` parameter: 9. "
            "It should be within the range of lines of the file: [0, 1]",
        ),
    ):
        with pytest.raises(ToolError) as refused:
            call(tool, **command)
        assert str(refused.value) == text
    tool.close()


async def test_the_asynchronous_tool_and_other_blocks(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        await Library(u, "scout").create("persona", text="I stay as I am.")
        tool = DgentAsyncMemoryTool(u, "scout")
        await tool.call({"command": "create", "path": f"{ROOT}/a", "file_text": "x"})
        assert "persona" not in str(await tool.call({"command": "view", "path": ROOT}))
        assert await tool.clear_all_memory() == "All memory cleared"
        assert [each.label for each in await Library(u, "scout").list()] == ["persona"]
        assert await (await Library(u, "scout").restore("memories/a")).text() == "x"
        await tool.close()


def test_many_threads_edit_one_file(tool: DgentMemoryTool) -> None:
    """Each edit that is answered is in the file, whoever else edits it."""
    call(tool, "create", path=f"{ROOT}/list", file_text="".join(f"item {n};\n" for n in range(24)))

    def tick(n: int) -> None:
        call(tool, "str_replace", path=f"{ROOT}/list", old_str=f"item {n};", new_str=f"done {n};")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(tick, range(24)))
    shown = call(tool, "view", path=f"{ROOT}/list")
    assert all(f"done {n};" in shown for n in range(24)) and "item" not in shown


def test_a_range_without_lines_is_shown_as_the_tool_on_files_does(tool: DgentMemoryTool) -> None:
    call(tool, "create", path="/memories/a", file_text="one")
    answer = call(tool, "view", path="/memories/a", view_range=[0, 0])
    assert answer == "Here's the content of /memories/a with line numbers:\n"
