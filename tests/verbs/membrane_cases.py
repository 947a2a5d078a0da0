"""Cases of the verbs of the membrane, and what they start from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dgent
from dgent.membrane import CLISession, CLISessionEvent, Membrane, Proposal, RollbackToken, Seedling
from tests.verbs.case import Case

_BORN = datetime(2026, 1, 1, tzinfo=UTC)

MEMBRANE_CASES: dict[str, list[Case]] = {
    "session.list": [Case({"state": "active"}, ["--state", "active"])],
    "session.show": [Case({"id": "cli_a"}, ["cli_a"]), Case({"id": "no"}, ["no"], "not_found")],
    "session.search": [Case({"text": "lighthouse"}, ["lighthouse"])],
    "session.start": [
        Case({"name": "nightly run", "kind": "flow"}, ["nightly", "run", "-k", "flow"]),
    ],
    "session.log": [
        Case({"id": "cli_a", "message": "well done"}, ["cli_a", "well", "done"]),
        Case({"id": "no", "message": "x"}, ["no", "x"], "not_found"),
    ],
    "session.end": [Case({"id": "cli_a", "state": "failed"}, ["cli_a", "--state", "failed"])],
    "session.resume": [Case({"id": "cli_a"}, ["cli_a"]), Case({"id": "no"}, ["no"], "not_found")],
    "session.forget": [
        Case({"id": "cli_a"}, ["cli_a", "--yes"]),
        Case({"id": "no"}, ["no", "--yes"], "not_found"),
    ],
    "instance.list": [Case({}, [])],
    "grow.list": [Case({}, [])],
    "grow.propose": [
        Case({"entity": "greeting", "prompt": "Sing."}, ["greeting", "--prompt", "Sing."]),
        Case({"entity": "greeting"}, ["greeting"], "input"),
    ],
    "grow.germinate": [Case({"id": "draft"}, ["draft"]), Case({"id": "no"}, ["no"], "not_found")],
    "grow.promote": [Case({"id": "seedling"}, ["seedling"]), Case({"id": "no"}, ["no"], "not_found")],
    "grow.rollback": [Case({"id": "used"}, ["used"]), Case({"id": "no"}, ["no"], "not_found")],
    "legacy.import": [
        Case({"folder": "{legacy}"}, ["{legacy}"]),
        Case({"folder": "{new}"}, ["{new}"], "not_found"),
    ],
    "catalog.register": [
        Case(
            {"name": "scout", "genus": "k-gent", "capability": ("read",), "folder": "{folder}"},
            ["scout", "k-gent", "--capability", "read", "--folder", "{folder}"],
        ),
        Case({"name": "scout", "genus": "k-gent"}, ["scout", "k-gent"], "not_found"),
    ],
    "catalog.list": [Case({"folder": "{folder}"}, ["--folder", "{folder}"])],
    "catalog.get": [
        Case({"name": "elder", "folder": "{folder}"}, ["elder", "--folder", "{folder}"]),
        Case({"name": "no", "folder": "{folder}"}, ["no", "--folder", "{folder}"], "not_found"),
    ],
    "catalog.remove": [Case({"name": "elder", "folder": "{folder}"}, ["elder", "--folder", "{folder}"])],
}


def fill_legacy(path: Path) -> None:
    """A folder of the ancestor with the state of an agent."""
    (path / "soul").mkdir(parents=True)
    (path / "soul" / "state.json").write_text('{"mood": "calm"}')


async def fill_membrane(u: dgent.Universe) -> None:
    """A session with an event, a draft, a seedling, and a promotion that was rolled back."""
    when = {"created_at": _BORN, "updated_at": _BORN}
    texts = {
        "content_hash": "",
        "context": "",
        "entity": "greeting",
        "proposed_by": "ann",
        "proposed_at": _BORN,
    }
    data = {"prompt": "Sing."}
    await Membrane(u).put(
        CLISession(id="cli_a", name="lighthouse", started_at=_BORN),
        CLISessionEvent(
            id="evt_a", session_id="cli_a", timestamp=_BORN, event_type="note", source="x", message="built"
        ),
        Proposal(id="draft", data=data, **texts, **when),
        Proposal(id="tried", data=data, status="germinated", **texts, **when),
        Seedling(
            id="seedling",
            proposal_id="tried",
            data=data,
            handle="greeting",
            germinated_by="ann",
            germinated_at=_BORN,
            **when,
        ),
        RollbackToken(
            id="used", handle="x", promoted_at=_BORN, expires_at=_BORN, created_at=_BORN, used_at=_BORN
        ),
    )
