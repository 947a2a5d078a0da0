"""The block: a memory document of an agent, with every version of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from dgent import clock, ids
from dgent.blocks import errors
from dgent.blocks.access.permission import Permit
from dgent.blocks.access.standing import Card, Standing
from dgent.blocks.document import diff as diffs
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.diff import Diff
from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import Wanted, counted
from dgent.blocks.document.entries import trimmed as gone
from dgent.blocks.document.redact import Redaction
from dgent.blocks.document.render import contents, rendered
from dgent.blocks.document.shape import Shape
from dgent.blocks.document.splice import counts
from dgent.blocks.document.validate import check_growth, measure
from dgent.blocks.edit.editable import Change
from dgent.blocks.edit.section import Edits, Section
from dgent.blocks.history import rewrite, version
from dgent.blocks.history.join import is_over_limit, unflagged
from dgent.blocks.history.log import Chain
from dgent.blocks.history.retain import retained, tidy
from dgent.blocks.history.version import Branch, Version
from dgent.blocks.record import CheckpointRecord, VersionRecord, checkpoint_id
from dgent.errors import Conflict, DgentError, InputError, VersionConflict
from dgent.model.query import Query
from dgent.store.backend import Op
from dgent.universe import write
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.blocks.access.authority import Authority


@dataclass(frozen=True)
class View:
    """A block as it was at a version; it can only be read."""

    label: str
    version: int
    text: str
    value: dict[str, Any]

    def __str__(self) -> str:
        return self.text


class _Overtaken(VersionConflict):
    """An edit builds on what is not there any more, and must be made again."""


class Block(Edits):
    """A block as one agent may use it. Each call that changes it is one version."""

    def __init__(self, library: Authority, standing: Standing, chain: Chain | None = None) -> None:
        self._library, self._standing = library, standing
        self._read: tuple[Card, Shape] | None = None
        self._measurement: tuple[Document, str, Card, str] | None = None
        self._chain = Chain(library._universe, standing.card.id) if chain is None else chain

    @property
    def _card(self) -> Card:
        """Its card, as it was when it was last looked at."""
        return self._standing.card

    @property
    def _shape(self) -> Shape:
        """What its document may hold, by its card."""
        card = self._card
        if self._read is None or self._read[0] is not card:
            self._read = card, shapes.load(card.value.document, card.value.shape)
        return self._read[1]

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
    def template(self) -> str:
        """The name of the template it was made after; empty without one."""
        return self._card.value.template

    @property
    def shape(self) -> Shape:
        """What its document may hold."""
        return self._shape

    def section(self, name: str) -> Section:
        """A part of a composite, which is edited like a block."""
        return Section(self, self._shape.section(name))

    @property
    def limit(self) -> int:
        """How many characters it may have."""
        return self._card.value.limit

    @property
    def over_limit(self) -> bool:
        """Whether a merge made it longer than its limit: then it can only become shorter, until it fits."""
        return is_over_limit(self._card.value)

    @property
    def pinned(self) -> bool:
        """Whether a working block is always in the context."""
        return self._card.value.pinned

    @property
    def retain(self) -> int | None:
        """How many of its versions are kept; None for all."""
        return retained(self._card.value)

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
        return self._rendered(await self._document())

    async def value(self) -> dict[str, Any]:
        """Its content as plain values, as it is now."""
        document = await self._document()
        return contents(self._shape, document)

    async def entries(
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
        document = await self._document()
        self._needs("log", "entries")
        wanted = Wanted(contains, agent, since, until)
        found = [each for each in document.newest_entries() if wanted.matches(each)]
        if trimmed and (limit is None or len(found) < limit):
            found += [each for each in gone(document, self._body()) if wanted.matches(each)]
        return found[:limit]

    async def _document(self) -> Document:
        await self._library._check(self, "read", "read")
        await self._chain.refresh()
        return self._chain.document

    async def history(self, limit: int | None = None) -> list[Version]:
        """Its versions, newest first."""
        await self._library._check(self, "read", "history")
        chain = self._chain
        found = await (chain.versions() if limit is None else chain.newest_versions(limit))
        return found[::-1]

    async def at(self, version: int | None = None, *, time: datetime | None = None) -> View:
        """The block as it was at a version, or at a time."""
        await self._library._check(self, "read", "history")
        number = await self._number(version, time)
        return self._view(number, await self._chain.at(number))

    def _view(self, number: int, document: Document) -> View:
        return View(self.label, number, self._rendered(document), contents(self._shape, document))

    async def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """What changed from one version to another: without the second to the newest, without both in it."""
        await self._library._check(self, "read", "history")
        await self._chain.refresh()
        newest = self._chain.number if after is None else after
        older = await self.at(max(newest - 1, 1) if before is None else before)
        return self._difference(older, await self.at(newest))

    def _difference(self, older: View, newer: View) -> Diff:
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
        versions = await self._chain.versions()
        # One that came by a merge has the time of its origin: it counts from where it stands.
        before = list(takewhile(lambda each: each.at <= time, versions))
        if not before:
            raise errors.VersionNotFound(f"{self.label!r} was not there at {time}")
        return before[-1].number

    # -- going back ---------------------------------------------------------------------------

    async def rollback(
        self, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Make it what it was at a version, as a new change: nothing is lost."""
        permit = await self._library._check(self, "overwrite", "rollback")
        return await self._edit(
            "rollback",
            "overwrite",
            await self._back(await self._chain.find(_whole(to))),
            by,
            message or f"back to version {to}",
            expect,
            permit=permit,
        )

    async def undo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Take back the present version; `redo` has it again, and a new edit starts a branch."""

        async def before() -> tuple[int, int]:
            await self._chain.refresh()
            here = self._chain.tail[-1]
            return (await self._chain.find(here.node)).parent, here.number

        return await self._move("undo", before, by, expect)

    async def redo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Go on to the version that was last undone from here."""

        async def after() -> tuple[int, int]:
            versions = await self._chain.versions()
            return version.redone(versions) or 0, versions[-1].number

        return await self._move("redo", after, by, expect)

    async def visit(self, node: int, *, by: str | None = None) -> Version:
        """Go to any version of the tree, on whatever branch."""

        async def there() -> tuple[int, int]:
            await self._chain.refresh()
            return _whole(node), self._chain.number

        return await self._move("visit", there, by, None)

    async def branches(self) -> list[Branch]:
        """The lines of edits there are, newest first."""
        await self._library._check(self, "read", "history")
        return version.branches(await self._chain.versions())

    async def _move(
        self, op: str, where: Callable[[], Awaitable[tuple[int, int]]], by: str | None, expect: int | None
    ) -> Version:
        """Make it what it was at a node of the tree: `where` says which, and at which version it says so."""
        permit = await self._library._check(self, "overwrite", op)
        node, newest = await where()
        if node < 1:
            raise errors.VersionNotFound(f"there is nothing to {op} in {self.label!r}")
        target = await self._chain.find(node)
        return await self._edit(
            op,
            "overwrite",
            await self._back(target),
            by,
            f"{op} to version {target.node}",
            newest if expect is None else expect,
            node=target.node,
            permit=permit,
        )

    async def _back(self, target: Version) -> Change:
        """The change to what it was at a version, which may be far away, or not in the document's history."""
        if self._chain.document.can_revert_to(target.frontiers):
            return self._counted(lambda document: document.revert_to(target.frontiers))
        old = await self._chain.at(target.number)
        return self._counted(lambda document: document.become(old))

    def _counted(self, change: Change) -> Change:
        return counted(change, self._body()) if self.document_kind == "log" else change

    async def checkpoint(self, name: str) -> int:
        """Give the present version a name, under which it is kept and found."""
        permit = await self._library._check(self, "append", "checkpoint")
        await self._chain.refresh()
        number = self._chain.number
        record = CheckpointRecord(self.id, ids.check_name(name, "name"), number)

        async def work(tx: Transaction) -> None:
            await permit.renew(tx)
            await tx.remember(record, id=checkpoint_id(self.id, name))

        try:
            await self._library._universe.transact(work, note=f"checkpoint {name} of {self.label}")
        except VersionConflict:
            raise errors.NameTaken(f"{self.label!r} has a checkpoint {name!r} already", name=name) from None
        return number

    async def checkpoints(self) -> dict[str, int]:
        """The named versions."""
        await self._library._check(self, "read", "history")
        return await self._checkpoints()

    async def _checkpoints(self) -> dict[str, int]:
        query = Query(schema="block.checkpoint", where={"block": self.id}, descending=False, limit=None)
        found = await self._library._universe.recall(query)
        return {each.value.name: each.value.version for each in found}

    async def drop_checkpoint(self, name: str) -> int:
        """Take the name from a version, which only the partner may; returns which one that was."""
        permit = await self._library._check(self, "erase", "drop_checkpoint")
        id = checkpoint_id(self.id, ids.check_name(name, "name"))

        async def work(tx: Transaction) -> int:
            await permit.renew(tx)
            found = await tx.get(id)
            if found is None:
                raise errors.VersionNotFound(f"{self.label!r} has no checkpoint {name!r}", name=name)
            await tx.delete(id)
            return int(found.value.version)

        return await self._library._universe.transact(work, note=f"drop checkpoint {name} of {self.label}")

    # -- letting go ---------------------------------------------------------------------------

    async def redact(
        self, first: int, last: int | None = None, *, message: str = "", clear_messages: bool = False
    ) -> Redaction:
        """Take what a version brought out of this and every other version, for good; or several at once.

        A text is blanked letter by letter, line by line, and anything else says `[redacted]`. Who did what
        when stays in the history, with the messages of these versions unless `clear_messages`. Only the
        partner may, and nothing brings it back.
        """
        permit = await self._library._check(self, "erase", "redact")
        numbers = range(_whole(first), _whole(first if last is None else last) + 1)
        if not numbers or first < 1:
            raise InputError(f"there are no versions from {first} to {last}", field="last")
        what = f"versions {first} to {last}" if len(numbers) > 1 else f"version {first}"
        by = self._library.agent
        said = message or f"redact {what}"
        return await rewrite.redact(self._chain, numbers, by, said, permit, clear_messages)

    async def compact(
        self, keep: int | None = None, *, older_than: datetime | timedelta | None = None
    ) -> int:
        """Let go of what old versions held; returns how many. Only the partner may.

        So many of the newest are kept, and those that are younger than a time. Versions with a checkpoint are
        kept, too, and of all others the history still says who did what when.
        """
        permit = await self._library._check(self, "erase", "compact")
        versions = await self._chain.versions()
        before = _oldest_kept(versions, keep, older_than)
        return await rewrite.compact(self._chain, before, await self._named(), self._library.agent, permit)

    async def _named(self) -> frozenset[int]:
        """The versions that have a name."""
        return frozenset((await self._checkpoints()).values())

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
        done = await self._made(op, permit, change, author, message, expect, node)
        await tidy(self, permit, done.number)
        return done

    async def _made(
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
        async with chain.alone:
            await chain.catch_up()
            try:
                return await self._try(op, permit, change, author, message, expect, node)
            except (InputError, VersionConflict) as error:
                # The card that is kept in memory may be behind: look again before saying that it cannot be.
                known = self._card.rev
                await permit.renew()
                if self._card.rev == known and not isinstance(error, _Overtaken):
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
            items = measure(self._shape, chain.document)
            change(chain.document)
            update = chain.document.take_update()
            if not update:
                return chain.tail[-1]
            tally = chain.document.tally()
            while True:
                after, length = self._measured(chain.document)
                self._fits(size, length)
                check_growth(items, measure(self._shape, chain.document))
                told = any(tally) or before is None or after is None
                added, removed = tally if told else counts(before or "", after or "")
                record = self._recorded(op, node, length, added, removed, message)
                try:
                    done = await chain.write(record, update, author, self._checks(permit, length))
                except VersionConflict as conflict:
                    if not permit.is_of(conflict):
                        raise
                    shape = self._shape
                    await permit.renew()  # the card or the share is another one now: it may not be allowed
                    if self._shape != shape:  # and this edit was judged by what the block was
                        raise Conflict(f"{self.label!r} has another template now", hint="try again") from None
                    continue
                if done is not None:
                    if self.over_limit and length <= self.limit:
                        with suppress(DgentError):  # it is stored, whatever became of the leave since
                            await permit.renew()  # the card is another one now
                    return done
                if not await chain.rebase(update):
                    raise _Overtaken("the history was compacted meanwhile", id=self.id)
                self._expected(expect)
        except BaseException:
            chain.forget()  # what was done to the document in memory is not what is stored
            raise

    def _checks(self, permit: Permit, length: int) -> list[Op]:
        """What an edit rests on; one that makes the block short enough takes the flag off its card."""
        if not self.over_limit or length > self.limit:
            return permit.checks()
        card = self._card
        op, _ = write.store_op(self._library._universe.contracts, unflagged(card), card.rev)
        return [op, *(each for each in permit.checks() if each.id != card.id)]

    def _measured(self, document: Document) -> tuple[str | None, int]:
        """A document's text and its length; of a text only the length, which costs nothing."""
        if self.document_kind == "text":
            return None, document.length()
        # What an edit leaves is what the next one begins with.
        frontiers, card, known = document.frontiers, self._card, self._measurement
        if known is None or known[0] is not document or known[1] != frontiers or known[2] is not card:
            self._measurement = known = document, frontiers, card, self._rendered(document)
        return known[3], len(known[3])

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
        return rendered(self._shape, document, self.limit)

    def _held(self) -> Document:
        return self._chain.document

    def _stamped(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        return self._library._stamped(entry, by)

    def _title(self) -> str:
        return repr(self.label)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise InputError(f"a version is a whole number, not {value!r}", field="version")
    return value


def _oldest_kept(versions: list[Version], keep: int | None, older_than: datetime | timedelta | None) -> int:
    """The number of the oldest version that a rule keeps."""
    if keep is None and older_than is None:
        raise InputError("nothing says what to keep", hint="give keep= or older_than=")
    if keep is not None and (type(keep) is not int or keep < 1):
        raise InputError(f"keep is a number of versions from 1, not {keep!r}", field="keep")
    moment = clock.now() - older_than if isinstance(older_than, timedelta) else older_than
    if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
        raise InputError(f"older_than is a time or how long ago, not {older_than!r}", field="older_than")
    newest = versions[-1].number
    edits = [each.number for each in versions if each.op not in version.REWRITES]
    by_count = newest if keep is None or not edits else edits[-min(keep, len(edits))]
    young = (each.number for each in versions if moment is None or each.at >= moment)
    return min(by_count, newest if moment is None else next(young, newest))
