"""The errors of blocks, each also a DgentError of its general kind."""

from __future__ import annotations

from dgent.errors import Ambiguous, Conflict, Corrupt, Denied, DgentError, InputError, NotFound, Unavailable
from dgent.universe.universe import Universe


def missing(universe: Universe, error: DgentError) -> DgentError:
    """Return the not-found error, or Unavailable while the store is offline and nobody can know."""
    offline = universe.degraded
    if offline is None:
        return error
    message = f"it is not in the local copy, and the store is offline: {offline.reason}"
    return Unavailable(message, hint="try again when the store is online", degraded=True)


class BlockNotFound(NotFound):
    """The block does not exist, or the caller may not see it."""

    code = "block_not_found"


class AgentNotFound(NotFound):
    """No agent or group has this name."""

    code = "agent_not_found"


class EntryNotFound(NotFound):
    """The archival entry does not exist, or the caller may not see it."""

    code = "entry_not_found"


class VersionNotFound(NotFound):
    """The block does not have this version, checkpoint or branch."""

    code = "version_not_found"


class LabelTaken(Conflict):
    """The agent already has a block with this label."""

    code = "label_taken"
    hint = "choose another label, or delete or rename the other block"


class LabelAmbiguous(Ambiguous):
    """Several agents have shared a block with this label."""

    code = "label_ambiguous"


class NameTaken(Conflict):
    """An agent or a group already has this name."""

    code = "name_taken"


class RewriteConflict(Conflict):
    """Others kept changing the block while it was redacted or compacted; nothing was done."""

    code = "rewrite_conflict"
    hint = "try again"
    retryable = True


class LimitExceeded(InputError):
    """The block would be longer than its limit."""

    code = "limit_exceeded"
    hint = "shorten it, move part of it elsewhere, or raise the limit"


class NoMatch(InputError):
    """The text to replace, or the context of a patch, was not found."""

    code = "no_match"
    hint = "read the block again: it may have changed"


class WrongKind(InputError):
    """The operation is not available for this kind of document."""

    code = "wrong_kind"


class TemplateError(InputError):
    """A value does not fit the template, or the template is malformed."""

    code = "template"


class PermissionDenied(Denied):
    """The block, the share or the caller's trust does not allow this."""

    code = "permission_denied"


class ConsentRefused(PermissionDenied):
    """Consent was needed, and was refused or not given in time."""

    code = "consent_refused"


class DocumentCorrupt(Corrupt):
    """The stored bytes are not a valid document."""

    code = "document_corrupt"
