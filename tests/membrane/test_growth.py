"""Proposals: tried, promoted and rolled back, with files and prompts exactly as they were."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, InputError, NotFound
from dgent.membrane import SelfGrow, growth


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:", author="gardener") as universe:
        yield universe


async def make_seedling(grow: SelfGrow, **data: str) -> str:
    proposal = await grow.propose("greeting", data, context="self")
    assert proposal.status == "draft" and proposal.proposed_by == "gardener"
    seedling = await grow.germinate(proposal.id)
    with pytest.raises(Conflict, match="germinated, not a draft"):
        await grow.germinate(proposal.id)
    return seedling.id


async def test_a_rollback_restores_files_and_prompt(u: dgent.Universe, tmp_path: Path) -> None:
    grow = SelfGrow(u, tmp_path)
    (tmp_path / "spec.md").write_text("old spec\r\n", newline="")
    os.chmod(tmp_path / "spec.md", 0o640)
    await grow.save_prompt("greeting", "Say hello.")
    seedling = await make_seedling(grow, prompt="Sing.", spec="new spec", impl="x = 1\n")
    used = await grow.record_use(seedling, success=False, pattern="off key")
    assert (used.usage_count, used.success_count, used.failure_patterns) == (1, 0, ["off key"])
    token = await grow.promote(seedling, spec_path="spec.md", impl_path="src/impl.py")
    assert (tmp_path / "spec.md").read_text() == "new spec" and (tmp_path / "src/impl.py").exists()
    prompt = await grow.find_prompt("greeting")
    assert prompt is not None and prompt.content == "Sing."
    assert [each.status for each in await grow.proposals()] == ["promoted"]
    assert await grow.promote(seedling) == token  # again is the same
    with pytest.raises(Conflict, match="was promoted"):
        await grow.prune(seedling)

    done = await grow.rollback(token.id)
    assert (tmp_path / "spec.md").read_bytes() == b"old spec\r\n"
    assert os.stat(tmp_path / "spec.md").st_mode & 0o777 == 0o640
    assert not (tmp_path / "src/impl.py").exists()
    prompt = await grow.find_prompt("greeting")
    assert prompt is not None and prompt.content == "Say hello." and prompt.reason == f"roll back {token.id}"
    assert [each.status for each in await grow.proposals()] == ["rolled back"]
    assert done.used_at is not None and await grow.rollback(token.id) == done


async def test_a_file_that_was_changed_since_is_not_lost(u: dgent.Universe, tmp_path: Path) -> None:
    grow = SelfGrow(u, tmp_path)
    token = await grow.promote(await make_seedling(grow, spec="new"), spec_path="spec.md")
    (tmp_path / "spec.md").write_text("edited by hand")
    with pytest.raises(Conflict, match="changed since"):
        await grow.rollback(token.id)
    assert (tmp_path / "spec.md").read_text() == "edited by hand"
    await grow.rollback(token.id, force=True)
    assert not (tmp_path / "spec.md").exists()


async def test_a_crash_before_the_files_is_finished_or_rolled_back(
    u: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow = SelfGrow(u, tmp_path)
    (tmp_path / "a").write_text("old")
    seedling = await make_seedling(grow, spec="new", impl="more")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(growth, "_write_text", crash)
        await grow.promote(seedling, spec_path="a", impl_path="b")
    (token,) = await grow.tokens()
    assert await grow.promote(seedling) == token
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("new", "more")
    (tmp_path / "a").write_text("old")  # as a crash in the middle of the rollback leaves it
    await grow.rollback(token.id)
    assert (tmp_path / "a").read_text() == "old" and not (tmp_path / "b").exists()


async def test_a_rollback_is_refused_after_its_window(u: dgent.Universe) -> None:
    grow = SelfGrow(u)
    token = await grow.promote(await make_seedling(grow, prompt="x"), window=timedelta(seconds=-1))
    with pytest.raises(Conflict, match="expired"):
        await grow.rollback(token.id)
    assert (await grow.rollback(token.id, force=True)).used_at is not None
    prompt = await grow.find_prompt("greeting")
    assert prompt is not None and prompt.content == ""


@pytest.mark.parametrize("path", ["../out", "/etc/out", "link/out", "a/../../out"])
async def test_no_file_outside_the_folder_is_touched(u: dgent.Universe, tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    grow = SelfGrow(u, tmp_path / "in")
    seedling = await make_seedling(grow, spec="x")
    with pytest.raises(InputError, match="is not a path below"):
        await grow.promote(seedling, spec_path=path)
    assert not (tmp_path / "out").exists() and await grow.tokens() == []


async def test_wrong_steps_are_refused(u: dgent.Universe) -> None:
    grow = SelfGrow(u)
    for data in ({}, {"song": "x"}, {"spec": 1}):
        with pytest.raises(InputError, match="expected texts"):
            await grow.propose("greeting", data)  # type: ignore[arg-type]
    for call in (grow.germinate("no"), grow.promote("no"), grow.rollback("no"), grow.prune("no")):
        with pytest.raises(NotFound):
            await call
    seedling = await make_seedling(grow, prompt="x")
    with pytest.raises(InputError, match="spec_path must be given exactly"):
        await grow.promote(seedling, spec_path="a")
    await grow.prune(seedling)
    with pytest.raises(Conflict, match="was pruned"):
        await grow.promote(seedling)
