"""Trust by origin: a call is trusted as its batch, and what it writes says so."""

from __future__ import annotations

from itertools import product

import pytest

import dgent
from dgent.errors import InputError
from dgent.runtime.trust import combine_trust, find_call_trust, is_at_least, lower_principal
from dgent.universe.gate import TRUSTS, Principal
from dgent.universe.origin import Origin, read_source, write_source


def test_a_call_has_the_lowest_trust_of_its_batch_and_its_caller() -> None:
    for batch, caller in product(TRUSTS, TRUSTS):
        found = find_call_trust(batch, caller)
        assert found in (batch, caller) and is_at_least(batch, found) and is_at_least(caller, found)
        assert find_call_trust(batch, caller, "untrusted") == "untrusted"
        lowered = lower_principal(Principal("scout", caller), batch)
        assert lowered == Principal("scout", found)
    with pytest.raises(InputError, match="not a valid trust"):
        combine_trust("partner", "admin")


def test_a_source_says_the_class_and_the_place() -> None:
    assert write_source("partner", "cli") is None
    for trust in TRUSTS[1:]:
        assert read_source(write_source(trust, "https://example.org/a b")) == Origin(
            trust, "https://example.org/a b"
        )
        assert read_source(write_source(trust)) == Origin(trust)
    assert read_source("imported from a file") == Origin("partner")
    assert read_source(None) == Origin("partner")
    assert read_source("origin:nobody here") == Origin("untrusted", "here")
    assert (
        "\n" not in str(write_source("friend", "two\nlines" * 1000))
        and len(str(write_source("friend", "two\nlines" * 1000))) < 600
    )


async def test_a_record_keeps_its_origin_in_the_store() -> None:
    async with dgent.open("memory:") as u:
        kept = await u.remember({"text": "a"}, source=write_source("untrusted", "https://example.org"))
        assert read_source((await u.get(kept.id, raw=True)).source).trust == "untrusted"
