"""Copy the contents of blobs along with the records that refer to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from dgent.errors import Corrupt
from dgent.store.port.blob import Content, check_parts, make_damage_error
from dgent.universe.blob import KEY, hashes_in, open_blobs

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.store.backend import Op
    from dgent.store.port.blob import BlobContents
    from dgent.universe.universe import Universe


@asynccontextmanager
async def copy_contents(
    source: Universe, target: Universe, records: Iterable[Datum]
) -> AsyncIterator[list[Op]]:
    """Copy what some records refer to, and hold it until they are committed, along with the ops it yields.

    A content that the source no longer has is passed over: an old version of a record may refer to it.
    """
    ops: list[Op] = []
    hashes = _find_hashes(records)
    here, there = open_blobs(source).contents, open_blobs(target).contents
    sizes = [(each, await here.size(each)) for each in hashes]
    wanted = [Content(sha256, size) for sha256, size in sizes if size is not None]
    if not wanted:
        yield ops
        return
    async with AsyncExitStack() as held:
        # What is there already may be unused by now, so that a collection would remove it before the commit.
        kept = await held.enter_async_context(there.hold(wanted))
        for each in wanted:
            ops += kept[each.sha256] if each.sha256 in kept else await _copy(here, there, each, held)
        yield ops


async def check_contents(target: Universe, records: Sequence[Datum]) -> None:
    """Raise Corrupt where a copy lacks the content of a key: the source lacks it, too."""
    for record in records:
        for sha256 in _find_hashes([record]) if record.schema == KEY.name else ():
            if await open_blobs(target).contents.size(sha256) is None:
                raise make_damage_error(sha256, f"the source lacks it, the blob {record.data.get('key')!r}")


async def _copy(
    here: BlobContents, there: BlobContents, content: Content, held: AsyncExitStack
) -> Sequence[Op]:
    upload = await held.enter_async_context(there.upload())
    async for part in check_parts(here.read(content.sha256), content):
        await upload.write(part)
    made, _ = await upload.publish()
    if made != content:
        raise Corrupt(f"the copy of blob:{content.sha256} has the hash {made.sha256}")
    return upload.ops


def _find_hashes(records: Iterable[Datum]) -> dict[str, None]:
    return dict.fromkeys(sha256 for record in records for sha256 in hashes_in(record.data))
