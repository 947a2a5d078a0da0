"""The block: a memory document of an agent, with every version of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from dgent import clock, ids
from dgent.blocks import errors
from dgent.blocks.access.actor import BlockPermission, Header, is_active
from dgent.blocks.access.permission import AgentPermissions, PermissionCheck
from dgent.blocks.document.diff import Diff, compare_lines, compare_values
from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import EntryFilter, count_change, list_trimmed
from dgent.blocks.document.redact import Redaction
from dgent.blocks.document.render import contents, render_document
from dgent.blocks.document.shape import Shape, load_shape
from dgent.blocks.document.splice import count_changes
from dgent.blocks.document.validate import check_growth, measure
from dgent.blocks.edit.edit import Change, Edit, Part
from dgent.blocks.edit.editable import Editable, Section
from dgent.blocks.history import rewrite, version
from dgent.blocks.history.join import clear_over_limit, is_over_limit
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.retain import apply_retain, get_retain
from dgent.blocks.history.version import Branch, Version, View
from dgent.blocks.record import CheckpointRecord, VersionRecord, checkpoint_id
from dgent.errors import Conflict, DgentError, InputError, VersionConflict
from dgent.model.query import Query
from dgent.store.backend import Op
from dgent.universe import write
from dgent.universe.transaction import Transaction


class Block(Editable):
    """A block as one agent may use it; each call that changes it is one version."""

    def __init__(
        self,
        permissions: AgentPermissions,
        block_permission: BlockPermission,
        log: VersionLog | None = None,
    ) -> None:
        self._permissions, self._block_permission = permissions, block_permission
        self._read: tuple[Header, Shape] | None = None
        self._measurement: tuple[Document, str, Header, str] | None = None
        self._version_log = log or permissions.logs.take(block_permission.header.id)

    def __del__(self) -> None:
        if hasattr(self, "_version_log"):
            self._permissions.logs.give_back(self._version_log)

    @property
    def _header(self) -> Header:
        """Its header, as last read."""
        return self._block_permission.header

    @property
    def _block(self) -> Block:
        return self

    def _part(self) -> Part:
        header = self._header.value
        return Part(self.shape, header.limit, header.label)

    # -- properties ---------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id."""
        return self._header.id

    @property
    def owner(self) -> str:
        """The agent it belongs to."""
        return self._header.value.owner

    @property
    def label(self) -> str:
        """Its name, unique among the blocks of its owner."""
        return self._header.value.label

    @property
    def description(self) -> str:
        """The purpose of the block, for the agent."""
        return self._header.value.description

    @property
    def kind(self) -> str:
        """The kind: core, working, archival or log. It decides when the block is in the context."""
        return self._header.value.kind

    @property
    def template(self) -> str:
        """The name of the template it was created from; empty without one."""
        return self._header.value.template

    @property
    def shape(self) -> Shape:
        """The shape of its document: the fields, items, entries or sections it may hold."""
        header = self._header
        if self._read is None or self._read[0] is not header:
            self._read = header, load_shape(header.value.document, header.value.shape)
        return self._read[1]

    def section(self, name: str) -> Section:
        """Return a section of a composite, which is edited like a block."""
        return Section(self, self.shape.section(name))

    @property
    def limit(self) -> int:
        """The most characters it may have."""
        return self._header.value.limit

    @property
    def over_limit(self) -> bool:
        """True when a merge made it longer than its limit; then edits may only shorten it until it fits."""
        return is_over_limit(self._header.value)

    @property
    def pinned(self) -> bool:
        """True when a working block is always in the context."""
        return self._header.value.pinned

    @property
    def retain(self) -> int | None:
        """The number of versions it keeps; None for all."""
        return get_retain(self._header.value)

    @property
    def permission(self) -> str:
        """The permission of this agent: the least of the block's and the share's."""
        return self._block_permission.permission

    @property
    def version(self) -> int:
        """The number of the newest version that was read."""
        return self._version_log.number

    def __repr__(self) -> str:
        return f"<Block {self.owner}/{self.label} version {self.version}>"

    # -- reading ------------------------------------------------------------------------------

    async def text(self) -> str:
        """Return its current content as text."""
        return self._render(await self._document())

    async def value(self) -> dict[str, Any]:
        """Return its current content as plain values."""
        document = await self._document()
        return contents(self.shape, document)

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
        """Return the entries of a log, newest first, filtered by words, agent and time.

        With `trimmed` also the entries that the log's rule removed, from its history.
        """
        document = await self._document()
        part = self._part()
        part.require_kind("log", "entries")
        wanted = EntryFilter(contains, agent, since, until)
        found = [each for each in document.newest_entries() if wanted.matches(each)]
        if trimmed and (limit is None or len(found) < limit):
            found += [each for each in list_trimmed(document, part.body) if wanted.matches(each)]
        return found[:limit]

    async def current(self) -> View:
        """Return its current content: version, text and value of one moment."""
        document = await self._document()
        return self._view(self._version_log.number, document)

    async def _document(self) -> Document:
        """Return the current document of a block that the agent may read now."""
        log, permission = self._version_log, PermissionCheck(self._permissions, self, "read", "read")
        async with log.lock:
            if self._permissions.actor.owns(self.owner) and (newest := log.newest_ids()):
                # One read proves both: the permission, and that what is in memory is what is stored.
                header, *found = await self._permissions.universe.get_many([self.id, *newest])
                if is_active(header) and log.is_newest_by(found):
                    await permission.settle(self._permissions.actor.own_permission(header))
                    return log.document
            await permission.renew()
            await log.refresh_locked()
            return log.document

    async def history(self, limit: int | None = None) -> list[Version]:
        """Return its versions, newest first."""
        await self._permissions.check(self, "read", "history")
        log = self._version_log
        found = await (log.versions() if limit is None else log.newest_versions(limit))
        return found[::-1]

    async def at(self, version: int | None = None, *, time: datetime | None = None) -> View:
        """Return the block as it was at a version or at a time."""
        await self._permissions.check(self, "read", "history")
        number = await self._resolve_version(version, time)
        return self._view(number, await self._version_log.at(number))

    def _view(self, number: int, document: Document) -> View:
        return View(self.label, number, self._render(document), contents(self.shape, document))

    async def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """Return the difference between two versions.

        Without `after` it is up to the newest version, without both it is what the newest version changed.
        """
        await self._permissions.check(self, "read", "history")
        await self._version_log.refresh()
        newest = self._version_log.number if after is None else after
        older = await self.at(max(newest - 1, 1) if before is None else before)
        return self._compare(older, await self.at(newest))

    def _compare(self, older: View, newer: View) -> Diff:
        names = (f"{self.label} version {older.version}", f"{self.label} version {newer.version}")
        changes = () if self.document_kind == "text" else compare_values(older.value, newer.value)
        return Diff(
            older.version, newer.version, compare_lines(older.text, newer.text, names), tuple(changes)
        )

    async def _resolve_version(self, number: int | None, time: datetime | None) -> int:
        if (number is None) == (time is None):
            raise InputError("expected either a version or a time", hint="give one of version= and time=")
        if number is not None:
            if type(number) is not int:
                raise InputError(f"expected a whole number for version, got {number!r}", field="version")
            return number
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise InputError(f"expected an aware datetime for time, got {time!r}", field="time")
        versions = await self._version_log.versions()
        # A merged version has its original time: only its place in the order counts.
        before = list(takewhile(lambda each: each.at <= time, versions))
        if not before:
            raise errors.VersionNotFound(f"{self.label!r} did not exist at {time}")
        return before[-1].number

    # -- undo and rollback ---------------------------------------------------------------------------

    async def rollback(
        self, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Make it what it was at a version, as a new version: nothing is lost."""
        permission = await self._permissions.check(self, "overwrite", "rollback")
        change = await self._build_revert(await self._version_log.find(_check_version(to)))
        edit = Edit("rollback", "overwrite", change, by, message or f"back to version {to}", expect)
        return await self._edit(edit, permission)

    async def undo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Undo the current version; `redo` brings it back, and a new edit starts a branch."""

        async def before() -> tuple[int, int]:
            await self._version_log.refresh()
            here = self._version_log.tail[-1]
            return (await self._version_log.find(here.node)).parent, here.number

        return await self._move("undo", before, by, expect)

    async def redo(self, *, by: str | None = None, expect: int | None = None) -> Version:
        """Redo the version that was last undone from here."""

        async def after() -> tuple[int, int]:
            versions = await self._version_log.versions()
            return version.find_redo(versions) or 0, versions[-1].number

        return await self._move("redo", after, by, expect)

    async def visit(self, node: int, *, by: str | None = None) -> Version:
        """Go to any version of the tree, on any branch."""

        async def there() -> tuple[int, int]:
            await self._version_log.refresh()
            return _check_version(node), self._version_log.number

        return await self._move("visit", there, by, None)

    async def branches(self) -> list[Branch]:
        """Return the branches of the version tree, newest first."""
        await self._permissions.check(self, "read", "history")
        return version.list_branches(await self._version_log.versions())

    async def _move(
        self, op: str, where: Callable[[], Awaitable[tuple[int, int]]], by: str | None, expect: int | None
    ) -> Version:
        """Go to a node of the version tree; `where` returns the node and the newest version then."""
        permission = await self._permissions.check(self, "overwrite", op)
        node, newest = await where()
        if node < 1:
            raise errors.VersionNotFound(f"there is nothing to {op} in {self.label!r}")
        target = await self._version_log.find(node)
        change, message = await self._build_revert(target), f"{op} to version {target.node}"
        expected = newest if expect is None else expect
        edit = Edit(op, "overwrite", change, by, message, expected, target.node)
        return await self._edit(edit, permission)

    async def _build_revert(self, target: Version) -> Change:
        """Build the change back to a version, which may no longer be in the document's history."""
        if self._version_log.document.can_revert_to(target.frontiers):
            return self._count_change(lambda document: document.revert_to(target.frontiers))
        old = await self._version_log.at(target.number)
        return self._count_change(lambda document: document.become(old))

    def _count_change(self, change: Change) -> Change:
        return count_change(change, self._part().body) if self.document_kind == "log" else change

    async def checkpoint(self, name: str) -> int:
        """Name the current version, so that it is kept and can be found; returns its number."""
        permission = await self._permissions.check(self, "append", "checkpoint")
        await self._version_log.refresh()
        number = self._version_log.number
        record = CheckpointRecord(self.id, ids.check_name(name, "name"), number)

        async def work(tx: Transaction) -> None:
            await permission.renew(tx)
            await tx.remember(record, id=checkpoint_id(self.id, name))

        try:
            await self._permissions.universe.transact(work, note=f"checkpoint {name} of {self.label}")
        except VersionConflict:
            raise errors.NameTaken(f"{self.label!r} already has a checkpoint {name!r}", name=name) from None
        return number

    async def checkpoints(self) -> dict[str, int]:
        """Return the named versions: name to version number."""
        await self._permissions.check(self, "read", "history")
        return await self._checkpoints()

    async def _checkpoints(self) -> dict[str, int]:
        query = Query(schema="block.checkpoint", where={"block": self.id}, descending=False, limit=None)
        found = await self._permissions.universe.recall(query)
        return {each.value.name: each.value.version for each in found}

    async def drop_checkpoint(self, name: str) -> int:
        """Remove the name of a version and return its number; only the partner may."""
        permission = await self._permissions.check(self, "erase", "drop_checkpoint")
        id = checkpoint_id(self.id, ids.check_name(name, "name"))

        async def work(tx: Transaction) -> int:
            await permission.renew(tx)
            found = await tx.get(id)
            if found is None:
                raise errors.VersionNotFound(f"{self.label!r} has no checkpoint {name!r}", name=name)
            await tx.delete(id)
            return int(found.value.version)

        return await self._permissions.universe.transact(work, note=f"drop checkpoint {name} of {self.label}")

    # -- redact and compact ---------------------------------------------------------------------------

    async def redact(
        self, first: int, last: int | None = None, *, message: str = "", clear_messages: bool = False
    ) -> Redaction:
        """Remove for good what a version (or several) brought, from this and every other version.

        A text is blanked letter by letter, line by line, and anything else becomes `[redacted]`. The history
        still says who did what when, with the messages of these versions unless `clear_messages`. Only the
        partner may, and it cannot be undone.
        """
        permission = await self._permissions.check(self, "erase", "redact")
        numbers = range(_check_version(first), _check_version(first if last is None else last) + 1)
        if not numbers or first < 1:
            raise InputError(f"there are no versions from {first} to {last}", field="last")
        what = f"versions {first} to {last}" if last not in (None, first) else f"version {first}"
        by = self._permissions.agent
        said = message or f"redact {what}"
        return await rewrite.redact(self._version_log, numbers, by, said, permission, clear_messages)

    async def compact(
        self, keep: int | None = None, *, older_than: datetime | timedelta | None = None
    ) -> int:
        """Delete the content of old versions and return how many; only the partner may.

        `keep` newest versions are kept, those younger than `older_than`, and those with a checkpoint. Of all
        others the history still says who did what when.
        """
        permission = await self._permissions.check(self, "erase", "compact")
        versions = await self._version_log.versions()
        before = _find_oldest_kept(versions, keep, older_than)
        return await rewrite.compact(
            self._version_log, before, await self._list_named(), self._permissions.agent, permission
        )

    async def _list_named(self) -> frozenset[int]:
        """Return the numbers of the versions with a checkpoint."""
        return frozenset((await self._checkpoints()).values())

    # -- making a change ----------------------------------------------------------------------

    async def _edit(self, edit: Edit, permission: PermissionCheck | None = None) -> Version:
        """Make an edit as the next version: checked, within the limit, whole or not at all."""
        shape = self.shape
        author = await self._permissions.check_author(self, edit.op, edit.by)
        permission = permission or await self._permissions.check(self, edit.operation, edit.op)
        self._check_shape(shape)
        done = await self._commit_edit(edit, author, permission)
        await apply_retain(self, permission, done.number)
        return done

    async def _commit_edit(self, edit: Edit, author: str, permission: PermissionCheck) -> Version:
        log = self._version_log
        async with log.lock:
            await log.catch_up()
            try:
                return await self._attempt_edit(edit, author, permission)
            except (InputError, VersionConflict):
                # The header in memory may be out of date: read it again before the edit fails.
                known = self._header.rev
                await self._renew(permission)
                if self._header.rev == known:
                    raise
                await log.refresh_locked()
                return await self._attempt_edit(edit, author, permission)

    async def _attempt_edit(self, edit: Edit, author: str, permission: PermissionCheck) -> Version:
        log = self._version_log
        try:
            self._check_expected(edit.expect)
            before, size = self._measure(log.document)
            items = measure(self.shape, log.document)
            edit.change(log.document)
            update, tally = log.document.take_update(), log.document.tally()
            while update:
                after, length = self._measure(log.document)
                self._check_limit(size, length)
                check_growth(items, measure(self.shape, log.document))
                counted = any(tally) or before is None or after is None
                added, removed = tally if counted else count_changes(before or "", after or "")
                record = self._build_record(edit, length, added, removed)
                try:
                    done = await log.write(record, update, author, self._checks(permission, length))
                except VersionConflict as conflict:
                    if not permission.is_cause_of(conflict):
                        raise
                    await self._renew(permission)
                    continue
                if done is not None:
                    if self.over_limit and length <= self.limit:
                        # The header has changed. The edit is stored, even if permission was revoked since.
                        with suppress(DgentError):
                            await permission.renew()
                    return done
                edited = log.document
                is_kept = await log.rebase(update)
                self._check_expected(edit.expect)
                if not is_kept:
                    edit.repeat(edited, log.document)
                    update, tally = log.document.take_update(), log.document.tally()
            return log.tail[-1]
        except BaseException:
            log.forget()  # the document in memory differs from what is stored
            raise

    async def _renew(self, permission: PermissionCheck) -> None:
        """Renew the permission of an edit; raises Conflict when the shape has changed."""
        shape = self.shape
        await permission.renew()
        self._check_shape(shape)

    def _check_shape(self, shape: Shape) -> None:
        """Raise Conflict when the shape is not the one that an edit was built for."""
        if self.shape is not shape and self.shape != shape:
            raise Conflict(f"{self.label!r} has another template now", hint="try again") from None

    def _checks(self, permission: PermissionCheck, length: int) -> list[Op]:
        """Return the ops an edit relies on; one that makes it short enough clears the header's flag."""
        if not self.over_limit or length > self.limit:
            return permission.checks()
        header = self._header
        op, _ = write.store_op(self._permissions.universe.contracts, clear_over_limit(header), header.rev)
        return [op, *(each for each in permission.checks() if each.id != header.id)]

    def _measure(self, document: Document) -> tuple[str | None, int]:
        """Return a document's text and length; for a text only the length, which costs nothing."""
        if self.document_kind == "text":
            return None, document.length()
        # The text after an edit is the text before the next one.
        frontiers, header, known = document.frontiers, self._header, self._measurement
        if known is None or known[0] is not document or known[1] != frontiers or known[2] is not header:
            self._measurement = known = document, frontiers, header, self._render(document)
        return known[3], len(known[3])

    def _build_record(self, edit: Edit, size: int, added: int, removed: int) -> VersionRecord:
        log = self._version_log
        here = log.tail[-1].node if log.tail else 0
        node = log.number + 1 if edit.node is None else edit.node
        state, message = log.document.frontiers, edit.message[:1000]
        return VersionRecord(edit.op, node, here, size, added, removed, state, message)

    def _check_expected(self, expect: int | None) -> None:
        if expect is not None and expect != self._version_log.number:
            raise VersionConflict(
                f"the block {self.label!r} is at version {self._version_log.number}, not {expect}",
                hint="read the block again before you edit it",
                id=self.id,
                version=self._version_log.number,
            )

    def _check_limit(self, before: int, after: int) -> None:
        if after > self.limit and after > before:
            raise errors.LimitExceeded(
                f"the block {self.label!r} would have {after} characters; its limit is {self.limit}",
                size=after,
                limit=self.limit,
            )

    def _render(self, document: Document) -> str:
        return render_document(self.shape, document, self.limit)


def _check_version(value: object) -> int:
    if type(value) is not int:
        raise InputError(f"expected a whole number for version, got {value!r}", field="version")
    return value


def _find_oldest_kept(
    versions: list[Version], keep: int | None, older_than: datetime | timedelta | None
) -> int:
    """Return the number of the oldest version that a rule keeps."""
    if keep is None and older_than is None:
        raise InputError("expected keep or older_than", hint="give keep= or older_than=")
    if keep is not None and (type(keep) is not int or keep < 1):
        raise InputError(f"expected a number of versions from 1 for keep, got {keep!r}", field="keep")
    moment = _check_moment(older_than)
    newest = versions[-1].number
    edits = [each.number for each in versions if each.op not in version.REWRITES]
    by_count = newest if keep is None or not edits else edits[-min(keep, len(edits))]
    young = (each.number for each in versions if moment is None or each.at >= moment)
    return min(by_count, newest if moment is None else next(young, newest))


def _check_moment(older_than: datetime | timedelta | None) -> datetime | None:
    """Return the time that `older_than` means; None when it is not given."""
    moment = clock.now() - older_than if isinstance(older_than, timedelta) else older_than
    if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
        raise InputError(
            f"expected a time or a timedelta for older_than, got {older_than!r}", field="older_than"
        )
    return moment
