"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.

import builtins
import os
from collections.abc import Callable, Iterable, Mapping
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
from dgent.blocks.access.authority import CONSENT_S
from dgent.blocks.access.permission import Consent
from dgent.blocks.access.standing import Standing
from dgent.blocks.context.budget import Tokens, estimate
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.template import Given
from dgent.blocks.edit import rolling
from dgent.blocks.folder import sync as syncing
from dgent.blocks.history.log import Chain
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
    """A document with a shape, in which each edit is one version."""

    @property
    def document_kind(self) -> str:
        """text, map, list, log, tree, counter or composite."""

    @property
    def limit(self) -> int:
        """How many characters it may have."""

class TextEdits(Editable):
    """What can be done to a text."""

    def write(
        self, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace all of a text; what both have in common stays as it is."""

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
        """Replace part of a text: the first place, `which="all"`, or the nth; perhaps by a pattern."""

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
        """Replace the lines from one to another, both counted from 1, by others."""

    def patch(
        self, patch: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Apply a unified difference; every line of its context must be there."""

class FieldEdits(Editable):
    """What can be done to a map and to a counter."""

    def set_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Give a field of a map a value; of a list only what differs is changed."""

    def clear_field(
        self, name: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Give a field its default again, or nothing when it has none."""

    def append_to_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Put an item at the end of a field that is a list."""

    def remove_from_field(
        self, name: str, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove the item at a place of a field that is a list."""

    def increment(
        self,
        name: str | None = None,
        amount: int = 1,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Add to a counter, or to a field that is one; what two do at once adds up.

        To count up is an append, to count down takes something away and is an overwrite.
        """

class ItemEdits(Editable):
    """What can be done to a list and to a log."""

    def insert_item(
        self,
        value: Any,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Put an item into a list, at its end without a place."""

    def set_item(
        self, place: int, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Give an item another value; of one with fields those that are given, and None takes one away."""

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

class NodeEdits(Editable):
    """What can be done to a tree."""

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
        """Put a node below another one or at the top, last without a place; returns its id."""

    def set_node(
        self,
        id: str,
        data: Mapping[str, Any],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Change the fields of a node that are given; None takes one away."""

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
        """Put a node below another one or at the top, with all that is below it."""

    def delete_node(
        self, id: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove a node with all that is below it."""

class Edits(TextEdits, FieldEdits, ItemEdits, NodeEdits):
    """Everything that can be done to a document, whatever its kind; the wrong one is refused."""

    def append(
        self, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add to its end: text to a text, an item to a list, an entry to a log."""

class Section(Edits):
    """A part of a composite block. Its edits are versions of the block."""

    def __init__(self, block: Block, section: shapes.Section) -> None: ...
    @property
    def name(self) -> str:
        """What it is called in the block."""

    @property
    def description(self) -> str:
        """What belongs into it."""

    @property
    def read_only(self) -> bool:
        """Whether it stays as the block was made with."""

    @property
    def limit(self) -> int:
        """How many characters the whole block may have."""

    def text(self) -> str:
        """Its content as text, as it is now."""

    def value(self) -> dict[str, Any]:
        """Its content as plain values, as it is now."""

class Block(Edits):
    """A block as one agent may use it. Each call that changes it is one version."""

    def __init__(self, library: Authority, standing: Standing, chain: Chain | None = None) -> None: ...
    @property
    def id(self) -> str:
        """Its id."""

    @property
    def owner(self) -> str:
        """The agent it belongs to."""

    @property
    def label(self) -> str:
        """Its name, which only this agent's blocks share."""

    @property
    def description(self) -> str:
        """What belongs into it."""

    @property
    def kind(self) -> str:
        """core, working, archival or log: when it is in the context."""

    @property
    def template(self) -> str:
        """The name of the template it was made after; empty without one."""

    @property
    def shape(self) -> Shape:
        """What its document may hold."""

    def section(self, name: str) -> Section:
        """A part of a composite, which is edited like a block."""

    @property
    def limit(self) -> int:
        """How many characters it may have."""

    @property
    def over_limit(self) -> bool:
        """Whether a merge made it longer than its limit: then it can only become shorter, until it fits."""

    @property
    def pinned(self) -> bool:
        """Whether a working block is always in the context."""

    @property
    def retain(self) -> int | None:
        """How many of its versions are kept; None for all."""

    @property
    def permission(self) -> str:
        """What this agent may do with it: the least of the block's permission and the share's."""

    @property
    def version(self) -> int:
        """The number of the version that was last seen."""

    def __repr__(self) -> str: ...
    def text(self) -> str:
        """Its content as text, as it is now."""

    def value(self) -> dict[str, Any]:
        """Its content as plain values, as it is now."""

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
        """The entries of a log, newest first: those with all of some words, of an agent, of a time.

        With `trimmed` also those that went out of the document by rule, from its history.
        """

    def history(self, limit: int | None = None) -> list[Version]:
        """Its versions, newest first."""

    def at(self, version: int | None = None, *, time: datetime | None = None) -> View:
        """The block as it was at a version, or at a time."""

    def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """What changed from one version to another: without the second to the newest, without both in it."""

    def rollback(
        self, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Make it what it was at a version, as a new change: nothing is lost."""

    def undo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Take back the present version; `redo` has it again, and a new edit starts a branch."""

    def redo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Go on to the version that was last undone from here."""

    def visit(self, node: int, *, by: str | None = None) -> Version:
        """Go to any version of the tree, on whatever branch."""

    def branches(self) -> list[Branch]:
        """The lines of edits there are, newest first."""

    def checkpoint(self, name: str) -> int:
        """Give the present version a name, under which it is kept and found."""

    def checkpoints(self) -> dict[str, int]:
        """The named versions."""

    def drop_checkpoint(self, name: str) -> int:
        """Take the name from a version, which only the partner may; returns which one that was."""

    def redact(
        self, first: int, last: int | None = None, *, message: str = "", clear_messages: bool = False
    ) -> Redaction:
        """Take what a version brought out of this and every other version, for good; or several at once.

        A text is blanked letter by letter, line by line, and anything else says `[redacted]`. Who did what
        when stays in the history, with the messages of these versions unless `clear_messages`. Only the
        partner may, and nothing brings it back.
        """

    def compact(self, keep: int | None = None, *, older_than: datetime | timedelta | None = None) -> int:
        """Let go of what old versions held; returns how many. Only the partner may.

        So many of the newest are kept, and those that are younger than a time. Versions with a checkpoint are
        kept, too, and of all others the history still says who did what when.
        """

class Roster:
    """The agents of the constellation, as `library.agents`. An agent that makes a block is on it."""

    def __init__(self, library: Library) -> None: ...
    def create(self, name: str, *, description: str = "", status: str = "active") -> Agent:
        """Put an agent on the roster; its name must be free."""

    def get(self, name: str) -> Agent:
        """An agent by its name; AgentNotFound offers the names that are near."""

    def list(self, *, status: str | None = None) -> list[Agent]:
        """The agents, by name."""

    def describe(self, name: str, *, description: str | None = None, status: str | None = None) -> Agent:
        """Change what is said of an agent, or its status. Of others only who speaks for the partner may."""

class Groups:
    """The groups of the constellation, as `library.groups`. What is shared with one is for its members."""

    def __init__(self, library: Library) -> None: ...
    def create(self, name: str, *, description: str = "") -> Group:
        """Make a group, without members yet."""

    def get(self, name: str) -> Group:
        """A group with its members."""

    def list(self) -> list[Group]:
        """The groups, by name."""

    def join(
        self, group: str, agent: str, *, role: str = "regular", capabilities: tuple[str, ...] = ()
    ) -> Group:
        """Put an agent into a group, or change what it is there.

        Who is in a group has what is shared with it. So only who speaks for the partner may, or one of the
        group's supervisors.
        """

    def leave(self, group: str, agent: str) -> Group:
        """Take an agent out of a group, and with that from what is shared with the group."""

    def delete(self, name: str) -> None:
        """Remove a group, its memberships, and what was shared with it: the agents and blocks stay."""

class Authority:
    """The base of a library: in whose name it acts, and what it may do."""

    @property
    def agent(self) -> str: ...
    @property
    def trust(self) -> str: ...
    @property
    def universe(self) -> Universe: ...
    @property
    def author(self) -> str: ...
    def __init__(
        self, universe: Universe, agent: str, trust: str, consent: Consent | None, consent_s: float
    ) -> None: ...

class Cards(Authority):
    """The part of a library that keeps its blocks' cards."""

    def create(
        self,
        label: str,
        *,
        template: Given = None,
        document: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        pinned: bool = False,
        text: str | None = None,
        value: Any = None,
        owner: str | None = None,
    ) -> Block:
        """Make a block of this agent's, or of all with `owner="_constellation_"`; its label must be free.

        A template says what it holds and what is not given here. `value` is what it holds at first: the text
        of a text (or `text=`), the fields of a map, the items of a list, the sections of a composite.
        """

    def get(self, label: str, *, owner: str | None = None) -> Block:
        """A block by its label: this agent's, or one that was shared with it, or that belongs to all.

        Its own comes first. Where several others have shared one of this label, `owner` says whose.
        """

    def by_id(self, id: str) -> Block:
        """A block by its id: this agent's, or one that was shared with it, or that belongs to all."""

    def list(self, *, kind: str | None = None, shared: bool = False) -> builtins.list[Block]:
        """This agent's blocks by label; with `shared` also those of others that it may see, by owner."""

    def rename(self, label: str, to: str, *, owner: str | None = None) -> Block:
        """Give a block another label."""

    def describe(
        self,
        label: str,
        *,
        owner: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        template: Given = None,
    ) -> Block:
        """Change what a block is for, when it is in the context, how long it may be, or its permission.

        A `template` gives it another shape, for the same kind of document, which what it holds must fit; all
        else stays. What allows more than before needs somebody's consent: else an agent could give itself
        leave to change what it may only read.
        """

    def pin(self, label: str, pinned: bool = True, *, owner: str | None = None) -> Block:
        """Keep a working block in the context, or no longer."""

    def retain(self, label: str, keep: int | None, *, owner: str | None = None) -> Block:
        """Keep so many of a block's newest versions from now on, and those with a checkpoint; None for all.

        Older ones are compacted now and then, as `Block.compact` does it. Only the partner may say so.
        """

    def view(
        self, label: str, start: int = 1, lines: int | None = None, *, owner: str | None = None
    ) -> Block:
        """Show only some lines of a long text in the context, from one on; without `lines` all of it."""

    def delete(self, label: str, *, owner: str | None = None) -> None:
        """Remove a block; its label is free at once, and `restore` brings it back with its history."""

    def restore(self, label: str, *, to: str | None = None) -> Block:
        """Bring back the block of a label that was deleted last, perhaps under another label.

        It has its history and its shares as before. LabelTaken when another block has the label now.
        """

    def deleted(self) -> builtins.list[str]:
        """The labels of this agent's deleted blocks, the last one first."""

class Library(Cards):
    """The blocks of one agent in a universe: `Library(u, agent="scout")`.

    `trust` is that of whoever uses this handle. `consent` is asked where a block's permission wants the
    partner or a human to agree; without one, or without an answer within `consent_s`, nothing is done.
    """

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
    def share(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        permission: str = "append",
        owner: str | None = None,
    ) -> None:
        """Give a block to another agent, or to the members of a group; once more changes the permission."""

    def unshare(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """Take a block back from an agent or a group; False when it was not shared with them."""

    def shared(self) -> builtins.list[Share]:
        """What this agent has given to others and what others have given to it, its own first."""

    def refusals(self, limit: int = 100) -> builtins.list[Refusal]:
        """What this agent was refused, and what others were refused of its blocks; newest first."""

    def notices(self, *, mark: bool = False) -> builtins.list[Notice]:
        """What others did to the blocks that this agent may see, since it last looked, with the difference.

        With `mark` it has looked now: they are told once.
        """

    def activity(self, since: int | datetime | None = None, *, limit: int = 50) -> builtins.list[Activity]:
        """Who did what to blocks that this agent may see, since a commit or a time; newest first.

        Also to its archival entries, and to the crumbs and trails of the store, which belong to all agents.
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
        """The memory part of a prompt: core blocks, working blocks that are pinned or referenced, and logs.

        It is never more than `budget_tokens`, as `tokens` counts them; what is cut is named at the end, and
        a block of a higher priority is cut later. With `changes` it ends with what others did to these blocks
        since the agent last looked, and `mark` keeps that it has looked now. With `since`, a commit or a
        time, it has the newest of what was done after that.
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
        """As `render`, with how many tokens it is and which blocks are whole, shortened and cut."""

    def log_tool(
        self, tool: str, result: Any = None, *, ok: bool = True, label: str = rolling.LABEL
    ) -> Version:
        """Note in the agent's rolling log that a tool was used, and what came of it."""

    def log_event(self, event: str, details: Any = None, *, label: str = rolling.LABEL) -> Version:
        """Note in the agent's rolling log that something happened."""

    def log_summary(self, summary: str, count: int | None = None, *, label: str = rolling.LABEL) -> Version:
        """Note in the agent's rolling log what so many messages came to."""

    def sync(
        self,
        folder: str | os.PathLike[str],
        *,
        by: str | None = None,
        dry_run: bool = False,
        wait_s: float = syncing.WAIT_S,
    ) -> FolderReport:
        """Make a folder of files and the blocks that this agent may see agree.

        Each block is a file that can be edited, and a small one that describes it. What was edited in them
        is taken in through the gate as versions by `by`, merged with what happened to the blocks since;
        then files are written anew. With `dry_run` it is only told what would be done.
        """

    def follow_folder(
        self, folder: str | os.PathLike[str], *, every: float = 1.0, by: str | None = None
    ) -> Stream[FolderReport]:
        """Sync a folder every so many seconds, as long as it is asked; gives each report that has news."""

    def archive(self, text: str, *, tags: Iterable[str] = ()) -> Entry:
        """Put a text away, to be found by search."""

    def archived(self, id: str) -> Entry:
        """An archival entry of this agent."""

    def unarchive(self, id: str, *, forget: bool = False) -> None:
        """Delete an archival entry. History has it still; `forget`, for the partner alone, leaves none."""

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        kind: str | None = None,
        owner: str | None = None,
        tags: Iterable[str] = (),
    ) -> builtins.list[Hit]:
        """Find a text in the blocks and archival entries that this agent may see, the best first.

        Any text can be searched for: what is no letter or digit sets words apart. `kind` is core, working,
        archival, log, or entry; `tags` are those of entries.
        """
