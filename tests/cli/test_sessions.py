"""Commands of a shell are logged in its session, where the setting says so; never what they were given."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from dgent.doors.cli.options import DoorOptions
from dgent.doors.cli.serve import openers_of
from dgent.doors.http.house import House
from dgent.membrane import Instances, shell
from tests.cli.terminal import Terminal


def sessions(dgent_: Terminal) -> list[Any]:
    found: list[Any] = dgent_("session", "list", "--json").data["items"]
    return found


def commands(dgent_: Terminal, id: str) -> list[Any]:
    events = dgent_("session", "show", id, "--json").data["events"]
    return [each for each in events if each["event_type"] == "command"]


def test_nothing_is_logged_unless_it_is_switched_on(dgent_: Terminal) -> None:
    assert dgent_("remember", "one").code == 0
    assert sessions(dgent_) == []


def test_commands_of_one_shell_are_events_of_one_session(
    dgent_: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dgent_("config", "set", "sessions", "true").code == 0
    assert dgent_("remember", "a secret plan", "--id", "plan").code == 0
    assert dgent_("get", "plan").code == 0
    assert dgent_("get", "nobody").code != 0
    (session,) = sessions(dgent_)
    logged = commands(dgent_, session["id"])
    assert [each["message"] for each in logged] == ["dgent data put", "dgent data get", "dgent data get"]
    assert [each["data"].get("error") for each in logged] == [None, None, "not_found"]
    assert "secret" not in str(logged) and "plan" not in str(logged)
    assert dgent_("undo").code == 0  # of the record, not of the log
    assert dgent_("get", "plan").code != 0

    # Another shell has another session; that of a shell that is gone has ended when the next one starts.
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert dgent_("data", "list").code == 0
    assert {each["state"] for each in sessions(dgent_)} == {"active"}
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)
    monkeypatch.setattr(shell, "_is_over", lambda key: "/1/" not in key)
    assert dgent_("data", "list").code == 0
    states = {each["id"]: each["state"] for each in sessions(dgent_)}
    assert states[session["id"]] == "completed" and sorted(states.values()) == [
        "active",
        "active",
        "completed",
    ]

    # Resumed, it is the session of this shell from now on.
    assert dgent_("session", "resume", session["id"]).code == 0
    assert dgent_("data", "list").code == 0
    assert commands(dgent_, session["id"])[-1]["message"] == "dgent data list"
    assert session["id"] in dgent_("session", "search", "list").out


def test_a_log_that_fails_disturbs_no_command(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dgent_("config", "set", "sessions", "true").code == 0

    async def fail(*_: object) -> None:
        raise RuntimeError("no log")

    monkeypatch.setattr(shell, "log_command", fail)
    told = dgent_("remember", "one")
    assert told.code == 0 and "no log" not in told.err
    assert dgent_("data", "count").out == "1\n"


def test_a_server_registers_itself_where_it_is_switched_on(dgent_: Terminal) -> None:
    assert dgent_("config", "set", "sessions", "true").code == 0

    async def serve() -> list[str]:
        house = House(openers_of(DoorOptions(), ()))
        universe = (await house.store(house.default)).universe
        (running,) = await Instances(universe).list(status="active")
        assert running.pid == os.getpid()
        await house.close()
        again = (await house.store(house.default)).universe
        found = sorted(each.status for each in await Instances(again).list())
        await house.close()
        return found

    assert asyncio.run(serve()) == ["active", "terminated"]


def test_a_shell_is_known_by_its_start_too() -> None:
    mine = shell.find_shell(os.getpid())
    assert not shell._is_over(mine.key)
    assert shell._is_over(mine._replace(started="1").key)
    assert shell._is_over(mine._replace(boot="other").key)
    assert shell._is_over("nonsense")
