"""Every error dgent raises.

DgentError                      code, hint, retryable, details
├── InputError (ValueError)     what the caller gave is wrong; nothing was stored
│   ├── Ambiguous               several things have this name; the candidates are listed
│   ├── SchemaError             a contract, a migration step or a declaration is wrong
│   └── QueryError              an unknown operator, a malformed path, a bad limit
│       └── CursorInvalid       a cursor of another query or another store
├── NotFound (KeyError)         no such record, commit or schema
│   └── HistoryGone             it was there, and a retention rule removed it
├── Conflict                    someone else was faster; read again and decide
│   ├── VersionConflict         `expect` does not match the stored rev
│   ├── TransactionConflict     what a transaction read has changed       (retryable)
│   ├── UndoConflict            a record changed after the commit to undo
│   ├── KeyReused               an idempotency key came back with other work
│   └── NewerRecord             the stored record is of a newer schema version
├── Denied                      the caller may not do this
├── Unsupported                 this engine, or this build, cannot do it
├── Unreadable                  one stored record cannot become a value
│   ├── UpgradeFailed           a migration step raised
│   └── DecodeFailed            the data does not fit the contract
├── EmbedderFailed              an embedder raised, hung or answered nonsense  (retryable)
│   └── EmbedderRefused         it does not take these texts, this key or this model
├── ModelFailed                 a model failed: no connection, a server error, a cut stream  (retryable)
│   ├── ModelThrottled          it is asked too often, or overloaded       (retryable)
│   ├── ModelRefused            it does not take this request, key or name
│   │   └── ContextTooLong      the request is longer than its context
│   └── BudgetSpent             calls, tokens, money or time are used up
├── StorageError                the engine failed
│   ├── Unavailable             not reachable now                          (retryable)
│   │   ├── NoBackendAvailable  no engine for this place could be opened
│   │   ├── Busy                another process held the store too long    (retryable)
│   │   ├── StorageFull         no room left; free some and try again      (retryable)
│   │   └── OutcomeUnknown      the reply was lost; ask `outcome(key)`     (retryable)
│   ├── Corrupt                 stored bytes are not what was written
│   ├── FormatTooNew            the store was written by a newer dgent
│   ├── FormatTooOld            the store needs an upgrade that was not allowed
│   └── Closed                  used after close, after fork, or from another loop
└── ConfigError                 a setting is wrong or missing
    └── NoUniverse              no universe was set for this process
"""

from __future__ import annotations

from typing import Any


class DgentError(Exception):
    """The root of all dgent errors."""

    code = "error"
    hint = ""
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SchemaConflict(UserWarning):
    """Two programs use different contracts under one version of a schema. A warning, not an error."""


class UnreadableRecord(UserWarning):
    """Records that cannot be read as values were left out of an answer. A warning, not an error."""


class Degraded(UserWarning):
    """The store cannot be reached, and writes go to the outbox. A warning, not an error."""


class InputError(DgentError, ValueError):
    """An argument is wrong; nothing was stored."""

    code = "input"


class SchemaError(InputError):
    """A schema's contract, steps or declarations are wrong."""

    code = "schema"


class QueryError(InputError):
    """A query is not understood."""

    code = "query"


class CursorInvalid(QueryError):
    """A cursor belongs to another query or another store."""

    code = "cursor"
    hint = "start the query again without a cursor"


class Ambiguous(InputError):
    """Several things have this name, or an id that begins so; `details["candidates"]` are their ids."""

    code = "ambiguous"


class NotFound(DgentError, KeyError):
    """No such record, commit or schema exists."""

    code = "not_found"


class HistoryGone(NotFound):
    """The requested history was removed by a retention rule."""

    code = "history_gone"


class Conflict(DgentError):
    """Somebody else changed the data that this change relied on."""

    code = "conflict"
    hint = "read again and decide"


class VersionConflict(Conflict):
    """The stored rev is not the expected one."""

    code = "version_conflict"


class TransactionConflict(Conflict):
    """Something a transaction read was changed before it committed."""

    code = "transaction_conflict"
    hint = "run it again, or use `transact`, which retries"
    retryable = True


