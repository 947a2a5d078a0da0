"""Define, find, check and call verbs."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dgent.errors import DgentError, InputError, NotFound
from dgent.system.near import nearest
from dgent.verbs import caller as callers
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.index import MODULES

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base class of the input of a verb; each verb has its own."""


class NoInput(Ask):
    """Input of a verb that takes nothing."""


class Items(msgspec.Struct, Generic[T], frozen=True):
    """An answer of many: things of one kind, in the order that the verb says."""

    items: list[T]


def argument(help: str, *, complete: str = "", words: bool = False, file: bool = False) -> msgspec.Meta:
    """Describe a field that the command line takes by position.

    `complete` names the kind of value that a shell offers; `words` joins all remaining words into one text,
    and `file` lets the text come from a file instead, which the door reads.
    """
    extra = {"place": True, "complete": complete, "words": words, "file": file}
    return msgspec.Meta(description=help, extra=extra)


def option(
    help: str, *, short: str = "", name: str = "", complete: str = "", prompt: str = ""
) -> msgspec.Meta:
    """Describe a field that the command line takes by name: its own, or another that Python cannot have.

    `prompt` is a question that a door may ask a person who did not say.
    """
    extra = {"short": short, "name": name, "complete": complete, "prompt": prompt}
    return msgspec.Meta(description=help, extra=extra)


AsOf = Annotated[str | None, option("as it was: a commit's number, a time, or 2h for two hours ago")]


class PastAsk(Ask, kw_only=True):
    """Base class of the input of a verb that can look at the past."""

    as_of: AsOf = None


class Verb(msgspec.Struct, frozen=True):
    """One operation: its id, input, output and effect.

    `lighter` returns the effect of a call that does less than the verb can, such as a dry run: then less
    trust is enough. A `local` verb works with files or modules of this machine: only a door of this machine
    offers it, and only to partners; `unless` returns whether a call of it touches none. A verb that `makes`
    may create the store that it works on. One for a `partner` is for nobody else, whatever its effect.
    """

    id: str
    input: type[Ask]
    output: Any
    effect: Effect
    errors: tuple[type[DgentError], ...]
    help: str
    run: Callable[[Context, Any], Any]
    streams: bool = False
    local: bool = False
    lighter: Callable[[Any], Effect | None] | None = None
    makes: bool = False
    unless: Callable[[Any], bool] | None = None
    partner: bool = False

    def is_local(self, ask: Ask) -> bool:
        """Return whether this call works with files or modules of this machine."""
        return self.local and not (self.unless is not None and self.unless(ask))

    def effect_of(self, ask: Ask) -> Effect:
        """Return the effect of this call, which may be less than that of the verb."""
        lighter = None if self.lighter is None else self.lighter(ask)
        if lighter is None and getattr(ask, "dry_run", False):
            lighter = "read"
        return lighter or self.effect


_verbs: dict[str, Verb] = {}


def verb(
    id: str,
    *,
    effect: Effect,
    errors: tuple[type[DgentError], ...] = (),
    local: bool = False,
    lighter: Callable[[Any], Effect | None] | None = None,
    makes: bool = False,
    unless: Callable[[Any], bool] | None = None,
    partner: bool = False,
) -> Callable[[F], F]:
    """Register a function as a verb; input, output and help come from its annotations and docstring."""

    def enter(run: F) -> F:
        hints = get_type_hints(run)
        output = hints["return"]
        streams = get_origin(output) is AsyncIterator
        _verbs[id] = Verb(
            id,
            hints["ask"],
            get_args(output)[0] if streams else output,
            effect,
            errors,
            (inspect.getdoc(run) or "").partition("\n")[0],
            run,
            streams,
            local,
            lighter,
            makes,
            unless,
            partner,
        )
        return run

    return enter


def find(id: str) -> Verb:
    """Return the verb of an id; loads its module."""
    if id not in MODULES:
        raise NotFound(f"there is no verb {id!r}", hint=nearest(id, MODULES))
    import_module(MODULES[id])
    return _verbs[id]


def every() -> list[Verb]:
    """Return all verbs, in the order of the index."""
    return [find(id) for id in MODULES]


def read_input(verb: Verb, given: Mapping[str, Any]) -> Ask:
    """Build the input of a verb from loose values, such as texts; InputError names the wrong field."""
    known = verb.input.__struct_fields__
    for name in given:
        if name not in known:
            hint = nearest(name, known) or f"it takes {', '.join(known) or 'nothing'}"
            raise InputError(f"{verb.id} takes no {name!r}", hint=hint, field=name)
    try:
        return msgspec.convert(dict(given), verb.input, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{verb.id}: {_explain(error)}", hint=f"see `dgent help {verb.id}`") from None
    except UnicodeEncodeError:
        raise InputError(f"{verb.id}: the input is not valid Unicode text") from None


def _explain(error: msgspec.ValidationError) -> str:
    """Reword an error of msgspec for a caller: `$.limit` becomes the field limit."""
    text, _, place = str(error).partition(" - at `$")
    text = text.replace("Object missing required field", "it needs")
    wanted = re.match(r"Expected `(\w+)[^`]*`, got", text)
    if wanted and wanted[1] in _KINDS:
        text = f"must be {_KINDS[wanted[1]]}"
    return f"{place.strip('.`')} {text}" if place else text


_KINDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def call(verb: Verb, context: Context, given: Mapping[str, Any] | Ask) -> Any:
    """Check trust and call a verb; returns an awaitable, or an async iterator for one that streams."""
    ask = given if isinstance(given, Ask) else read_input(verb, given)
    local = verb.is_local(ask)
    callers.check(context.caller, verb.id, verb.effect_of(ask), local, verb.partner)
    context.check_local(verb.id, local)
    if context.remote and not verb.local and not verb.streams:
        return _call_there(verb, context, ask)
    result: Awaitable[Any] | AsyncIterator[Any] = verb.run(context, ask)
    return result


async def _call_there(verb: Verb, context: Context, ask: Ask) -> Any:
    """Call a verb of the server that has the store: rooms work where their records are."""
    backend: Any = (await context.universe()).backend
    backend = getattr(backend, "reachable_store", backend)
    usual = {field.name: field.default for field in msgspec.structs.fields(verb.input)}
    given = {name: value for name, value in msgspec.structs.asdict(ask).items() if value != usual[name]}
    reads = verb.effect_of(ask) in ("help", "read")
    return await backend.call_verb(verb.id, given, verb.output, reads=reads)
