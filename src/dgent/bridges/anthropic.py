"""The memory tool of Anthropic's SDK on blocks: `pip install 'dgent[anthropic]'`.

`/memories/notes/todo.md` is the block `memories/notes/todo.md` of an agent: with versions, undo, sharing and
merges, which files do not have.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from dgent import ids
from dgent.blocks import Library
from dgent.blocks.block import Block
from dgent.blocks.errors import BlockNotFound, LabelTaken, NoMatch
from dgent.errors import DgentError, InputError, VersionConflict
from dgent.sync.handle import Anywhere, anywhere
from dgent.universe.universe import Universe

ROOT = "/memories"
MAX_LINES = 999_999
MAX_CHARACTERS = 1 << 28
SHOWN_AROUND = 2  # lines before and after a changed one
ATTEMPTS = 64  # at an edit that others change the file under

Wording: TypeAlias = Literal["documented", "sdk"]


class Texts(NamedTuple):
    """The answers that differ between the tool's documentation and the SDK's own tool."""

    hidden: str
    prefix: str
    lines: str


TEXTS: dict[Wording, Texts] = {
    "documented": Texts(
        "hidden items and node_modules", "Error: ", "range of lines of the file: [0, {lines}]"
    ),
    "sdk": Texts("hidden items", "", "range [0, {lines}]."),
}


class MemoryFiles:
    """The files of one agent, as the memory tool sees them; each command is one method."""

    def __init__(self, library: Library, folder: str, wording: Wording) -> None:
        self._library, self._folder, self._texts = library, folder.strip("/"), TEXTS[wording]

    async def view(self, path: str, view_range: list[int] | None = None) -> str:
        """Return a file with numbered lines, or the names in a directory, two levels deep."""
        label = self._label(path)
        block = await self._find(label)
        if block is not None:
            return _number_lines(path, await block.text(), view_range)
        blocks = await self._list(label)
        if not blocks and label != self._folder:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes = await self._library.sizes(blocks)
        files = [(block.label[len(label) :].lstrip("/"), sizes[block.id][1]) for block in blocks]
        head = f"Here're the files and directories up to 2 levels deep in {path}, excluding"
        lines = [f"{_size(size)}\t{posixpath.join(path, name)}" for name, size in _tree(files)]
        total = _size(sum(size for _, size in files))
        return "\n".join([f"{head} {self._texts.hidden}:", f"{total}\t{path}", *lines])

    async def create(self, path: str, file_text: str) -> str:
        """Create a file that is not there yet."""
        label = self._label(path)
        taken = ToolError(f"{self._texts.prefix}File {path} already exists")
        if label == self._folder or await self._list(label):
            raise taken
        await self._check_parents(label, path)
        try:
            await self._library.create(
                label, text=file_text, kind="working", pinned=False, limit=MAX_CHARACTERS
            )
        except LabelTaken:
            raise taken from None
        return f"File created successfully at: {path}"

    async def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace the only occurrence of a text."""

        async def attempt(block: Block) -> str:
            before = await block.text()
            starts = _find_all(before, old_str)
            if not starts:
                raise ToolError(
                    f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
                )
            if len(starts) > 1:
                lines = ", ".join(str(before.count("\n", 0, start) + 1) for start in starts)
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
                    f"{lines}. Please ensure it is unique"
                )
            at = starts[0]
            after = before[:at] + new_str + before[at + len(old_str) :]
            await block.replace(old_str, new_str, which="only")
            return _show_change(after, before.count("\n", 0, at))

        shown = await self._edit(path, attempt)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{head}\n{shown}"

    async def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert a text behind a line; 0 is the top."""

        async def attempt(block: Block) -> str:
            lines = (await block.text()).split("\n")
            if lines[-1] == "":
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                raise ToolError(
                    f"{self._texts.prefix}Invalid `insert_line` parameter: {insert_line}. "
                    f"It should be within the {self._texts.lines.format(lines=len(lines))}"
                )
            lines.insert(insert_line, insert_text.rstrip("\n"))
            text = "\n".join(lines)
            await block.write(text if text.endswith("\n") else text + "\n", expect=block.version)
            return f"The file {path} has been edited."

        return await self._edit(path, attempt)

    async def delete(self, path: str) -> str:
        """Delete a file, or a directory with all in it; each can be restored."""
        label = self._label(path)
        if label == self._folder:
            raise ToolError(f"{self._texts.prefix}Cannot delete the /memories directory itself")
        try:
            if await self._find(label) is not None:
                await self._library.delete(label)
            else:
                await self._library.delete_folder(label)
        except BlockNotFound:
            raise ToolError(f"{self._texts.prefix}The path {path} does not exist") from None
        return f"Successfully deleted {path}"

    async def rename(self, old_path: str, new_path: str) -> str:
        """Move a file or a directory to a path that is free."""
        old, new = self._label(old_path), self._label(new_path)
        prefix = self._texts.prefix
        if old == self._folder:
            raise ToolError(f"{prefix}Cannot rename the /memories directory itself")
        if new == self._folder or await self._find(new) is not None or await self._list(new):
            raise ToolError(f"{prefix}The destination {new_path} already exists")
        if new.startswith(f"{old}/"):
            raise ToolError(f"{prefix}The path {old_path} cannot be moved into itself")
        await self._check_parents(new, new_path)
        try:
            if await self._find(old) is not None:
                await self._library.rename(old, new)
            else:
                await self._library.move_folder(old, new)
        except LabelTaken:
            raise ToolError(f"{prefix}The destination {new_path} already exists") from None
        except BlockNotFound:
            raise ToolError(f"{prefix}The path {old_path} does not exist") from None
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self) -> str:
        """Delete all files."""
        if await self._list(self._folder):
            await self._library.delete_folder(self._folder)
        return "All memory cleared"

    # -- paths and blocks -----------------------------------------------------------------

    def _label(self, path: str) -> str:
        """Return the label of a path; the folder itself for the root."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise ToolError(f"Path must start with {ROOT}, got: {path}")
        inside = posixpath.normpath(path.removeprefix(ROOT).lstrip("/") or ".")
        if inside == ".." or inside.startswith("../"):
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        label = self._folder if inside == "." else f"{self._folder}/{inside}"
        ids.check_name(label, "path")
        return label

    async def _find(self, label: str) -> Block | None:
        try:
            return await self._library.get(label, owner=self._library.agent)
        except BlockNotFound:
            return None

    async def _list(self, folder: str) -> list[Block]:
        return await self._library.list(folder)

    async def _check_parents(self, label: str, path: str) -> None:
        """Refuse a path through a file."""
        parent = posixpath.dirname(label)
        while len(parent) > len(self._folder):
            if await self._find(parent) is not None:
                inside = parent[len(self._folder) :]
                raise ToolError(f"{self._texts.prefix}{path}: {ROOT}{inside} is a file, not a directory")
            parent = posixpath.dirname(parent)

    async def _edit(self, path: str, attempt: Callable[[Block], Awaitable[str]]) -> str:
        """Make an edit that depends on the whole text, again if others change it meanwhile."""
        label = self._label(path)
        for tries in range(ATTEMPTS):
            block = await self._find(label)
            if block is None:
                is_folder = label == self._folder or await self._list(label)
                why = "is not a file." if is_folder else "does not exist. Please provide a valid path."
                raise ToolError(f"The path {path} {why}")
            try:
                return await attempt(block)
            except (VersionConflict, NoMatch):
                if tries == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def _find_all(text: str, part: str) -> list[int]:
    """Return where a text begins in another one, overlapping places included if there are several."""
    if text.count(part) < 2:
        return [text.find(part)] if part in text else []
    starts, at = list[int](), text.find(part)
    while at >= 0:
        starts.append(at)
        at = text.find(part, at + 1)
    return starts