class UndoConflict(Conflict):
    """A record changed after the commit that should be undone."""

    code = "undo_conflict"
    hint = "undo the later commits first, or pass `only=` or `force=True`"


class KeyReused(Conflict):
    """An idempotency key was used before for other work."""

    code = "key_reused"
    hint = "use a fresh key for new work"


class NewerRecord(Conflict):
    """The stored record is of a newer schema version than the one offered."""

    code = "newer_record"
    hint = "upgrade this program, or read it with `raw=True`"


class Denied(DgentError):
    """The caller may not do this."""

    code = "denied"


class Unsupported(DgentError):
    """This engine cannot do what was requested."""

    code = "unsupported"


class Unreadable(DgentError):
    """A stored record cannot become a value of its contract."""

    code = "unreadable"
    hint = "read it with `raw=True`"


class UpgradeFailed(Unreadable):
    """A migration step raised; the stored bytes did not change."""

    code = "upgrade_failed"


class DecodeFailed(Unreadable):
    """The data does not fit the contract; every wrong field is named."""

    code = "decode_failed"


class EmbedderFailed(DgentError):
    """An embedder raised, took too long or answered nonsense; nothing of its answer is used."""

    code = "embedder"
    retryable = True


class EmbedderRefused(EmbedderFailed):
    """An embedder does not take these texts, this key or this model; asking again changes nothing."""

    code = "embedder_refused"
    retryable = False


class ModelFailed(DgentError):
    """A model could not be reached, failed, or broke off its answer."""

    code = "model"
    retryable = True


class ModelThrottled(ModelFailed):
    """A model is asked too often, or is overloaded; `details["retry_s"]` is the wait it asks for, or None."""

    code = "model_throttled"


class ModelRefused(ModelFailed):
    """A model does not take this request, this key or this name; asking again changes nothing."""

    code = "model_refused"
    retryable = False


class ContextTooLong(ModelRefused):
    """A request is longer than the context of the model."""

    code = "context_too_long"
    hint = "compress the history, or use a model with a longer context"


class BudgetSpent(ModelFailed):
    """The budget of calls, tokens, money or time for models is used up."""

    code = "budget_spent"
    hint = "give a larger budget"
    retryable = False


class StorageError(DgentError):
    """The storage engine failed."""

    code = "storage"


class Unavailable(StorageError):
    """The store cannot be reached now."""

    code = "unavailable"
    retryable = True


class NoBackendAvailable(Unavailable):
    """No engine for this place could be opened."""

    code = "no_backend"
    retryable = False


class Busy(Unavailable):
    """Another process held the store longer than the wait allows."""

    code = "busy"
    hint = "try again, or find out what the other process is doing"


class StorageFull(Unavailable):
    """No room is left where the store lives."""

    code = "storage_full"
    hint = "free some space; the same handle works again then"


class OutcomeUnknown(Unavailable):
    """The reply to a commit was lost, so it may or may not have happened."""

    code = "outcome_unknown"
    hint = "ask `outcome(key)`, or repeat the call with the same key"


class Corrupt(StorageError):
    """Stored bytes are not what was written."""

    code = "corrupt"
    hint = "restore a backup; nothing was overwritten"


class FormatTooNew(StorageError):
    """The store was written by a newer dgent."""

    code = "format_too_new"
    hint = "upgrade dgent; nothing was changed"


class FormatTooOld(StorageError):
    """The store was written by an older dgent, and may not or cannot be upgraded from here."""

    code = "format_too_old"
    hint = "run `dgent store upgrade`, or open it without upgrade='never'; nothing was changed"


class Closed(StorageError):
    """A handle was used after close, after fork, or from another event loop."""

    code = "closed"
    hint = "open the store again here"


class ConfigError(DgentError):
    """A setting is wrong or missing."""

    code = "config"


class NoUniverse(ConfigError):
    """No universe was set for this process."""

    code = "no_universe"
    hint = "call `dgent.set_universe(u)` first"
