"""Sessions of ADK as records of a place: one for the session, one for each event, and three for the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import _session_util
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from dgent.bridges.adk import record
from dgent.bridges.adk.record import EVENT, SESSION, STATE, make_datum, make_id
from dgent.bridges.placed import Place, Placed
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Delete, Op, Put
from dgent.universe.universe import Universe

PAGE = 200  # events that are read at once while looking for a time
SCOPES = ("app", "user", "session")


class Name(NamedTuple):
    """The name of a session."""

    app: str
    user: str
    session: str

    @property
    def id(self) -> str:
        """The id of its record."""
        return make_id(SESSION, *self)

    @property
    def states(self) -> list[str]:
        """The ids of the states of its app, its user and itself."""
        return [app_state_id(self.app), user_state_id(self.app, self.user), f"{make_id(STATE, *self)}/~s"]

    def event(self, number: int) -> str:
        """Return the id of an event by its number."""
        return f"{make_id(EVENT, *self)}/{number:06}"


class DgentSessionService(Placed, BaseSessionService):
    """Keeps sessions at a place: a URL, an open universe, or a handle of `dgent.sync.anywhere`.

    An event is one commit with the states that it changes. It is refused with StaleSessionError if others
    added to the session since it was read; then read it again.
    """

    def __init__(self, place: Place) -> None:
        self._settle(place, *record.SCHEMAS)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; AlreadyExistsError if there is one with this id."""
        chosen = (session_id or "").strip() or platform_uuid.new_uuid()
        name, now = Name(app_name, user_id, chosen), platform_time.get_time()
        deltas = _session_util.extract_state_delta(state or {})

        async def work(universe: Universe) -> tuple[list[Op], Callable[[int], Session]]:
            stored, *states = await universe.get_many([name.id, *name.states], raw=True)
            if stored is not None:
                raise AlreadyExistsError(f"Session with id {chosen} already exists.")
            head = make_datum(universe, SESSION, name.id, _head_data(name, 0, now))
            ops: list[Op] = [Put(head, 0), *_state_ops(universe, name, states, deltas)]
            merged = _merge(
                *({**record.read_state(old), **deltas[s]} for old, s in zip(states, SCOPES, strict=True))
            )
            return ops, lambda rev: _make_session(name, merged, [], now, rev)

        return await self.place.arun(record.change, name.id, "create an ADK session", work)

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events, or the last of them; None if there is none."""
        name = Name(app_name, user_id, session_id.strip() if session_id else session_id)

        async def read(universe: Universe) -> Session | None:
            head, *states = await universe.get_many([name.id, *name.states], raw=True)
            if head is None:
                return None
            events = await _read_events(universe, name, head.data["events"], config)
            merged = _merge(*map(record.read_state, states))
            return _make_session(name, merged, events, head.data["updated"], head.rev)

        return await self.place.arun(read)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all, without events: those updated last come last."""
        names = (app_name,) if user_id is None else (app_name, user_id)

        async def read(universe: Universe) -> list[Session]:
            heads = await record.list_below(universe, SESSION, make_id(SESSION, *names) + "/")
            found = {
                each.id: each
                for each in await record.list_below(universe, STATE, make_id(STATE, *names) + "/")
            }
            app = record.read_state(await universe.get(app_state_id(app_name), raw=True))
            sessions = []
            for head in heads:
                name = Name(app_name, head.data["user"], head.data["session"])
                user, own = (record.read_state(found.get(id)) for id in name.states[1:])
                sessions.append(
                    _make_session(name, _merge(app, user, own), [], head.data["updated"], head.rev)
                )
            return sessions

        sessions = await self.place.arun(read)
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events and its state, in one commit; those of the user stay."""
        name = Name(app_name, user_id, session_id.strip() if session_id else session_id)

        async def work(universe: Universe) -> tuple[list[Op], Callable[[int], None]]:
            head = await universe.get(name.id, raw=True)
            if head is None:
                return [], lambda _: None
            events = [name.event(number) for number in range(head.data["events"])]
            ops: list[Op] = [Delete(name.id, head.rev), *map(Delete, [name.states[2], *events])]
            return ops, lambda _: None

        await self.place.arun(record.change, name.id, "delete an ADK session", work)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, without the prefix."""

        async def read(universe: Universe) -> dict[str, Any]:
            return record.read_state(await universe.get(user_state_id(app_name, user_id), raw=True))

        return await self.place.arun(read)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to a session and apply its changes of state, in one commit.

        An event that the session has already, equal in all fields, is not added again.
        """
        if event.partial:
            return event
        name = Name(session.app_name, session.user_id, session.id)
        delta = (event.actions and event.actions.state_delta) or {}
        kept = {key: value for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)}
        deltas = _session_util.extract_state_delta(kept)
        stored = event
        if len(kept) < len(delta):
            stored = event.model_copy(
                update={"actions": event.actions.model_copy(update={"state_delta": kept})}
            )
        raw = stored.model_dump_json(exclude_none=True).encode()

        async def work(universe: Universe) -> tuple[list[Op], Callable[[int], bool]]:
            head, *states = await universe.get_many([name.id, *name.states], raw=True)
            if head is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if await _has_event(universe, name, stored, raw):
                return [], lambda _: False
            _check_fresh(session, head)
            number = head.data["events"]
            data = _head_data(name, number + 1, event.timestamp, event.id)
            made = make_datum(universe, SESSION, name.id, data, before=head)
            ops: list[Op] = [Put(made, head.rev), Put(_make_event(universe, name, number, stored, raw), 0)]
            ops += _state_ops(universe, name, states, deltas)

            def finish(rev: int) -> bool:
                # Before the lock is released: the next append to this object must know.
                session._storage_update_marker = str(rev)
                return True

            return ops, finish

        if await self.place.arun(record.change, name.id, "add an ADK event", work):
            await super().append_event(session=session, event=event)
            session.last_update_time = event.timestamp
        return event


def app_state_id(app: str) -> str:
    """Return the id of the state that an app has."""
    return f"{make_id(STATE, app)}/~a"


def user_state_id(app: str, user: str) -> str:
    """Return the id of the state that a user has in an app."""
    return f"{make_id(STATE, app, user)}/~u"


def _head_data(name: Name, events: int, updated: float, last: str | None = None) -> dict[str, Any]:
    return {**name._asdict(), "events": events, "updated": updated, "last": last}


def _state_ops(
    universe: Universe, name: Name, stored: Sequence[Datum | None], deltas: dict[str, dict[str, Any]]
) -> list[Op]:
    """Return the ops that store those states that change."""
    ops: list[Op] = []
    fields = [*name._asdict().items()]
    for place, (scope, id, old) in enumerate(zip(SCOPES, name.states, stored, strict=True)):
        if deltas[scope]:
            data, content = record.encode_state({**record.read_state(old), **deltas[scope]})
            data |= {"scope": scope, **dict(fields[: place + 1])}
            made = make_datum(universe, STATE, id, data, content, before=old)
            ops.append(Put(made, 0 if old is None else old.rev))
    return ops


def _make_event(universe: Universe, name: Name, number: int, event: Event, raw: bytes) -> Datum:
    parts = (event.content and event.content.parts) or ()
    data = {
        **name._asdict(),
        "number": number,
        "event": event.id,
        "author": event.author,
        "invocation": event.invocation_id,
        "at": event.timestamp,
        "text": "\n".join(part.text for part in parts if part.text),
    }
    parent = name.event(number - 1) if number else name.id
    return make_datum(universe, EVENT, name.event(number), data, raw, parent)


def _check_fresh(session: Session, head: Datum) -> None:
    """Raise StaleSessionError if others added to a session since this one was read."""
    marker = session._storage_update_marker
    if marker is None:  # not one of ours: its last event tells
        fresh = head.data["last"] == (session.events[-1].id if session.events else None)
    else:
        fresh = marker == str(head.rev)
    if not fresh:
        raise StaleSessionError(
            f"session {session.id!r} was changed since it was read; get it again, then append the event"
        )


async def _has_event(universe: Universe, name: Name, event: Event, raw: bytes) -> bool:
    prefix = make_id(EVENT, *name) + "/"
    query = Query(schema=EVENT.name, where={"event": event.id}, prefix=prefix, limit=None)
    return any(each.content == raw for each in await universe.query(query, raw=True))


async def _read_events(
    universe: Universe, name: Name, count: int, config: GetSessionConfig | None
) -> list[Event]:
    """Return the events that a configuration asks for, the first one first."""
    first, after = 0, None if config is None else config.after_timestamp
    if config and config.num_recent_events is not None:
        first = max(0, count - config.num_recent_events)
    if after is None:
        return await _read_between(universe, name, first, count)
    events: list[Event] = []
    while count > first:
        start = max(first, count - PAGE)
        page = await _read_between(universe, name, start, count)
        older = [number for number, event in enumerate(page) if event.timestamp < after]
        if older:
            return page[older[-1] + 1 :] + events
        events, count = page + events, start
    return events


async def _read_between(universe: Universe, name: Name, start: int, end: int) -> list[Event]:
    found = await universe.get_many([name.event(number) for number in range(start, end)], raw=True)
    return [Event.model_validate_json(each.content) for each in found if each is not None]


def _merge(app: dict[str, Any], user: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {
        **own,
        **{State.APP_PREFIX + key: value for key, value in app.items()},
        **{State.USER_PREFIX + key: value for key, value in user.items()},
    }


def _make_session(
    name: Name, state: dict[str, Any], events: list[Event], updated: float, rev: int | None
) -> Session:
    made = Session(
        app_name=name.app,
        user_id=name.user,
        id=name.session,
        state=state,
        events=events,
        last_update_time=updated,
    )
    made._storage_update_marker = str(rev)
    return made
