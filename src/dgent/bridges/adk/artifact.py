"""Artifacts of ADK as records of a place: one for the artifact, and one for each of its versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from dgent.bridges.adk import record
from dgent.bridges.adk.record import ARTIFACT, make_datum, make_id, make_part
from dgent.bridges.placed import Place, Placed
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Op, Put
from dgent.universe.universe import Universe

USER = "user:"  # begins the names of artifacts that all sessions of a user share
MAX_TEXT = 100_000  # characters of a text that a search looks at


class StoredVersion(msgspec.Struct, array_like=True):
    """The content of a version: the part and its description as JSON, and its bytes as they are."""

    part: bytes
    data: bytes | None
    about: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredVersion).decode


class Name(NamedTuple):
    """The name of an artifact; one without a session belongs to the user."""

    app: str
    user: str
    session: str | None
    filename: str

    @property
    def folder(self) -> str:
        """The beginning of the ids of all artifacts beside it."""
        return list_folder(self.app, self.user, self.session)

    @property
    def id(self) -> str:
        """The id of its record, below which its versions are."""
        return self.folder + make_part(self.filename)

    def version(self, number: int) -> str:
        """Return the id of a version."""
        return f"{self.id}/{number:06}"


def list_folder(app: str, user: str, session: str | None) -> str:
    """Return the beginning of the ids of the artifacts of a session, or of a user."""
    return f"{make_id(ARTIFACT, app, user)}/{'~u' if session is None else make_part(session)}/"


def _name(app: str, user: str, filename: str, session: str | None) -> Name:
    if filename.startswith(USER):
        return Name(app, user, None, filename)
    if session is None:
        raise InputValidationError(f"{filename!r} needs a session_id, or a name that begins with {USER!r}")
    return Name(app, user, session, filename)


class DgentArtifactService(Placed, BaseArtifactService):
    """Keeps artifacts at a place: a URL, an open universe, or a handle of `dgent.sync.anywhere`.

    Names are any texts, since none becomes a path. A save is one commit; two at once get two versions.
    """

    def __init__(self, place: Place) -> None:
        self._settle(place, *record.SCHEMAS)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Store an artifact and return its version: 0, 1, 2, and so on."""
        name, part = _name(app_name, user_id, filename, session_id), ensure_part(artifact)
        mime_type = _find_type(name, session_id, part)

        async def work(universe: Universe) -> tuple[list[Op], Callable[[int], int]]:
            head = await universe.get(name.id, raw=True)
            number = 0 if head is None else head.data["versions"]
            about = ArtifactVersion(
                version=number,
                canonical_uri=artifact_util.get_artifact_uri(
                    app_name=name.app,
                    user_id=name.user,
                    session_id=name.session,
                    filename=filename,
                    version=number,
                ),
                custom_metadata=custom_metadata or {},
                mime_type=mime_type,
            )
            data = {**name._asdict(), "versions": number + 1, "mime_type": mime_type}
            made = make_datum(universe, ARTIFACT, name.id, data, before=head)
            version = _make_version(universe, name, part, about)
            return [Put(made, 0 if head is None else head.rev), Put(version, 0)], lambda _: number

        return await self.place.arun(record.change, name.id, "save an ADK artifact", work)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, by default the newest; None if there is none.

        A reference to another artifact is followed, within the same app and user.
        """
        name = _name(app_name, user_id, filename, session_id)
        for depth in range(artifact_util._MAX_ARTIFACT_REFERENCE_DEPTH, -1, -1):
            found = await self._read(name, version)
            part = None if found is None else _read_part(found)
            if part is None or part == types.Part() or artifact_util._is_rewind_tombstone(part):
                return None
            if not artifact_util.is_artifact_ref(part):
                return part
            assert part.file_data is not None and part.file_data.file_uri is not None
            target = artifact_util.resolve_artifact_reference(
                file_uri=part.file_data.file_uri,
                app_name=name.app,
                user_id=name.user,
                session_id=session_id,
                remaining_depth=depth,
            )
            session_id, version = target.session_id, target.version
            name = _name(target.app_name, target.user_id, target.filename, session_id)
        raise AssertionError("unreachable")

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """Return the names of the artifacts of a user, and of a session if one is given, in order."""
        folders = [list_folder(app_name, user_id, None)]
        folders += [list_folder(app_name, user_id, session_id)] if session_id else []

        async def read(universe: Universe) -> list[str]:
            found = [
                each
                for folder in folders
                for each in await record.list_below(universe, ARTIFACT, folder, content=False)
            ]
            return [each.data["filename"] for each in found if "versions" in each.data]

        return sorted(await self.place.arun(read))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with its versions, in one commit; the next one saved is version 0."""
        name = _name(app_name, user_id, filename, session_id)

        async def work(universe: Universe) -> tuple[list[Op], Callable[[int], None]]:
            head = await universe.get(name.id, raw=True)
            if head is None:
                return [], lambda _: None
            versions = [name.version(number) for number in range(head.data["versions"])]
            return [Delete(name.id, head.rev), *map(Delete, versions)], lambda _: None

        await self.place.arun(record.change, name.id, "delete an ADK artifact", work)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the numbers of all versions of an artifact."""
        return [*range(await self._count(_name(app_name, user_id, filename, session_id)))]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return the descriptions of all versions of an artifact."""
        name = _name(app_name, user_id, filename, session_id)
        found = [await self._read(name, number) for number in range(await self._count(name))]
        return [_read_about(each) for each in found if each is not None]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return the description of a version, by default the newest; None if there is none."""
        found = await self._read(_name(app_name, user_id, filename, session_id), version)
        return None if found is None else _read_about(found)

    async def _count(self, name: Name) -> int:
        head = await self.place.arun(Universe.get, name.id, raw=True)
        return 0 if head is None else head.data["versions"]

    async def _read(self, name: Name, version: int | None) -> Datum | None:
        """Return the record of a version, by default the newest."""
        number = await self._count(name) - 1 if version is None else version
        if number < 0:
            return None
        found: Datum | None = await self.place.arun(Universe.get, name.version(number), raw=True)
        return found


def _find_type(name: Name, session: str | None, part: types.Part) -> str | None:
    """Return the type of an artifact; InputValidationError for a part that is none, or a bad reference."""
    kind: str | None = None
    if part.inline_data is not None:
        kind = part.inline_data.mime_type
    elif part.text is not None:
        kind = "text/plain"
    elif part.file_data is None:
        raise InputValidationError("an artifact has inline_data, text or file_data; this part has none")
    elif artifact_util.is_artifact_ref(part):
        _check_reference(name, session, part.file_data.file_uri or "")
    else:
        kind = part.file_data.mime_type
    return kind


def _check_reference(name: Name, session: str | None, uri: str) -> None:
    """Raise InputValidationError for a reference that is not valid, or leads out of its app or session."""
    parsed = artifact_util.parse_artifact_uri(uri)
    if parsed is None:
        raise InputValidationError(f"{uri!r} is not a valid reference to an artifact")
    artifact_util.validate_artifact_reference_scope(
        app_name=name.app, user_id=name.user, session_id=session, parsed_uri=parsed
    )


def _make_version(universe: Universe, name: Name, part: types.Part, about: ArtifactVersion) -> Datum:
    blob = part.inline_data
    raw = None if blob is None else blob.data
    if blob is not None and raw is not None:  # the bytes as they are: JSON would take a third more
        part = part.model_copy(update={"inline_data": blob.model_copy(update={"data": None})})
    data = {**name._asdict(), "version": about.version, "mime_type": about.mime_type}
    if part.text:
        data["text"] = part.text[:MAX_TEXT]
    dumped = [each.model_dump_json(exclude_none=True).encode() for each in (part, about)]
    content = _encode(StoredVersion(dumped[0], raw, dumped[1]))
    return make_datum(universe, ARTIFACT, name.version(about.version), data, content, name.id)


def _read_part(datum: Datum) -> types.Part:
    stored = _decode(datum.content)
    part = types.Part.model_validate_json(stored.part)
    if part.inline_data is not None and stored.data is not None:
        part.inline_data.data = stored.data
    return part


def _read_about(datum: Datum) -> ArtifactVersion:
    return ArtifactVersion.model_validate_json(_decode(datum.content).about)
