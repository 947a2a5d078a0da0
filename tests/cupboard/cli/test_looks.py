"""What people see: trees, columns, and nothing that could drive a terminal."""

from __future__ import annotations

from dgent.doors.cli.draw.crumb import draw_tree
from dgent.doors.cli.style import Paint
from dgent.verbs.cupboard.answer import TrailCrumb
from tests.cupboard.cli.shelf import Shelf


def member(id: str, *parents: str) -> TrailCrumb:
    fields = {"state": "draft", "properties": {}, "created_at": None, "updated_at": None}
    return TrailCrumb(id=id, name=id.upper(), parents=list(parents), **fields)


def drawn(*members: TrailCrumb) -> list[str]:
    return draw_tree(list(members), Paint(False, 100))


def test_a_tree_of_crumbs() -> None:
    lines = drawn(
        member("a"), member("b", "a"), member("c", "a"), member("d", "c", "b"), member("e", "elsewhere")
    )
    assert lines == [
        "|- draft A  a",
        "|  |- draft B  b",
        "|  `- draft C  c",
        "|     `- draft D  d  also after b",
        "`- draft E  e  also after elsewhere",
    ]


def test_a_long_chain_and_a_broken_one() -> None:
    chain = [member("c0"), *(member(f"c{n}", f"c{n - 1}") for n in range(1, 1500))]
    assert len(drawn(*chain)) == 1500
    knot = drawn(member("a", "c"), member("b", "a"), member("c", "b"), member("d", "b"))
    assert len(knot) == 4, "each of a circle is shown, once"


def test_odd_names_cannot_drive_a_terminal(shelf: Shelf) -> None:
    odd = "red\x1b[31m\u202etxt\nnew"
    shelf.ask("explore", odd, "-g", odd)
    crumb = shelf.ask("crumb", "add", odd, "-s", "ready", "--trail", odd, "-d", odd, "-l", odd)["id"]
    shelf.ask("metadata", "comment", crumb, odd)
    shelf.ask("stash", "create", odd, "--value", odd, "--trail", odd)
    for words in (
        ["crumb", "get", crumb],
        ["crumb", "list"],
        ["ready"],
        ["ready", "--explain"],
        ["board"],
        ["trail", "get", odd],
        ["trail", "list"],
        ["trail", "compare", odd, odd],
        ["stash", "list"],
        ["link", "list"],
        ["metadata", "list"],
        ["crumb", "history", crumb],
        ["cupboard", "list", "crumbs"],
        ["cupboard", "graph"],
        ["status"],
        ["log"],
    ):
        told = shelf(*words)
        assert told.code == 0, told.err
        assert "\x1b" not in told.out and "\u202e" not in told.out, words
        assert "red" in told.out, words


def test_the_board_fits(shelf: Shelf) -> None:
    for state in ("draft", "pending", "ready", "taken", "pebble", "dust"):
        for number in range(3):
            shelf.set("crumbs", Name=f"{state} work number {number}", State=state)
    lines = shelf("board", "-n", "2").out.splitlines()
    assert max(map(len, lines)) <= 120
    assert all(
        f"{state} (3)" in lines[0] for state in ("draft", "pending", "ready", "taken", "pebble", "dust")
    )
    assert lines[-1].count("and 1 more") == 6
