"""Tokens: made, listed, rotated, revoked; the store keeps no secret, and nothing carries them elsewhere."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import dgent
from dgent import clock
from dgent.exchange import copy, export
from dgent.universe.gate import Principal
from dgent.universe.token import (
    check_token,
    create_token,
    list_tokens,
    revoke_token,
    rotate_token,
)

SCOUT = Principal("scout", "friend")


@pytest.fixture
async def u(tmp_path: Path):
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


async def test_a_token_gives_its_agent_and_trust(u: dgent.Universe) -> None:
    made, text = await create_token(u, SCOUT, purpose="the bot")
    found = await check_token(u, text)
    assert found == made and found.principal == SCOUT
    assert [each.token.purpose for each in await list_tokens(u)] == ["the bot"]


async def test_other_texts_are_refused(u: dgent.Universe) -> None:
    made, text = await create_token(u, SCOUT)
    other = (await create_token(u, SCOUT))[1]
    secret = text.split("_", 2)[2]
    wrong = ["", "x", text[:-1], text + "a", text.upper(), f"dgent_{made.id}_{secret[::-1]}", "dgent_" * 100]
    wrong.append(f"dgent_{made.id}_{other.split('_', 2)[2]}")
    for each in [*wrong, text.replace(made.id, "a" * 12), text + "\n", text.replace("_", "\0")]:
        with pytest.raises(dgent.Denied):
            await check_token(u, each)


async def test_the_secret_is_in_no_file(u: dgent.Universe, tmp_path: Path) -> None:
    _, text = await create_token(u, SCOUT)
    secret = text.split("_", 2)[2].encode()
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert held and not any(secret in path.read_bytes() for path in held)


async def test_a_revoked_token_is_gone_for_good(u: dgent.Universe) -> None:
    made, text = await create_token(u, SCOUT)
    await revoke_token(u, made.id)
    with pytest.raises(dgent.Denied):
        await check_token(u, text)
    assert await list_tokens(u) == []
    with pytest.raises(dgent.NotFound):
        await revoke_token(u, made.id)
    # Undoing the deletion must not bring it back.
    with suppress(dgent.DgentError):
        await u.undo(await u.seq())
    with pytest.raises(dgent.Denied):
        await check_token(u, text)


async def test_a_rotated_token_has_another_secret(u: dgent.Universe) -> None:
    made, old = await create_token(u, SCOUT)
    again, new = await rotate_token(u, made.id)
    assert again.id == made.id and new != old
    assert (await check_token(u, new)).principal == SCOUT
    with pytest.raises(dgent.Denied):
        await check_token(u, old)


async def test_a_token_expires(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now()
    _, text = await create_token(u, SCOUT, expires_at=now + timedelta(days=1))
    await check_token(u, text)
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=2))
    with pytest.raises(dgent.Denied, match="expired"):
        await check_token(u, text)


async def test_tokens_that_make_no_sense(u: dgent.Universe) -> None:
    with pytest.raises(dgent.InputError, match="untrusted"):
        await create_token(u, Principal("eve", "untrusted"))
    with pytest.raises(dgent.InputError, match="expire"):
        await create_token(u, SCOUT, expires_at=clock.now())


async def test_nobody_below_a_partner_sees_tokens(u: dgent.Universe) -> None:
    made, _ = await create_token(u, SCOUT)
    id = f"dgent.token/{made.id}"
    assert await u.get(id, raw=True) is not None
    limited = u.acting(Principal("eve", "friend"))
    assert await limited.get(id, raw=True) is None
    assert await limited.query(schema="dgent.token", raw=True) == []
    assert await limited.history(id) == []
    with pytest.raises(dgent.Denied):
        await limited.put(dgent.Datum(id=id, data={}, schema="dgent.token", schema_version=1))
    with pytest.raises(dgent.Denied):
        await limited.delete(id)


async def test_tokens_stay_in_their_store(u: dgent.Universe, tmp_path: Path) -> None:
    await create_token(u, SCOUT)
    await u.remember({"a": 1})
    lines: list[bytes] = []
    await export.export(u, lines.append)
    assert b"dgent.token" not in b"".join(lines)
    async with dgent.open(f"sqlite:///{tmp_path}/copy.db") as other:
        await copy.copy(u, other)
        assert await list_tokens(other) == []
        assert [each.data for each in await other.query(raw=True, schema=None, where={"a": 1})] == [{"a": 1}]
