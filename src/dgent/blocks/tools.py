"""The tools that an agent has for its memory: four functions that any framework for models can offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dgent.blocks import tool_archive, tool_block, tool_edit, tool_history, tool_schema
from dgent.blocks.kind import BlockKind, Permission
from dgent.blocks.tool_answer import Answer, bounded, refused
from dgent.blocks.tool_call import Call, Operation, check
from dgent.errors import DgentError, InputError

if TYPE_CHECKING:
    from dgent.blocks.library import Library


BlockOperation = Literal[
    "create",
    "list",
    "load",
    "info",
    "describe",
    "rename",
    "pin",
    "unpin",
    "archive",
    "view",
    "share",
    "unshare",
    "delete",
    "restore",
    "notices",
    "history",
    "at",
    "diff",
    "rollback",
    "undo",
    "redo",
    "visit",
    "branches",
    "checkpoint",
    "checkpoints",
]
EditOperation = Literal[
    "append",
    "write",
    "replace",
    "edit_range",
    "patch",
    "set_field",
    "clear_field",
    "append_to_field",
    "remove_from_field",
    "increment",
    "insert_item",
    "set_item",
    "move_item",
    "delete_item",
    "log",
    "add_node",
    "set_node",
    "move_node",
    "delete_node",
]
ArchiveOperation = Literal["insert", "read", "search", "delete"]
TemplateName = Literal[
    "persona",
    "human",
    "scratchpad",
    "organization",
    "partner_profile",
    "task_list",
    "observation_log",
]
# A composite needs a template of its own, and a rolling log is the system's.
PlainDocument = Literal["text", "map", "list", "log", "tree", "counter"]

Label = Annotated[str | None, "the block's label"]
Owner = Annotated[str | None, "whose block it is, where others have shared one of this label"]
Id = Annotated[str | None, "the block's id, instead of its label"]
Expect = Annotated[int | None, "the version the block must have now; otherwise nothing is done"]
Message = Annotated[str | None, "why, in a few words; it is kept with the version"]
Offset = Annotated[int | None, "where to go on when an answer was cut: the answer says the number"]
Tags = Annotated[list[str] | None, "words to find archival entries by"]
Limit = Annotated[int | None, "at most so many results, up to 50; 10 if left out"]
Query = Annotated[str | None, "the words to look for"]

OPERATIONS: dict[str, dict[str, Operation]] = {
    "block": {**tool_block.OPERATIONS, **tool_history.OPERATIONS},
    "block_edit": tool_edit.OPERATIONS,
    "archive": tool_archive.OPERATIONS,
}


class Toolbox:
    """The memory of one agent as tools for a model: `Toolbox(Library(u, agent="scout", trust="friend"))`.

    Every call goes through the library, with its trust and its consent. An answer is
    `{"success": bool, "message": str, "data": ...}`. What a model gets wrong is an answer too, no exception.
    """

    def __init__(self, library: Library) -> None:
        self.library = library

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The tools by name, as functions whose signatures say what they take."""
        return {
            "block": self.block,
            "block_edit": self.block_edit,
            "archive": self.archive,
            "search": self.search,
        }

    def schemas(self) -> list[dict[str, Any]]:
        """The tools as models are told of them: name, description, and parameters as flat JSON schema."""
        return [tool_schema.schema_of(each, name) for name, each in self.functions().items()]

    async def call(self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None) -> Answer:
        """Call a tool by its name, with arguments as a map or as JSON text."""
        try:
            tools = self.functions()
            if not isinstance(name, str) or name not in tools:
                raise InputError(
                    f"there is no tool {tool_schema.told(name)}", hint=tool_schema.hint(name, tools)
                )
            return bounded(await self._call(name, tool_schema.read(arguments)))
        except DgentError as error:
            return refused(error)

    async def block(
        self,
        operation: Annotated[BlockOperation, "what to do"],
        label: Label = None,
        owner: Owner = None,
        id: Id = None,
        text: Annotated[str | None, "create: the text it begins with"] = None,
        value: Annotated[Any, "create: what a block that is no text begins with"] = None,
        template: Annotated[
            TemplateName | None, "create: what it is made after; describe: another one that it fits"
        ] = None,
        document: Annotated[PlainDocument | None, "create: what it holds; text if left out"] = None,
        description: Annotated[str | None, "what belongs into it"] = None,
        kind: Annotated[
            BlockKind | None,
            "core is always in the context, working when pinned, archival by search, log its newest entries",
        ] = None,
        limit: Annotated[int | None, "how many characters it may have"] = None,
        permission: Annotated[Permission | None, "what may be done to what it says"] = None,
        pinned: Annotated[bool | None, "create: keep it in the context"] = None,
        shared: Annotated[bool | None, "list: with those of others; true if left out"] = None,
        section: Annotated[str | None, "load: only this section of a composite"] = None,
        to: Annotated[str | None, "rename, restore: the new label"] = None,
        with_agent: Annotated[str | None, "share, unshare: the other agent"] = None,
        with_group: Annotated[str | None, "share, unshare: the group"] = None,
        version: Annotated[int | None, "at, rollback, visit: the version's number"] = None,
        name: Annotated[str | None, "a checkpoint's name; at, rollback and visit take it too"] = None,
        before: Annotated[int | None, "diff: the older version; the one before if left out"] = None,
        after: Annotated[int | None, "diff: the newer version; the newest if left out"] = None,
        start: Annotated[int | None, "view: the first line"] = None,
        lines: Annotated[int | None, "view: how many lines; all if left out"] = None,
        message: Message = None,
        expect: Expect = None,
        offset: Offset = None,
    ) -> Answer:
        """Your memory blocks: make, read and manage them, and look at or go back to their versions.

        create: a new block; give a label, and text, value or a template.
        list: the blocks you may use. load: what one says. info: what one is, its limit, fields, shares.
        describe: change description, kind, limit, permission or template. rename: give it the label `to`.
        pin, unpin: keep a working block in your context or not. archive: only search and load find it then.
        view: your context shows only some lines of a long text.
        share: give it to an agent or a group, with a permission (append if left out). unshare: take it back.
        delete: remove it. restore: bring back the one that was deleted last under a label.
        notices: what others changed since you last asked.
        history: its versions. at: what it said at a version. diff: what changed between two versions.
        rollback: make it what it was at a version, as a new version; nothing is lost.
        undo, redo: take back the last edit, or have it again. branches, visit: edits that were left by undo.
        checkpoint, checkpoints: give the present version a name, list the names.
        """
        return await self._function("block", locals())

    async def block_edit(
        self,
        operation: Annotated[EditOperation, "how to change it"],
        label: Label = None,
        owner: Owner = None,
        id: Id = None,
        section: Annotated[str | None, "change only this section of a composite"] = None,
        text: Annotated[
            str | None, "the text to append, write or put there; for patch the difference"
        ] = None,
        old: Annotated[str | None, "replace: the text to replace, exactly as it is there"] = None,
        new: Annotated[str | None, "replace: what comes instead; may be empty"] = None,
        which: Annotated[Literal["first", "all"] | None, "replace: which places; first if left out"] = None,
        nth: Annotated[int | None, "replace: only this place, from 1, instead of which"] = None,
        regex: Annotated[bool | None, "replace: old is a regular expression"] = None,
        start: Annotated[int | None, "edit_range: the first line, from 1"] = None,
        end: Annotated[int | None, "edit_range: the last line"] = None,
        field: Annotated[str | None, "the name of a field"] = None,
        value: Annotated[Any, "the value of a field, an item, an entry or a node"] = None,
        place: Annotated[int | None, "the place of an item as it is shown, from 1; -1 is the last"] = None,
        to: Annotated[int | None, "move_item: the new place, from 1"] = None,
        amount: Annotated[int | None, "increment: how much to add, 1 if left out; may be below 0"] = None,
        node: Annotated[str | None, "the id of a node of a tree"] = None,
        parent: Annotated[str | None, "the id of the node it goes below; the top if left out"] = None,
        message: Message = None,
        expect: Expect = None,
    ) -> Answer:
        """Change what a memory block says. Each call is one version; block undo takes it back.

        Texts: append adds text as it is, so begin with a line break for a new line. replace changes `old` to
        `new`. edit_range puts text in the place of the lines from start to end. patch applies a unified
        difference. write replaces everything: prefer the others, and give expect.
        Maps: set_field, clear_field, increment; append_to_field, remove_from_field where a field is a list.
        Lists: insert_item, set_item, move_item, delete_item. Logs: log. Counters: increment.
        Trees: add_node, set_node, move_node, delete_node. append also adds to lists and logs.
        """
        return await self._function("block_edit", locals())

    async def archive(
        self,
        operation: Annotated[ArchiveOperation, "what to do"],
        text: Annotated[str | None, "insert: what to keep; it is never changed"] = None,
        id: Annotated[str | None, "read, delete: the entry's id"] = None,
        query: Query = None,
        tags: Tags = None,
        limit: Limit = None,
        offset: Offset = None,
    ) -> Answer:
        """Your archive: texts put away for later, out of the context and found by their words.

        insert: put a text away. search: find entries. read: one of them whole. delete: remove one.
        """
        return await self._function("archive", locals())

    async def search(
        self,
        query: Annotated[str, "the words to look for"],
        kind: Annotated[
            Literal["core", "working", "archival", "log", "entry"] | None,
            "only blocks of this kind, or entry for the archive",
        ] = None,
        owner: Annotated[str | None, "only what belongs to this agent"] = None,
        tags: Tags = None,
        limit: Limit = None,
    ) -> Answer:
        """Find words in all blocks you may see and in your archive; the best result comes first.

        A result has the id and the label: block load reads a block, archive read an entry.
        """
        return await self._function("search", locals())

    async def _function(self, name: str, given: dict[str, Any]) -> Answer:
        """A call of a tool as a function: the same as by its name."""
        del given["self"]
        return await self.call(name, given)

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        known = tool_schema.parameters_of(self.functions()[name])
        given = tool_schema.checked(known, arguments)
        operation, wanted = tool_archive.SEARCH, name
        if name in OPERATIONS:
            wanted = given.pop("operation")
            operation = OPERATIONS[name][wanted]
        return await operation.run(Call(self.library, check(wanted, operation, given)))
