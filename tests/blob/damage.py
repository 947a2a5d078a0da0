"""Damage to the stored bytes of a blob, behind the back of its engine."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import apsw

from dgent.store.backend import Delete
from dgent.store.port.blob import BlobInfo
from dgent.universe.blob import BlobStore
from dgent.universe.blob_record import content_id


async def damage(blobs: BlobStore, info: BlobInfo, data: bytes | None) -> None:
    """Change what an engine has stored of a content; None removes it."""
    contents: Any = blobs.contents
    if await _damage_record(blobs, info, data):
        return
    contents = getattr(contents, "inner", contents)
    if hasattr(contents, "path_of"):
        path = contents.path_of(info.sha256)
        os.unlink(path)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
    elif hasattr(contents, "contents"):
        contents.contents.pop(info.sha256)
        if data is not None:
            contents.contents[info.sha256] = data
    else:
        pool, u = await contents.pool(), contents.u
        sql = f"DELETE FROM {u}.blob_content" if data is None else f"UPDATE {u}.blob_chunk SET data = $2"
        where = (
            " WHERE sha256 = $1"
            if data is None
            else (f" WHERE n = 0 AND upload = (SELECT upload FROM {u}.blob_content WHERE sha256 = $1)")
        )
        values = [bytes.fromhex(info.sha256), *([] if data is None else [data])]
        await pool.call(lambda connection: connection.execute(sql + where, *values))


async def _damage_record(blobs: BlobStore, info: BlobInfo, data: bytes | None) -> bool:
    """Damage a content that is a record of an SQLite file; False if it is not."""
    id = content_id(info.sha256)
    backend: Any = blobs._unlimited().backend
    if backend.name != "sqlite" or await backend.get(id) is None:
        return False
    if data is None:
        await blobs._unlimited().for_room("blobs").commit([Delete(id)])
        return True
    with closing(apsw.Connection(backend.path)) as connection:
        connection.set_busy_timeout(5_000)
        connection.execute("UPDATE datum SET content = ? WHERE id = ?", (data, id))
    return True
