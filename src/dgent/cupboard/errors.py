"""The errors of the cupboard; each derives from a general DgentError.

DgentError
├── InputError          InvalidID, InvalidData, InvalidState, InvalidTransition, InvalidName,
│                       InvalidValueType, TypeMismatch, InvalidCategory, InvalidStashType, InvalidHolder,
│                       InvalidContent, InvalidFilter
├── NotFound            EntityNotFound, TableNotFound, PropertyNotFound, SchemaNotFound, NotInTrail
├── Conflict            AlreadyAttached, DuplicateName (DuplicateLink), Cardinality (AlreadyInTrail), Cycle,
│                       LockHeld, NotLockHolder
├── Closed              Detached
└── ConfigError         BackendEmpty, BackendUnknown, DataDirEmpty, SyncStrategyUnknown, BatchSizeInvalid,
                        BatchIntervalInvalid
"""

from __future__ import annotations

from dgent.errors import Closed, ConfigError, Conflict, InputError, NotFound


class Detached(Closed):
    """The cupboard is not attached."""

    code = "detached"
    hint = "attach it, or make a Cupboard on an open universe"


class AlreadyAttached(Conflict):
    """The cupboard is already attached."""

    code = "already_attached"
    hint = "detach it first"


class TableNotFound(NotFound):
    """No table has this name."""

    code = "table_not_found"


class EntityNotFound(NotFound):
    """No entity of this table has the id."""

    code = "entity_not_found"


class InvalidID(InputError):
    """An id is empty or malformed, or belongs to another kind of record."""

    code = "invalid_id"


class InvalidData(InputError):
    """The value is not an entity of this table, or a field is missing or invalid."""

    code = "invalid_data"


class InvalidState(InputError):
    """A state that does not exist, or that cannot follow the current one."""

    code = "invalid_state"


class InvalidTransition(InputError):
    """A crumb cannot change to this state from its current one."""

    code = "invalid_transition"


class InvalidName(InputError):
    """A name is empty or malformed."""

    code = "invalid_name"


class PropertyNotFound(NotFound):
    """No such property is defined, or the entity has no value for it."""

    code = "property_not_found"


class TypeMismatch(InputError):
    """A value is not of its property's type."""

    code = "type_mismatch"


class InvalidCategory(InputError):
    """A value is not a category of its property."""

    code = "invalid_category"


class InvalidValueType(InputError):
    """A property's value type does not exist, or does not allow this."""

    code = "invalid_value_type"


class InvalidStashType(InputError):
    """A stash type does not exist, or does not allow this operation."""

    code = "invalid_stash_type"


class InvalidHolder(InputError):
    """The holder of a lock has no name."""

    code = "invalid_holder"


class InvalidContent(InputError):
    """A metadata entry without content."""

    code = "invalid_content"


class InvalidFilter(InputError):
    """A filter's value has the wrong type."""

    code = "invalid_filter"


class SchemaNotFound(NotFound):
    """No metadata schema of this name is registered."""

    code = "schema_not_found"


class NotInTrail(NotFound):
    """The crumb does not belong to the trail."""

    code = "not_in_trail"


class DuplicateName(Conflict):
    """The name is already in use."""

    code = "duplicate_name"
    hint = "choose another name"


class DuplicateLink(DuplicateName):
    """The same link already exists."""

    code = "duplicate_link"
    hint = "it already exists: nothing needs to be done"


class Cardinality(Conflict):
    """One more link than its type allows."""

    code = "cardinality"
    hint = "delete the other link first"


class AlreadyInTrail(Cardinality):
    """The crumb belongs to another trail."""

    code = "already_in_trail"


class Cycle(Conflict):
    """The link would make a crumb wait for itself."""

    code = "cycle"
    hint = "delete one of the links of the cycle"


class LockHeld(Conflict):
    """Another holder has the lock."""

    code = "lock_held"
    hint = "try again when it is released, or its lease has expired"
    retryable = True


class NotLockHolder(Conflict):
    """The caller does not hold the lock, or lost it."""

    code = "not_lock_holder"
    hint = "acquire it again before relying on it"


class BackendEmpty(ConfigError):
    """A configuration without a backend."""

    code = "backend_empty"


class BackendUnknown(ConfigError):
    """A backend that does not exist."""

    code = "backend_unknown"


class DataDirEmpty(ConfigError):
    """A configuration without a folder for its data."""

    code = "data_dir_empty"


class SyncStrategyUnknown(ConfigError):
    """A sync strategy that does not exist."""

    code = "sync_strategy_unknown"


class BatchSizeInvalid(ConfigError):
    """A batch size below zero, or a batch that would never end."""

    code = "batch_size_invalid"


class BatchIntervalInvalid(ConfigError):
    """A batch interval below zero."""

    code = "batch_interval_invalid"
