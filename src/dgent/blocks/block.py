"""The block: a memory document of an agent, with every version of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dgent import ids
from dgent.blocks import diff as diffs
from dgent.blocks import errors, version
from dgent.blocks.access import Card, Standing
from dgent.blocks.chain import Chain
from dgent.blocks.diff import Diff
from dgent.blocks.document import Document, counts
from dgent.blocks.form import rendered
from dgent.blocks.patch import patched
from dgent.blocks.permit import Permit
from dgent.blocks.record import CheckpointRecord, VersionRecord
from dgent.blocks.version import Branch, Version
from dgent.errors import InputError, VersionConflict
from dgent.model.query import Query
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.blocks.library import Library

Change = Callable[[Document], None]


@dataclass(frozen=True)
class View:
    """A block as it was at a version; it can only be read."""

    label: str
    version: int
    text: str
    value: dict[str, Any]

    def __str__(self) -> str:
        return self.text


class Block:
    """A block as one agent may use it. Each call that changes it is one version."""

    def __init__(self, library: Library, standing: Standing) -> None:
        self._library, self._standing = library, standing
        self._chain = Chain(library._universe, standing.card.id)

    @property
    def _card(self) -> Card:
        """Its card, as it was when it was last looked at."""
        return self._standing.card

    # -- what it is ---------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id."""
        return self._card.id

    @property
    def owner(self) -> str:
        """The agent it belongs to."""
        return self._card.value.owner

    @property
    def label(self) -> str:
        """Its name, which only this agent's blocks share."""
        return self._card.value.label

    @property
    def description(self) -> str:
        """What belongs into it."""
        return self._card.value.description

    @property
    def kind(self) -> str:
        """core, working, archival or log: when it is in the context."""
        return self._card.value.kind

    @property
    def document_kind(self) -> str:
        """text, map, list, log, tree, counter or composite."""
        return self._card.value.document

    @property
    def limit(self) -> int:
        """How many characters it may have."""
        return self._card.value.limit

    @property
    def pinned(self) -> bool:
        """Whether a working block is always in the context."""
        return self._card.value.pinned

    @property
    def permission(self) -> str:
        """What this agent may do with it: the least of the block's permission and the share's."""
        return self._standing.permission

    @property
    def version(self) -> int:
        """The number of the version that was last seen."""
        return self._chain.number

    def __repr__(self) -> str:
        return f"<Block {self.owner}/{self.label} version {self.version}>"

    # -- reading ------------------------------------------------------------------------------

    async def text(self) -> str:
        """Its content as text, as it is now."""
        await self._library._check(self, "read", "read")
        await self._chain.refresh()
        return self._rendered(self._chain.document)

    async def value(self) -> dict[str, Any]:
        """Its content as plain values, as it is now."""
        await self._library._check(self, "read", "read")
        await self._chain.refresh()
        return self._chain.document.value()

    async def history(self, limit: int | None = None) -> list[Version]:
        """Its versions, newest first."""
        await self._library._check(self, "read", "history")
        found = await self._chain.versions()
        return found[::-1][:limit]

    async def at(self, version: int | None = None, *, time: datetime | None = None) -> View:
        """The block as it was at a version, or at a time."""
        await self._library._check(self, "read", "history")
        number = await self._number(version, time)
        document = await self._chain.at(number)
        return View(self.label, number, self._rendered(document), document.value())

    async def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """What changed from one version to another: without the second to the newest, without both in it."""
        await self._library._check(self, "read", "history")
        await self._chain.refresh()
        newest = self._chain.number if after is None else after
        older = await self.at(max(newest - 1, 1) if before is None else before)
        newer = await self.at(newest)
        names = (f"{self.label} version {older.version}", f"{self.label} version {newer.version}")
        changes = () if self.document_kind == "text" else diffs.structured(older.value, newer.value)
        return Diff(older.version, newer.version, diffs.lines(older.text, newer.text, names), tuple(changes))

    async def _number(self, number: int | None, time: datetime | None) -> int:
        if (number is None) == (time is None):
            raise InputError("a view is of a version or of a time", hint="give one of version= and time=")
        if number is not None:
            if type(number) is not int:
                raise InputError(f"a version is a whole number, not {number!r}", field="version")
            return number
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise InputError(f"a time is an aware datetime, not {time!r}", field="time")
        before = [each.number for each in await self._chain.versions() if each.at <= time]
        if not before:
            raise errors.VersionNotFound(f"{self.label!r} was not there at {time}")
        return before[-1]

    # -- changing -----------------------------------------------------------------------------

    async def append(
        self, text: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add to its end: text to a text, an item to a list, an entry to a log."""
        kind = self.document_kind
        if kind == "text":
            wanted = _text(text)
            return await self._edit(
                "append",
                "append",
                lambda document: document.splice(document.length(), 0, wanted),
                by,
                message,
                expect,
            )
        if kind == "list":
            return await self.insert_item(text, by=by, message=message, expect=expect)
        if kind == "log":
            return await self.log(text, by=by, message=message)
        raise self._wrong("append")

    async def write(
        self, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace all of a text; what both have in common stays as it is."""
        self._needs("text", "write")
        wanted = _text(text)
        return await self._edit(
            "write", "overwrite", lambda document: document.write(wanted), by, message, expect
        )

    async def replace(
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
        self._needs("text", "replace")
        places = _places(_text(old), _text(new), which, regex)

        def change(document: Document) -> None:
            found = places(document.text())
            for start, length, text in reversed(found):
                document.splice(start, length, text)

        return await self._edit("replace", "overwrite", change, by, message, expect)

    async def edit_range(
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
        self._needs("text", "edit_range")
        wanted = _text(text)

        def change(document: Document) -> None:
            lines = document.text().splitlines(keepends=True)
            if not 1 <= start <= end <= max(len(lines), 1):
                raise errors.NoMatch(f"there are {len(lines)} lines, so none from {start} to {end}")
            first = sum(map(len, lines[: start - 1]))
            length = sum(map(len, lines[start - 1 : end]))
            tail = (
                "\n"
                if wanted and not wanted.endswith("\n") and "".join(lines[start - 1 : end]).endswith("\n")
                else ""
            )
            document.splice(first, length, wanted + tail)

        return await self._edit("edit_range", "overwrite", change, by, message, expect)

    async def patch(
        self, patch: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Apply a unified difference; every line of its context must be there."""
        self._needs("text", "patch")
        wanted = _text(patch)
        return await self._edit(
            "patch",
            "overwrite",
            lambda document: document.write(patched(document.text(), wanted)),
            by,
            message,
            expect,
        )

    async def insert_item(
        self,
        value: Any,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Put an item into a list, at its end without a place."""
        self._needs("list", "insert_item")

        def change(document: Document) -> None:
            count = len(document.items())
            document.insert_item(_index(place, count + 1, count), value)

        return await self._edit("insert_item", "append", change, by, message, expect)

    async def log(self, entry: Any, *, by: str | None = None, message: str = "") -> Version:
        """Add an entry to a log, stamped with the time and the agent."""
        self._needs("log", "log")
        stamped = self._library._stamped(entry, by)
        return await self._edit(
            "log", "append", lambda document: document.append_entry(stamped), by, message, None
        )

    # -- going back ---------------------------------------------------------------------------

    async def rollback(
        self, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Make it what it was at a version, as a new change: nothing is lost."""
        permit = await self._library._check(self, "overwrite", "rollback")
        target = await self._chain.find(_whole(to))
        return await self._edit(
            "rollback",
            "overwrite",
            lambda document: document.revert_to(target.frontiers),
            by,
            message or f"back to version {to}",
            expect,
            permit=permit,
        )

    async def undo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Take back the present version; `redo` has it again, and a new edit starts a branch."""
        return await self._move("undo", version.undone, by, expect)

    async def redo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Go on to the version that was last undone from here."""
        return await self._move("redo", version.redone, by, expect)

    async def visit(self, node: int, *, by: str | None = None) -> Version:
        """Go to any version of the tree, on whatever branch."""
        return await self._move("visit", lambda _versions: _whole(node), by, None)

    async def branches(self) -> list[Branch]:
        """The lines of edits there are, newest first."""
        await self._library._check(self, "read", "history")
        return version.branches(await self._chain.versions())

    async def _move(
        self, op: str, where: Callable[[list[Version]], int | None], by: str | None, expect: int | None
    ) -> Version:
        permit = await self._library._check(self, "overwrite", op)
        versions = await self._chain.versions()
        node = where(versions)
        if node is None or node < 1:
            raise errors.VersionNotFound(f"there is nothing to {op} in {self.label!r}")
        target = await self._chain.find(node)
        return await self._edit(
            op,
            "overwrite",
            lambda document: document.revert_to(target.frontiers),
            by,
            f"{op} to version {target.node}",
            versions[-1].number if expect is None else expect,
            node=target.node,
            permit=permit,
        )

    async def checkpoint(self, name: str) -> int:
        """Give the present version a name, under which it is kept and found."""
        permit = await self._library._check(self, "append", "checkpoint")
        await self._chain.refresh()
        number = self._chain.number
        record = CheckpointRecord(self.id, ids.check_name(name, "name"), number)

        async def work(tx: Transaction) -> None:
            await permit.renew(tx)
            await tx.remember(record, id=f"{self.id}/c/{name}")

        try:
            await self._library._universe.transact(work, note=f"checkpoint {name} of {self.label}")
        except VersionConflict:
            raise errors.NameTaken(f"{self.label!r} has a checkpoint {name!r} already", name=name) from None
        return number

    async def checkpoints(self) -> dict[str, int]:
        """The named versions."""
        await self._library._check(self, "read", "history")
        query = Query(schema="block.checkpoint", where={"block": self.id}, descending=False, limit=None)
        found = await self._library._universe.recall(query)
        return {each.value.name: each.value.version for each in found}

    # -- how a change goes ----------------------------------------------------------------------

    async def _edit(
        self,
        op: str,
        operation: str,
        change: Change,
        by: str | None,
        message: str,
        expect: int | None,
        node: int | None = None,
        permit: Permit | None = None,
    ) -> Version:
        """Make a change as the next version: checked, within the limit, whole or not at all."""
        author = await self._library._author(self, op, by)
        permit = permit or await self._library._check(self, operation, op)
        chain = self._chain
        async with chain.alone:
            fresh = not chain.loaded
            if fresh:
                await chain.renew()
            try:
                return await self._try(op, permit, change, author, message, expect, node)
            except (InputError, VersionConflict):
                # What is kept in memory may be behind: look again before saying that it cannot be done.
                known = self._card.rev
                await permit.renew()
                if fresh and self._card.rev == known:
                    raise
                await chain.renew()
                return await self._try(op, permit, change, author, message, expect, node)

    async def _try(
        self,
        op: str,
        permit: Permit,
        change: Change,
        author: str,
        message: str,
        expect: int | None,
        node: int | None,
    ) -> Version:
        chain = self._chain
        try:
            self._expected(expect)
            before, size = self._measured(chain.document)
            change(chain.document)
            update = chain.document.take_update()
            if not update:
                return chain.tail[-1]
            tally = chain.document.tally()
            while True:
                after, length = self._measured(chain.document)
                self._fits(size, length)
                added, removed = tally if after is None or before is None else counts(before, after)
                record = self._recorded(op, node, length, added, removed, message)
                try:
                    done = await chain.write(record, update, author, permit.checks())
                except VersionConflict as conflict:
                    if not permit.is_of(conflict):
                        raise
                    await permit.renew()  # the card or the share is another one now: it may not be allowed
                    continue
                if done is not None:
                    return done
                await chain.rebase(update)
                self._expected(expect)
        except BaseException:
            chain.forget()  # what was done to the document in memory is not what is stored
            raise

    def _measured(self, document: Document) -> tuple[str | None, int]:
        """A document's text and its length; of a text only the length, which costs nothing."""
        if self.document_kind == "text":
            return None, document.length()
        text = self._rendered(document)
        return text, len(text)

    def _recorded(
        self, op: str, node: int | None, size: int, added: int, removed: int, message: str
    ) -> VersionRecord:
        chain = self._chain
        here = chain.tail[-1].node if chain.tail else 0
        at = chain.number + 1 if node is None else node
        return VersionRecord(op, at, here, size, added, removed, chain.document.frontiers, message[:1000])

    def _expected(self, expect: int | None) -> None:
        if expect is not None and expect != self._chain.number:
            raise VersionConflict(
                f"the block {self.label!r} is at version {self._chain.number}, not {expect}",
                hint="read it again, and decide",
                id=self.id,
                version=self._chain.number,
            )

    def _fits(self, before: int, after: int) -> None:
        if after > self.limit and after > before:
            raise errors.LimitExceeded(
                f"the block {self.label!r} would have {after} characters; its limit is {self.limit}",
                size=after,
                limit=self.limit,
            )

    def _rendered(self, document: Document) -> str:
        card = self._card.value
        return rendered(card.document, card.shape, document)

    def _needs(self, kind: str, operation: str) -> None:
        if self.document_kind != kind:
            raise self._wrong(operation)

    def _wrong(self, operation: str) -> errors.WrongKind:
        return errors.WrongKind(f"{operation} is not for a {self.document_kind}, which {self.label!r} is")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"text is needed, not a {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode") from None
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise InputError(f"a version is a whole number, not {value!r}", field="version")
    return value


def _index(place: int | None, count: int, default: int) -> int:
    if place is None:
        return default
    if type(place) is not int or not -count <= place < count:
        raise errors.NoMatch(f"there is no place {place!r} among {count}")
    return place % count


def _places(old: str, new: str, which: str | int, regex: bool) -> Callable[[str], list[tuple[int, int, str]]]:
    """A function that finds what to replace in a text, in order: start, length, and what comes instead."""
    if not old:
        raise InputError("what to replace must not be empty", field="old")
    try:
        pattern = re.compile(old if regex else re.escape(old))
    except re.error as error:
        raise InputError(f"{old!r} is no pattern: {error}", field="old") from None

    def find(text: str) -> list[tuple[int, int, str]]:
        found = []
        for match in pattern.finditer(text):
            try:
                instead = match.expand(new) if regex else new
            except (re.error, IndexError) as error:
                raise InputError(f"{new!r} cannot be put there: {error}", field="new") from None
            found.append((match.start(), match.end() - match.start(), instead))
            if which == "first":
                break
        if not found:
            raise errors.NoMatch(f"{old!r} is not there")
        if which in ("first", "all"):
            return found
        if type(which) is not int or not 1 <= which <= len(found):
            raise errors.NoMatch(f"{old!r} is there {len(found)} times, so there is no place {which!r}")
        return [found[which - 1]]

    return find
