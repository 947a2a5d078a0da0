"""The versions that were redacted in a block, and redacting an older copy of it alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dgent.blocks import errors, rewriting
from dgent.blocks.chain import Chain
from dgent.blocks.erasure import erase, join_redacted
from dgent.blocks.page import Page
from dgent.blocks.record import RedactedVersion, RedactionRecord, redaction_id
from dgent.blocks.version import Version
from dgent.errors import Conflict, InputError
from dgent.universe.universe import Universe

AGAIN = "redacted again in an older copy"


def redacted_in(page: Page) -> Iterator[RedactedVersion]:
    """Find the redacted versions of a page, for a block without a RedactionRecord."""
    for each in page.versions:
        if each.redacted:
            yield RedactedVersion(each.number, each.at)


async def redact_again(universe: Universe, block: str, redacted: Iterable[RedactedVersion]) -> int:
    """Redact in an older copy of a block what was redacted in a newer one; returns how many versions.

    Versions that the copy does not have are recorded only: another copy may have them. Raises Conflict when
    one of them cannot be redacted here.
    """
    wanted = {(each.version, each.at): each for each in redacted}
    done: set[int] = set()
    if await universe.exists(block):
        chain = Chain(universe, block)
        try:
            for clear in (False, True):
                alike = {key for key, each in wanted.items() if each.cleared is clear}
                numbers = [each.number for each in await chain.versions() if _is_left(each, alike, clear)]
                if numbers:
                    await rewriting.redact(chain, numbers, universe.author, AGAIN, None, clear)
                    done.update(numbers)
            await erase(universe, block)
        except (errors.DocumentCorrupt, InputError) as error:
            message = f"what was redacted in {block!r} cannot be redacted again: {error.message}"
            raise Conflict(message, id=block) from error
    await _record(universe, block, wanted.values())
    return len(done)


def _is_left(version: Version, alike: set[tuple[int, datetime]], clear: bool) -> bool:
    """Whether a version of a copy must be redacted, or its message cleared."""
    if (version.number, version.at) not in alike:
        return False
    return not version.redacted or (clear and bool(version.message))


async def _record(universe: Universe, block: str, redacted: Iterable[RedactedVersion]) -> None:
    chain = Chain(universe, block)
    found = await chain._stored(redaction_id(block))
    known = RedactionRecord(block, "") if found is None else found.value
    joined = join_redacted(known.redacted, redacted)
    if joined != known.redacted:
        record = RedactionRecord(block, known.snapshot, joined)
        rev = 0 if found is None else found.rev or 0
        await universe.commit([chain.put(record, redaction_id(block), b"", rev)])
