"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

import builtins
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dgent.blocks import TEMPLATES as TEMPLATES
from dgent.blocks import Activity as Activity
from dgent.blocks import Agent as Agent
from dgent.blocks import Branch as Branch
from dgent.blocks import Context as Context
from dgent.blocks import Diff as Diff
from dgent.blocks import Difference as Difference
from dgent.blocks import Entry as Entry
from dgent.blocks import Field as Field
from dgent.blocks import FileReport as FileReport
from dgent.blocks import FolderReport as FolderReport
from dgent.blocks import Group as Group
from dgent.blocks import Hit as Hit
from dgent.blocks import Member as Member
from dgent.blocks import Notice as Notice
from dgent.blocks import Redaction as Redaction
from dgent.blocks import Refusal as Refusal
from dgent.blocks import Request as Request
from dgent.blocks import SectionShape as SectionShape
from dgent.blocks import Shape as Shape
from dgent.blocks import Share as Share
from dgent.blocks import Template as Template
from dgent.blocks import Version as Version
from dgent.blocks import View as View
from dgent.blocks import errors as errors
from dgent.blocks.access.actor import BlockPermission
from dgent.blocks.access.permission import CONSENT_S, AgentPermissions
from dgent.blocks.context.budget import Tokens
from dgent.blocks.document.template import TemplateLike
from dgent.blocks.folder.sync import WAIT_S
from dgent.blocks.history.log import VersionLog
from dgent.blocks.library import LOG_LABEL
from dgent.model.tokens import estimate
from dgent.sync import Universe
from dgent.sync.stream import Stream

__all__ = [
    "TEMPLATES",
    "Activity",
    "Agent",
    "Block",
    "Branch",
    "Context",
    "Diff",
    "Difference",
    "Entry",
    "Field",
    "FileReport",
    "FolderReport",
    "Group",
    "Groups",
    "Hit",
    "Library",
    "Member",
    "Notice",
    "Redaction",
    "Refusal",
    "Request",
    "Roster",
    "Section",
    "SectionShape",
    "Shape",
    "Share",
    "Template",
    "Version",
    "View",
    "errors",
]

