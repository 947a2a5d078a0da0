"""The lives of crumbs and trails, through the tables of the command line."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import UUID

import pytest

from tests.cupboard.cli.shelf import Shelf


def states(shelf: Shelf, table: str) -> list[str]:
    return sorted(row["State"] for row in shelf.list(table))


# -- a cupboard and its trails ------------------------------------------------------------------


def test_init_makes_what_is_built_in_and_can_be_repeated(shelf: Shelf) -> None:
    for _ in range(2):
        tables = shelf.ask("cupboard", "init")["tables"]
        assert tables == {
            "crumbs": 0,
            "trails": 0,
            "links": 0,
            "properties": 5,
            "categories": 12,
            "stashes": 0,
            "metadata": 0,
            "schemas": 2,
        }


def test_trails_are_made(shelf: Shelf) -> None:
    trails = [shelf.set("trails", State="active") for _ in range(3)]
    assert all(each["State"] == "active" and each["TrailID"] for each in trails)
    assert len({each["TrailID"] for each in trails}) == 3 == len(shelf.list("trails"))


@pytest.mark.parametrize("end", ["completed", "abandoned"])
def test_a_trail_ends(shelf: Shelf, end: str) -> None:
    trail = shelf.set("trails", State="active")["TrailID"]
    shelf.set("trails", trail, State=end)
    ended = shelf.get("trails", trail)
    assert ended["State"] == end and ended["CompletedAt"]
    assert [row["TrailID"] for row in shelf.list("trails", f"State={end}")] == [trail]


def test_crumbs_belong_to_trails(shelf: Shelf) -> None:
    for name in ("a", "b"):
        crumb, trail = (
            shelf.set("crumbs", Name=name)["CrumbID"],
            shelf.set("trails", State="active")["TrailID"],
        )
        link = shelf.set("links", LinkType="belongs_to", FromID=crumb, ToID=trail)
        assert link["LinkID"] and link["LinkType"] == "belongs_to"
        assert [row["Name"] for row in shelf.list("crumbs", f"trail_id={trail}")] == [name]
    assert len(shelf.list("links")) == 2
    other = shelf.set("trails", State="active")["TrailID"]
    assert shelf.fails(
        "cupboard",
        "set",
        "links",
        "",
        f'{{"LinkType": "belongs_to", "FromID": "{crumb}", "ToID": "{other}"}}',
    ) == (5, "already_in_trail")


def test_one_trail_is_kept_and_one_is_not(shelf: Shelf) -> None:
    crumbs = [shelf.set("crumbs", Name=f"c{n}", State="draft")["CrumbID"] for n in range(3)]
    trails = [shelf.set("trails", State="active")["TrailID"] for _ in range(2)]
    shelf.set("crumbs", crumbs[0], State="pebble")
    for crumb, trail in zip(crumbs[1:], trails, strict=True):
        shelf.set("links", LinkType="belongs_to", FromID=crumb, ToID=trail)
    shelf.set("trails", trails[0], State="completed")
    shelf.set("trails", trails[1], State="abandoned")
    assert states(shelf, "crumbs") == ["draft", "pebble"]
    assert states(shelf, "trails") == ["abandoned", "completed"]
    assert shelf.list("links") == []


# -- crumbs ---------------------------------------------------------------------------------------


def test_a_new_crumb(shelf: Shelf) -> None:
    crumb = shelf.set("crumbs", Name="a")
    assert crumb["State"] == "draft" and UUID(crumb["CrumbID"]).version == 7
    assert datetime.fromisoformat(crumb["CreatedAt"]) <= datetime.fromisoformat(crumb["UpdatedAt"])
    assert shelf.set("crumbs", Name="b", State="ready")["State"] == "ready"
    assert shelf.fails("cupboard", "set", "crumbs", "", '{"Name": "c", "State": "odd"}') == (
        2,
        "invalid_state",
    )
    assert shelf.fails("cupboard", "set", "crumbs", "", "{}") == (2, "invalid_name")
    assert len(shelf.list("crumbs")) == 2


@pytest.mark.parametrize(
    "way",
    [
        ["draft", "pending"],
        ["pending", "ready"],
        ["draft", "ready"],
        ["ready", "taken"],
        ["taken", "pebble"],
        ["draft", "dust"],
        ["pending", "dust"],
        ["ready", "dust"],
        ["taken", "dust"],
        ["draft", "pending", "ready", "taken", "pebble"],
    ],
    ids="-".join,
)
def test_ways_through_the_states(shelf: Shelf, way: list[str]) -> None:
    crumb = shelf.set("crumbs", Name="a", State=way[0])["CrumbID"]
    for state in way[1:]:
        assert shelf.set("crumbs", crumb, State=state)["State"] == state
        assert shelf.get("crumbs", crumb)["State"] == state


def test_a_change_moves_the_time_of_change_alone(shelf: Shelf) -> None:
    before = shelf.set("crumbs", Name="a")
    time.sleep(0.002)
    shelf.set("crumbs", before["CrumbID"], State="ready")
    after = shelf.get("crumbs", before["CrumbID"])
    assert after["UpdatedAt"] > before["UpdatedAt"] and after["CreatedAt"] == before["CreatedAt"]


def test_lists_by_state(shelf: Shelf) -> None:
    for state in ("draft", "pebble", "dust"):
        shelf.set("crumbs", Name=state, State=state)
    for state in ("draft", "pebble", "dust"):
        assert [row["Name"] for row in shelf.list("crumbs", f"State={state}")] == [state]
    assert len(shelf.list("crumbs")) == 3
    assert shelf.list("crumbs", "State=ready") == []
    assert len(shelf.list("crumbs", 'states=["draft", "dust"]')) == 2
    assert [row["Name"] for row in shelf.list("crumbs", "state=closed")] == ["dust", "pebble"]
