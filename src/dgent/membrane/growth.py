"""Changes that agents propose for prompts and files: tried in the nursery, promoted, and rolled back.

A proposal has the new texts: `prompt`, which becomes a checkpoint of the prompt, and `spec` and `impl`, which
become files. The token of a promotion has the texts that were there before, and is committed before a file is
written: a crash at any step leaves nothing that `promote` again, or `rollback`, does not put right.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dgent import clock, ids
from dgent.config import file
from dgent.errors import ConfigError, Conflict, InputError, NotFound
from dgent.membrane.membrane import ATTEMPTS, Membrane, make_id
from dgent.membrane.record import (
    CHECKPOINT,
    PROPOSAL,
    SEEDLING,
    TOKEN,
    PromptCheckpoint,
    Proposal,
    RollbackToken,
    Seedling,
    record_id,
)
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.system.files import FILE, sync
from dgent.system.threads import Stopped, in_thread
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

WINDOW = timedelta(days=7)
"""The time in which a promotion can be rolled back."""

MAX_FILE_BYTES = 1 << 20
TEXTS = ("prompt", "spec", "impl")
_FILES = ("spec", "impl")


class SelfGrow:
    """The proposals of a universe: `SelfGrow(u, root)`; files are read and written below `root` only."""

    def __init__(self, universe: Universe, root: str | Path | None = None) -> None:
        self._membrane = Membrane(universe)
        self._root = None if root is None else Path(root)

    # -- proposals ----------------------------------------------------------------------------

    async def propose(
        self, entity: str, data: Mapping[str, str], *, context: str = "", proposed_by: str | None = None
    ) -> Proposal:
        """Propose new texts for an entity: `{"prompt": "…"}`, `{"spec": "…", "impl": "…"}` or all three."""
        if not data or any(name not in TEXTS or not isinstance(text, str) for name, text in data.items()):
            raise InputError(f"expected texts for {', '.join(TEXTS)}, got {dict(data)!r:.80}", field="data")
        now = clock.now()
        proposal = Proposal(
            id=make_id("prop"),
            data=dict(data),
            content_hash=hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest(),
            context=context,
            entity=entity,
            proposed_by=proposed_by or self._membrane.universe.author,
            proposed_at=now,
            created_at=now,
            updated_at=now,
        )
        await self._membrane.put(proposal, new=True, note=f"propose {entity}"[:200])
        return proposal

    async def proposals(self, *, status: str | None = None, limit: int | None = 100) -> list[Proposal]:
        """Return proposals, newest first."""
        return await self._membrane.list(Proposal, status=status, limit=limit)

    async def germinate(
        self, proposal_id: str, handle: str | None = None, *, germinated_by: str | None = None
    ) -> Seedling:
        """Put a draft into the nursery, under the name of what it would change."""
        now = clock.now()

        def work(proposal: Proposal) -> list[Any]:
            if proposal.status != "draft":
                raise Conflict(f"the proposal {proposal.id!r} is {proposal.status}, not a draft")
            seedling = Seedling(
                id=make_id("seed"),
                proposal_id=proposal.id,
                data=proposal.data,
                handle=ids.check_name(handle or proposal.entity, "handle"),
                germinated_by=germinated_by or self._membrane.universe.author,
                germinated_at=now,
                created_at=now,
                updated_at=now,
            )
            made.append(seedling)
            return [replace(proposal, status="germinated", updated_at=now), seedling]

        made: list[Seedling] = []
        await self._membrane.change(Proposal, proposal_id, work)
        return made[-1]

    async def nursery(self, *, handle: str | None = None, limit: int | None = 100) -> list[Seedling]:
        """Return what is or was tried, newest first."""
        return await self._membrane.list(Seedling, handle=handle, limit=limit)

    async def record_use(self, seedling_id: str, *, success: bool, pattern: str | None = None) -> Seedling:
        """Count a use of what is tried, and how it failed if it did."""

        def work(seedling: Seedling) -> list[Seedling]:
            patterns = list(seedling.failure_patterns or ())
            if not success and pattern and pattern not in patterns:
                patterns.append(pattern)
            return [
                replace(
                    seedling,
                    usage_count=seedling.usage_count + 1,
                    success_count=seedling.success_count + bool(success),
                    failure_patterns=patterns,
                    updated_at=clock.now(),
                )
            ]

        changed = await self._membrane.change(Seedling, seedling_id, work)
        assert changed is not None
        return changed

    async def prune(self, seedling_id: str) -> Seedling:
        """Give up what is tried; raises Conflict once it was promoted."""

        async def work(tx: Transaction) -> Seedling:
            seedling = await _read(tx, Seedling, SEEDLING, seedling_id)
            if seedling.promoted_at is not None:
                raise Conflict(f"{seedling.handle!r} was promoted", hint="roll it back instead")
            pruned = replace(seedling, pruned_at=seedling.pruned_at or clock.now(), updated_at=clock.now())
            await self._put(tx, pruned, await self._with_status(tx, seedling, "pruned"))
            return pruned

        return await self._transact(work, "prune")

    # -- promotion ----------------------------------------------------------------------------

    async def promote(
        self,
        seedling_id: str,
        *,
        spec_path: str | None = None,
        impl_path: str | None = None,
        window: timedelta = WINDOW,
    ) -> RollbackToken:
        """Put the texts of a seedling in their places, and return the token that takes them back.

        Called again after a crash, it finishes what was begun and returns the same token.
        """
        found = await self._membrane.get(Seedling, seedling_id)
        data = {} if found is None else found.data
        paths = {"spec": spec_path, "impl": impl_path}
        if found is not None and found.rollback_token is None:
            for name in _FILES:
                if (name in data) != (paths[name] is not None):
                    raise InputError(
                        f"{name}_path must be given exactly if the proposal has a text for it",
                        field=f"{name}_path",
                    )
        before = {name: await self._read_file(path) for name, path in paths.items() if path is not None}

        async def work(tx: Transaction) -> RollbackToken:
            seedling = await _read(tx, Seedling, SEEDLING, seedling_id)
            if seedling.rollback_token is not None:
                return await _read(tx, RollbackToken, TOKEN, seedling.rollback_token)
            if seedling.pruned_at is not None:
                raise Conflict(f"{seedling.handle!r} was pruned", hint="propose it again")
            now = clock.now()
            last = await _find_prompt(tx, seedling.handle) if "prompt" in data else None
            token = RollbackToken(
                id=make_id("roll"),
                handle=seedling.handle,
                promoted_at=now,
                expires_at=now + window,
                created_at=now,
                spec_path=spec_path,
                impl_path=impl_path,
                spec_content=before.get("spec"),
                impl_content=before.get("impl"),
                written={name: _digest(data[name]) for name in before},
                checkpoint_id=None if last is None else last.id,
            )
            grown = replace(seedling, promoted_at=now, rollback_token=token.id, updated_at=now)
            made = [token, grown, await self._with_status(tx, seedling, "promoted")]
            if "prompt" in data:
                made.append(_checkpoint(seedling.handle, data["prompt"], last, f"promote {seedling.id}"))
            await self._put(tx, *made)
            return token

        token = await self._transact(work, f"promote {seedling_id}"[:200])
        if token.used_at is None:
            await self._write_files(token, data)
        return token

    async def rollback(self, token_id: str, *, force: bool = False) -> RollbackToken:
        """Put back the texts that a promotion replaced; a second call changes nothing.

        Raises Conflict after the window, or where a file was changed since, unless forced.
        """
        token = await self._membrane.get(RollbackToken, token_id)
        if token is None:
            raise NotFound(f"there is no rollback token {token_id!r}", id=token_id)
        if token.used_at is not None:
            return token
        if clock.now() > token.expires_at and not force:
            raise Conflict(
                f"the rollback of {token.handle!r} expired at {clock.text(token.expires_at)}",
                hint="force it, or propose the former text",
            )
        await self._write_files(token, None, force)

        async def work(tx: Transaction) -> RollbackToken:
            now = clock.now()
            current = await _read(tx, RollbackToken, TOKEN, token_id)
            if current.used_at is not None:
                return current
            used = replace(current, used_at=now)
            made: list[Any] = [used]
            where = {"handle": token.handle}
            for found in await tx.recall(Query(schema=SEEDLING.name, where=where, limit=None)):
                seedling = found.value
                if seedling.rollback_token == token.id:
                    made.append(await self._with_status(tx, seedling, "rolled back"))
                    if "prompt" in seedling.data:
                        made.append(await self._former_prompt(tx, token))
            await self._put(tx, *made)
            return used

        return await self._transact(work, f"roll back {token.handle}"[:200])

    async def tokens(self, *, handle: str | None = None, limit: int | None = 100) -> list[RollbackToken]:
        """Return the tokens of promotions, newest first."""
        return await self._membrane.list(RollbackToken, handle=handle, limit=limit)

    # -- prompts ------------------------------------------------------------------------------

    async def find_prompt(self, name: str) -> PromptCheckpoint | None:
        """Return the newest checkpoint of a prompt; None when there is none."""
        return await _find_prompt(self._membrane.universe, name)

    async def save_prompt(self, name: str, content: str, *, reason: str | None = None) -> PromptCheckpoint:
        """Store a checkpoint of a prompt; the same text again is the same checkpoint."""
        last = await self.find_prompt(name)
        if last is not None and last.content == content:
            return last
        made = _checkpoint(name, content, last, reason)
        await self._membrane.put(made, new=True)
        return made

    async def _former_prompt(self, tx: Transaction, token: RollbackToken) -> PromptCheckpoint:
        """Return a checkpoint with the text of the one before a promotion; empty where there was none."""
        before = None
        if token.checkpoint_id is not None:
            before = await self._membrane.get(PromptCheckpoint, token.checkpoint_id)
        text = "" if before is None else before.content
        last = await _find_prompt(tx, token.handle)
        return _checkpoint(token.handle, text, last, f"roll back {token.id}")

    # -- pieces -------------------------------------------------------------------------------

    async def _transact(self, work: Callable[[Transaction], Awaitable[R]], note: str) -> R:
        return await self._membrane.universe.transact(work, attempts=ATTEMPTS, note=note)

    async def _put(self, tx: Transaction, *records: Any) -> None:
        for record in records:
            await tx.put(self._membrane.datum_of(record))

    async def _with_status(self, tx: Transaction, seedling: Seedling, status: str) -> Proposal:
        proposal = await _read(tx, Proposal, PROPOSAL, seedling.proposal_id)
        return replace(proposal, status=status, updated_at=clock.now())

    async def _read_file(self, path: str) -> str | None:
        place = self._place(path)
        return await in_thread(lambda _: _read_text(place))

    def _place(self, path: str) -> Path:
        """Return the place of a file below the root; InputError for a path that leads elsewhere."""
        if self._root is None:
            raise InputError("there is no folder for files here", hint="use SelfGrow(u, root)", field="path")
        place = self._root / path
        try:
            file.check_inside(place, self._root)
        except (ConfigError, ValueError):
            raise InputError(
                f"{path!r} is not a path below {self._root} without links", field="path"
            ) from None
        return place

    async def _write_files(
        self, token: RollbackToken, data: Mapping[str, str] | None, force: bool = False
    ) -> None:
        """Write the new texts, or with no data the former ones; all are checked before one is written."""
        wanted: list[tuple[Path, str | None, str | None]] = []
        for name in _FILES:
            path, former = getattr(token, f"{name}_path"), getattr(token, f"{name}_content")
            if path is None:
                continue
            now = await self._read_file(path)
            if now != former and (now is None or _digest(now) != token.written[name]) and not force:
                raise Conflict(
                    f"{path} was changed since it was promoted", hint="force it to write over that", path=path
                )
            wanted.append((self._place(path), now, former if data is None else data[name]))
        for place, now, text in wanted:
            if now != text:
                await in_thread(partial(_write_text, place, text))


def _checkpoint(
    name: str, content: str, last: PromptCheckpoint | None, reason: str | None
) -> PromptCheckpoint:
    return PromptCheckpoint(
        id=ids.new_id(),
        name=name,
        content=content,
        parent_id=None if last is None else last.id,
        reason=reason,
        created_at=clock.now(),
    )


async def _find_prompt(source: Universe | Transaction, name: str) -> PromptCheckpoint | None:
    found = await source.recall(Query(schema=CHECKPOINT.name, where={"name": name}, limit=1))
    return found[0].value if found else None


async def _read(tx: Transaction, kind: type[R], schema: Schema[Any], key: str) -> R:
    found = await tx.get(record_id(schema, key))
    value = None if found is None else found.value
    if not isinstance(value, kind):
        raise NotFound(f"there is no {kind.__name__} {key!r}", id=key)
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_text(place: Path) -> str | None:
    """Return the text of a plain file; None when there is none."""
    if not os.path.lexists(place):
        return None
    return file.read(place, MAX_FILE_BYTES)


def _write_text(place: Path, text: str | None, _stopped: Stopped) -> None:
    """Put a text in the place of a file in one step, and keep its permissions; None removes the file."""
    try:
        mode = stat.S_IMODE(os.stat(place).st_mode)
    except OSError:
        mode = FILE
    if text is None:
        place.unlink(missing_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place, text, mode)
    sync(str(place.parent))