class Editable:
    """A block or a section of one. Edits of another kind of document than its own raise WrongKind."""

    @property
    def shape(self) -> Shape:
        """The shape of its document: the fields, items, entries or sections it may hold."""

    @property
    def document_kind(self) -> str:
        """The kind of its document: text, map, list, log, tree, counter or composite."""

    def append(
        self, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add to its end: text to a text, an item to a list, an entry to a log."""

    def write(
        self, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace all of a text; parts that stay the same are not rewritten."""

    def replace(
        self,
        old: str,
        new: str,
        *,
        which: str | int = "first",
        regex: bool = False,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the first match of a text, all (`which="all"`), the nth, or the only one (`which="only"`).

        `old` may be a regex. With `"only"` it raises NoMatch when there are several, and names their lines.
        """

    def edit_range(
        self,
        start: int,
        end: int,
        text: str,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the lines from `start` to `end`, both counted from 1."""

    def insert(
        self, line: int, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Insert lines behind a line, counted from 1; behind 0 is the top."""

    def edit_many(
        self,
        edits: Sequence[Mapping[str, Any]],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Make several edits of a text as one version: all of them or none, each after those before it.

        An edit is a map: `old` and `new` replace the only match, with `"all": True` every match; `line` and
        `text` insert behind a line; `start`, `end` and `text` replace lines.
        """

    def patch(
        self, patch: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Apply a unified diff; every line of its context must be there."""

    def set_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Set a field of a map; in a list field only the items that differ are changed."""

    def clear_field(
        self, name: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Reset a field to its default, or empty it when it has none."""

    def append_to_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add an item to the end of a list field."""

    def remove_from_field(
        self, name: str, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove the item at a place of a list field."""

    def increment(
        self,
        name: str | int | None = None,
        amount: int = 1,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Add to a counter or a counter field; concurrent increments add up.

        A number alone is the amount: `increment(10)`. Counting up is an append; counting down removes
        something and is an overwrite.
        """

    def insert_item(
        self,
        value: Any,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Insert an item into a list, at the end when `place` is not given."""

    def set_item(
        self, place: int, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace an item; of an item with fields only the given fields, and None removes one."""

    def move_item(
        self, place: int, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Move an item of a list to another place."""

    def delete_item(
        self, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove an item of a list."""

    def log(self, entry: Any, *, by: str | None = None, message: str = "") -> Version:
        """Add an entry to a log, stamped with the time and the agent."""

    def add_node(
        self,
        data: Mapping[str, Any],
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> str:
        """Add a node below another one or at the top, last when `place` is not given; returns its id."""

    def set_node(
        self,
        id: str,
        data: Mapping[str, Any],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Change the given fields of a node; None removes one."""

    def move_node(
        self,
        id: str,
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Move a node below another one or to the top, with everything below it."""

    def delete_node(
        self, id: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Delete a node with everything below it."""

class Section(Editable):
    """A part of a composite block. Its edits are versions of the block."""

    def __init__(self, block: Block, section: SectionShape) -> None: ...
    @property
    def shape(self) -> Shape:
        """The shape of its document: the fields, items or entries it may hold."""

    @property
    def name(self) -> str:
        """Its name in the block."""

    @property
    def description(self) -> str:
        """The purpose of the section, for the agent."""

    @property
    def read_only(self) -> bool:
        """True when it keeps the content that the block was created with."""

    @property
    def limit(self) -> int:
        """The most characters the whole block may have."""

    def text(self) -> str:
        """Return its current content as text."""

    def value(self) -> dict[str, Any]:
        """Return its current content as plain values."""

    def current(self) -> View:
        """Return its current content, with the version of the block: all of one moment."""

class Block(Editable):
    """A block as one agent may use it; each call that changes it is one version."""

    def __init__(
        self, permissions: AgentPermissions, block_permission: BlockPermission, log: VersionLog | None = None
    ) -> None: ...
    @property
    def id(self) -> str:
        """Its id."""

    @property
    def owner(self) -> str:
        """The agent it belongs to."""

    @property
    def label(self) -> str:
        """Its name, unique among the blocks of its owner."""

    @property
    def description(self) -> str:
        """The purpose of the block, for the agent."""

    @property
    def kind(self) -> str:
        """The kind: core, working, archival or log. It decides when the block is in the context."""

    @property
    def template(self) -> str:
        """The name of the template it was created from; empty without one."""

    @property
    def shape(self) -> Shape:
        """The shape of its document: the fields, items, entries or sections it may hold."""

    def section(self, name: str) -> Section:
        """Return a section of a composite, which is edited like a block."""

    @property
    def limit(self) -> int:
        """The most characters it may have."""

    @property
    def over_limit(self) -> bool:
        """True when a merge made it longer than its limit; then edits may only shorten it until it fits."""

    @property
    def pinned(self) -> bool:
        """True when a working block is always in the context."""

    @property
    def retain(self) -> int | None:
        """The number of versions it keeps; None for all."""

    @property
    def permission(self) -> str:
        """The permission of this agent: the least of the block's and the share's."""

    @property
    def version(self) -> int:
        """The number of the newest version that was read."""

    def __repr__(self) -> str: ...
    def text(self) -> str:
        """Return its current content as text."""

    def value(self) -> dict[str, Any]:
        """Return its current content as plain values."""

    def entries(
        self,
        contains: str = "",
        *,
        agent: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        trimmed: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the entries of a log, newest first, filtered by words, agent and time.

        With `trimmed` also the entries that the log's rule removed, from its history.
        """

    def current(self) -> View:
        """Return its current content: version, text and value of one moment."""

    def history(self, limit: int | None = None) -> list[Version]:
        """Return its versions, newest first."""

    def at(self, version: int | None = None, *, time: datetime | None = None) -> View:
        """Return the block as it was at a version or at a time."""

    def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """Return the difference between two versions.

        Without `after` it is up to the newest version, without both it is what the newest version changed.
        """

    def rollback(
        self, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Make it what it was at a version, as a new version: nothing is lost."""

    def undo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Undo the current version; `redo` brings it back, and a new edit starts a branch."""

    def redo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Redo the version that was last undone from here."""

    def visit(self, node: int, *, by: str | None = None) -> Version:
        """Go to any version of the tree, on any branch."""

    def branches(self) -> list[Branch]:
        """Return the branches of the version tree, newest first."""

    def checkpoint(self, name: str) -> int:
        """Name the current version, so that it is kept and can be found; returns its number."""

    def checkpoints(self) -> dict[str, int]:
        """Return the named versions: name to version number."""

    def drop_checkpoint(self, name: str) -> int:
        """Remove the name of a version and return its number; only the partner may."""

    def redact(
        self, first: int, last: int | None = None, *, message: str = "", clear_messages: bool = False
    ) -> Redaction:
        """Remove for good what a version (or several) brought, from this and every other version.

        A text is blanked letter by letter, line by line, and anything else becomes `[redacted]`. The history
        still says who did what when, with the messages of these versions unless `clear_messages`. Only the
        partner may, and it cannot be undone.
        """

    def compact(self, keep: int | None = None, *, older_than: datetime | timedelta | None = None) -> int:
        """Delete the content of old versions and return how many; only the partner may.

        `keep` newest versions are kept, those younger than `older_than`, and those with a checkpoint. Of all
        others the history still says who did what when.
        """

class Roster:
    """The agents of the constellation, as `library.agents`; an agent that creates a block is added to it."""

    def __init__(self, permissions: AgentPermissions) -> None: ...
    def create(self, name: str, *, description: str = "", status: str = "active") -> Agent:
        """Add an agent to the roster; raises NameTaken when the name is in use."""

    def enrol(self, name: str) -> None:
        """Add an agent to the roster unless it is there; raises Conflict when it is archived."""

    def get(self, name: str) -> Agent:
        """Return an agent by name; AgentNotFound suggests similar names."""

    def list(self, *, status: str | None = None) -> list[Agent]:
        """Return the agents, sorted by name, all or those of one status."""

    def describe(self, name: str, *, description: str | None = None, status: str | None = None) -> Agent:
        """Change the description or the status of an agent; only the partner may change other agents."""

class Groups:
    """The groups of the constellation, as `library.groups`; a share with a group is for its members."""

    def __init__(self, permissions: AgentPermissions) -> None: ...
    def create(self, name: str, *, description: str = "") -> Group:
        """Create a group without members; raises NameTaken when the name is in use."""

    def get(self, name: str) -> Group:
        """Return a group with its members."""

    def list(self) -> list[Group]:
        """Return the groups, sorted by name."""

    def join(
        self, group: str, agent: str, *, role: str = "regular", capabilities: tuple[str, ...] = ()
    ) -> Group:
        """Add an agent to a group, or change its role and capabilities there.

        A member gets everything that is shared with the group, so only the partner or a supervisor of the
        group may add one.
        """

    def leave(self, group: str, agent: str) -> Group:
        """Remove an agent from a group, which ends its access to what is shared with the group."""

    def delete(self, name: str) -> None:
        """Delete a group, its memberships and its shares; the agents and the blocks stay."""

class Library:
    """The blocks of one agent in a universe: `Library(u, agent="scout")`.

    `trust` is the trust of the caller of this handle. `consent` is called where a block's permission requires
    the partner or a human to agree; without it, or without an answer within `consent_s` seconds, nothing is
    done.
    """

    @property
    def universe(self) -> Universe: ...
    @property
    def agent(self) -> str: ...
    @property
    def trust(self) -> str: ...
    @property
    def agents(self) -> Roster: ...
    @property
    def groups(self) -> Groups: ...
    def __init__(
        self,
        universe: Universe,
        agent: str,
        *,
        trust: str = "partner",
        consent: Callable[[Request], bool] | None = None,
        consent_s: float = CONSENT_S,
    ) -> None: ...
    def create(
        self,
        label: str,
        *,
        template: TemplateLike = None,
        document: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        pinned: bool | None = None,
        text: str | None = None,
        value: Any = None,
        owner: str | None = None,
    ) -> Block:
        """Create a block for this agent, or for all with `owner="_constellation_"`; its label must be free.

        The template gives its shape and the defaults of the other options; a working block is pinned, so that
        it is in the context, unless `pinned` is False. `value` is its first content: the text of a text (or
        `text=`), the fields of a map, the items of a list, the sections of a composite.
        """

    def get(self, label: str, *, owner: str | None = None) -> Block:
        """Return a block by label: this agent's own, one shared with it, or one that belongs to all.

        Its own comes first. If several agents have shared one with this label, `owner` chooses.
        """

    def get_by_id(self, id: str) -> Block:
        """Return a block by id: this agent's own, one shared with it, or one that belongs to all."""

    def list(
        self, folder: str | None = None, *, kind: str | None = None, shared: bool = False
    ) -> builtins.list[Block]:
        """Return this agent's blocks by label; with `shared` also the others it may see, by owner.

        With a `folder`, those whose labels are in it: `list("projects/x")` has `projects/x/notes`.
        """

    def move_folder(self, folder: str, to: str, *, owner: str | None = None) -> builtins.list[Block]:
        """Move all blocks of a folder of labels to another one, in one commit: all or none."""

    def delete_folder(self, folder: str, *, owner: str | None = None) -> builtins.list[Block]:
        """Delete all blocks of a folder of labels, in one commit; each can be restored."""

    def sizes(self, blocks: Iterable[Block]) -> dict[str, tuple[int, int]]:
        """Map the ids of some blocks to their newest version and its size in characters."""

    def rename(self, label: str, to: str, *, owner: str | None = None) -> Block:
        """Change the label of a block."""

    def describe(
        self,
        label: str,
        *,
        owner: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        template: TemplateLike = None,
    ) -> Block:
        """Change the description, kind, limit, permission or template of a block.

        A `template` changes the shape for the same kind of document; the content must fit it. A change that
        allows more than before needs consent, so that an agent cannot give itself permission to write what it
        may only read.
        """

    def pin(self, label: str, pinned: bool = True, *, owner: str | None = None) -> Block:
        """Keep a working block in the context, or stop keeping it there."""

    def retain(self, label: str, keep: int | None, *, owner: str | None = None) -> Block:
        """Keep this many of the newest versions, and those with a checkpoint, from now on; None for all.

        Older versions are compacted from time to time, as by `Block.compact`. Only the partner may.
        """

    def view(
        self, label: str, start: int = 1, lines: int | None = None, *, owner: str | None = None
    ) -> Block:
        """Show only `lines` lines of a long text in the context, from `start`; without `lines` all of it."""

    def delete(self, label: str, *, owner: str | None = None) -> None:
        """Delete a block; its label is free at once, and `restore` brings it back with its history."""

    def restore(self, label: str, *, to: str | None = None, owner: str | None = None) -> Block:
        """Restore the block of a label that was deleted last, optionally under another label.

        It has its history and its shares as before. With `owner="_constellation_"` the partner restores one
        that belonged to all. Raises LabelTaken when another block has the label now.
        """

    def list_deleted(self, *, owner: str | None = None) -> builtins.list[str]:
        """Return the labels of this agent's deleted blocks, the last deleted first.

        With `owner="_constellation_"` those that belonged to all.
        """

    def share(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        permission: str = "append",
        owner: str | None = None,
    ) -> None:
        """Share a block with another agent or a group; sharing again changes the permission."""

    def unshare(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """Stop sharing a block with an agent or a group; False when it was not shared with them."""

    def list_shares(self) -> builtins.list[Share]:
        """Return the shares this agent gave and received, its own blocks first."""

    def refusals(self, limit: int = 100) -> builtins.list[Refusal]:
        """Return the refusals of this agent and those about its blocks, newest first."""

    def notices(self, *, mark: bool = False) -> builtins.list[Notice]:
        """Return the changes by others to the blocks this agent may see, since it last looked, with diffs.

        `mark=True` records them as seen, so that they are reported once.
        """

    def activity(self, since: int | datetime | None = None, *, limit: int = 50) -> builtins.list[Activity]:
        """Return who did what to the blocks this agent may see, since a commit or a time; newest first.

        Includes its archival entries, and the crumbs and trails of the store, which belong to all agents.
        """

    def render(
        self,
        *,
        budget_tokens: int | None = None,
        referenced: str | Iterable[str] = (),
        priorities: Mapping[str, int] | None = None,
        changes: bool = True,
        since: int | datetime | None = None,
        mark: bool = False,
        tokens: Tokens = estimate,
    ) -> str:
        """Return the memory part of a prompt: core blocks, pinned or referenced working blocks, and logs.

        It is never longer than `budget_tokens`, as counted by `tokens`; the end names what was cut, and a
        block with a higher priority is cut later. With `changes` it ends with what others did to these blocks
        since the agent last looked; `mark=True` records every fully shown block as seen. With `since`, a
        commit or a time, it includes the newest activity after that.
        """

    def context(
        self,
        budget_tokens: int | None = None,
        referenced: str | Iterable[str] = (),
        priorities: Mapping[str, int] | None = None,
        changes: bool = True,
        since: int | datetime | None = None,
        mark: bool = False,
        tokens: Tokens = estimate,
    ) -> Context:
        """Return the same as `render`, with its token count and which blocks are whole, shortened or cut."""

    def log_tool(self, tool: str, result: Any = None, *, ok: bool = True, label: str = LOG_LABEL) -> Version:
        """Add a use of a tool and its result to the agent's rolling log."""

    def log_event(self, event: str, details: Any = None, *, label: str = LOG_LABEL) -> Version:
        """Add an event to the agent's rolling log."""

    def log_summary(self, summary: str, count: int | None = None, *, label: str = LOG_LABEL) -> Version:
        """Add a summary, of `count` messages, to the agent's rolling log."""

    def sync(
        self,
        folder: str | os.PathLike[str],
        *,
        by: str | None = None,
        dry_run: bool = False,
        wait_s: float = WAIT_S,
    ) -> FolderReport:
        """Synchronize a folder of files with the blocks that this agent may see.

        Each block is a file that can be edited, with a small file beside it that describes it. Edits are
        applied with the permission checks of any edit, as versions by `by`, and merged with what happened to
        the blocks since; then the files are written again. With `dry_run` it only reports what it would do.
        """

    def follow_folder(
        self, folder: str | os.PathLike[str], *, every: float = 1.0, by: str | None = None
    ) -> Stream[FolderReport]:
        """Sync a folder every `every` seconds while iterated; yields each report that has news."""

    def archive(self, text: str, *, tags: Iterable[str] = ()) -> Entry:
        """Store a text in the archive, where search finds it."""

    def get_archived(self, id: str) -> Entry:
        """Return an archival entry of this agent, or of an archive that is shared with it."""

    def unarchive(self, id: str, *, forget: bool = False) -> None:
        """Delete an archival entry; with `forget` from the history too, which only the partner may."""

    def share_archive(self, *, with_agent: str | None = None, with_group: str | None = None) -> None:
        """Let another agent, or every member of a group, read and search this agent's archive."""

    def unshare_archive(self, *, with_agent: str | None = None, with_group: str | None = None) -> bool:
        """Stop sharing this agent's archive; False when it was not shared with them."""

    def list_archive_shares(self) -> builtins.list[Share]:
        """Return who may read this agent's archive, and whose archives it may read."""

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        kind: str | None = None,
        owner: str | None = None,
        tags: Iterable[str] = (),
    ) -> builtins.list[Hit]:
        """Search the blocks and archival entries that this agent may see, best match first.

        Any text is a search: `"…"` is a phrase, `word*` the beginning of a word. `kind` is core, working,
        archival, log or entry; `tags` are those of entries. `limit` is at most 1,000.
        """
