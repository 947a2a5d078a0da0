"""The errors of blocks, each of them also a DgentError of the kind it is."""

from __future__ import annotations

from dgent.errors import Conflict, Corrupt, Denied, DgentError, InputError, NotFound, Unavailable
from dgent.universe.universe import Universe


def missing(universe: Universe, error: DgentError) -> DgentError:
    """The error that something is not there; while the store is away, that nobody can tell."""
    away = universe.degraded
    if away is None:
        return error
    message = f"what is asked for is not at hand, and the store is away: {away.reason}"
    return Unavailable(message, hint="try again when it is back", degraded=True)


class BlockNotFound(NotFound):
    """There is no such block, or the caller may not see it."""

    code = "block_not_found"


class AgentNotFound(NotFound):
    """There is no agent or group of this name."""

    code = "agent_not_found"


class EntryNotFound(NotFound):
    """There is no such archival entry, or the caller may not see it."""

    code = "entry_not_found"


class VersionNotFound(NotFound):
    """A block has no such version, checkpoint or branch."""

    code = "version_not_found"


class LabelTaken(Conflict):
    """The agent has a block of this label already."""

    code = "label_taken"
    hint = "choose another label, or delete or rename the other block"


class LabelAmbiguous(InputError):
    """Several agents have shared a block of this label."""

    code = "label_ambiguous"


class NameTaken(Conflict):
    """There is an agent or a group of this name already."""

    code = "name_taken"


class RewriteConflict(Conflict):
    """Others kept changing a block while it was redacted or compacted; nothing was done."""

    code = "rewrite_conflict"
    hint = "try again"
    retryable = True


class LimitExceeded(InputError):
    """The block would be longer than its limit."""

    code = "limit_exceeded"
    hint = "shorten it, move part of it elsewhere, or raise the limit"


class NoMatch(InputError):
    """The text to replace, or the context of a patch, is not there."""

    code = "no_match"
    hint = "read the block again: it may have changed"


class WrongKind(InputError):
    """This kind of document does not have this operation."""

    code = "wrong_kind"


class TemplateError(InputError):
    """A value does not fit the template, or the template is malformed."""

    code = "template"


class PermissionDenied(Denied):
    """The block, the share or the caller's trust does not allow this."""

    code = "permission_denied"


class ConsentRefused(PermissionDenied):
    """Somebody had to be asked, and said no or did not answer."""

    code = "consent_refused"


class DocumentCorrupt(Corrupt):
    """Bytes that are no document."""

    code = "document_corrupt"