def _number_lines(path: str, text: str, view_range: list[int] | None) -> str:
    lines, first = text.split("\n"), 1
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0])
        lines = lines[first - 1 : len(lines) if view_range[1] == -1 else view_range[1]]
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(_numbered(lines, first))


def _show_change(text: str, line: int) -> str:
    lines = text.split("\n")
    first = max(0, line - SHOWN_AROUND)
    return "\n".join(_numbered(lines[first : line + SHOWN_AROUND + 1], first + 1))


def _numbered(lines: Iterable[str], first: int) -> list[str]:
    return [f"{number:6}\t{line}" for number, line in enumerate(lines, first)]


def _tree(files: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return what is at most two levels deep and not hidden, in the order of a directory tree, with sizes."""
    shown: dict[tuple[str, ...], int] = {}
    for name, size in files:
        parts = tuple(name.split("/"))
        if any(part.startswith(".") for part in parts[:2]):
            continue
        for depth in range(1, min(2, len(parts)) + 1):
            shown[parts[:depth]] = shown.get(parts[:depth], 0) + size
    folders = {tuple(name.split("/"))[:depth] for name, _ in files for depth in range(1, name.count("/") + 1)}
    return [("/".join(parts) + "/" * (parts in folders), shown[parts]) for parts in sorted(shown)]


def _size(size: int) -> str:
    value, units = float(size), ["B", "K", "M", "G"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f}{units[0]}" if value.is_integer() else f"{value:.1f}{units[0]}"


# -- the tools of the SDK ---------------------------------------------------------------------


class _Memory:
    """The files of an agent at a place, opened when they are first used."""

    def __init__(self, place: str | Universe | Anywhere, agent: str, folder: str, wording: Wording) -> None:
        if wording not in TEXTS:
            raise InputError(f"wording is {wording!r}; use one of {', '.join(TEXTS)}", field="wording")
        ids.check_name(folder, "folder")
        self.place = anywhere(place)
        self._agent, self._folder, self._wording = agent, folder, wording
        self._kept: tuple[Universe, MemoryFiles] | None = None

    async def call(self, universe: Universe, command: str, arguments: dict[str, Any]) -> str:
        """Run a command; what dgent refuses is an error that the model reads."""
        kept = self._kept
        if kept is None or kept[0] is not universe:
            library = Library(universe, self._agent)
            kept = self._kept = universe, MemoryFiles(library, self._folder, self._wording)
        try:
            answer: str = await getattr(kept[1], command)(**arguments)
        except DgentError as error:
            raise ToolError(f"{error.message} ({error.hint})" if error.hint else error.message) from error
        return answer


class DgentMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `client.beta.messages.run_tools`, with an agent's blocks as its files.

    The place is a URL, an open universe or a handle of `dgent.sync.anywhere`. Labels of the blocks begin with
    `folder`. `wording="sdk"` answers in the words of the SDK's own tool instead of the documented ones.
    """

    def __init__(
        self,
        place: str | Universe | Anywhere,
        agent: str = "claude",
        *,
        folder: str = "memories",
        wording: Wording = "documented",
        cache_control: Any = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = _Memory(place, agent, folder, wording)

    def _run(self, command: str, **arguments: Any) -> str:
        return self._memory.place.run(self._memory.call, command, arguments)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Show a file or a directory."""
        return self._run("view", path=command.path, view_range=command.view_range)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return self._run("create", path=command.path, file_text=command.file_text)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text in a file."""
        return self._run("str_replace", path=command.path, old_str=command.old_str, new_str=command.new_str)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text into a file."""
        where = {"insert_line": command.insert_line, "insert_text": command.insert_text}
        return self._run("insert", path=command.path, **where)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or a directory."""
        return self._run("delete", path=command.path)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file or a directory."""
        return self._run("rename", old_path=command.old_path, new_path=command.new_path)

    def clear_all_memory(self) -> str:
        """Delete all files."""
        return self._run("clear")

    def close(self) -> None:
        """Release the place."""
        self._memory.place.close()


class DgentAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same tool for an asynchronous client."""

    def __init__(
        self,
        place: str | Universe | Anywhere,
        agent: str = "claude",
        *,
        folder: str = "memories",
        wording: Wording = "documented",
        cache_control: Any = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = _Memory(place, agent, folder, wording)

    async def _run(self, command: str, **arguments: Any) -> str:
        return await self._memory.place.arun(self._memory.call, command, arguments)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Show a file or a directory."""
        return await self._run("view", path=command.path, view_range=command.view_range)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return await self._run("create", path=command.path, file_text=command.file_text)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text in a file."""
        old, new = command.old_str, command.new_str
        return await self._run("str_replace", path=command.path, old_str=old, new_str=new)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text into a file."""
        where = {"insert_line": command.insert_line, "insert_text": command.insert_text}
        return await self._run("insert", path=command.path, **where)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or a directory."""
        return await self._run("delete", path=command.path)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file or a directory."""
        return await self._run("rename", old_path=command.old_path, new_path=command.new_path)

    async def clear_all_memory(self) -> str:
        """Delete all files."""
        return await self._run("clear")

    async def close(self) -> None:
        """Release the place."""
        await self._memory.place.aclose()
