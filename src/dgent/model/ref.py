"""A typed link from one record to another, stored as the other's id."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from dgent import ids
from dgent.errors import InputError

T = TypeVar("T")


class Ref(Generic[T]):
    """A link to a record whose value is a `T`; two links to the same id are equal.

    `Ref(crystal)` and `Ref("some-id")` make the same link. The type parameter is for readers and
    type checkers only: the store holds the id text, and nothing checks what it points at.
    """

    __slots__ = ("id",)
    id: str

    def __init__(self, target: Any) -> None:
        given = target if isinstance(target, str) else getattr(target, "id", target)
        object.__setattr__(self, "id", ids.check_id(given, "ref"))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Ref cannot be changed; make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Ref cannot be changed, so {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Ref) else NotImplemented

    def __hash__(self) -> int:
        return hash((Ref, self.id))

    def __repr__(self) -> str:
        return f"Ref({self.id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would set the slot, which a frozen value refuses; this keeps copy and pickle working.
        return Ref, (self.id,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Tell pydantic how to validate a Ref in a model; only pydantic calls this."""
        from pydantic_core import core_schema  # there, since it is pydantic that asks

        text = core_schema.str_schema()
        return core_schema.no_info_plain_validator_function(
            _validate_ref,
            serialization=core_schema.plain_serializer_function_ser_schema(encode_hook, return_schema=text),
            json_schema_input_schema=text,
        )


def _validate_ref(data: Any) -> Ref[Any]:
    """Return the Ref of an id; ValueError, as pydantic wants it, when it is not a valid one."""
    try:
        found: Ref[Any] = decode_hook(Ref, data)
    except InputError as error:
        raise ValueError(error.message) from None
    return found


def is_ref(hint: object) -> bool:
    """Return whether a type hint is `Ref` or `Ref[...]`."""
    return hint is Ref or getattr(hint, "__origin__", None) is Ref


def decode_hook(hint: Any, data: Any) -> Any:
    """Turn an id text into a Ref; msgspec calls this for a type it does not know."""
    if not is_ref(hint):
        raise TypeError(f"{hint!r} is not a type that a contract may have")
    if not isinstance(data, str | Ref):
        raise InputError(f"Expected the `str` id of a record, got `{type(data).__name__}`")
    return Ref(data)


def encode_hook(value: Any) -> Any:
    """Turn a Ref into its id text; msgspec calls this for a value it does not know."""
    if isinstance(value, Ref):
        return value.id
    raise TypeError(f"a {type(value).__name__} is not JSON-like")
