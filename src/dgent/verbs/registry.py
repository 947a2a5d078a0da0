"""What a verb is, and how one is found, checked and called."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dgent.errors import DgentError, InputError, NotFound
from dgent.verbs import caller as callers
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.index import MODULES

F = TypeVar("F", bound=Callable[..., Any])


class Ask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a verb is asked with; each verb has its own."""


def argument(help: str, *, complete: str = "", words: bool = False, file: bool = False) -> msgspec.Meta:
    """A field that the command line takes by its place.

    `complete` names what a shell can offer for it; `words` takes all words that are left as one text, and
    `file` lets them come from a file instead, which the door reads.
    """
    extra = {"place": True, "complete": complete, "words": words, "file": file}
    return msgspec.Meta(description=help, extra=extra)


def option(help: str, *, short: str = "", name: str = "", complete: str = "") -> msgspec.Meta:
    """A field that the command line takes by a name."""
    return msgspec.Meta(description=help, extra={"short": short, "name": name, "complete": complete})


class Verb(msgspec.Struct, frozen=True):
    """One operation: its id, what goes in, what comes out, what it does to what is there.

    `lighter` says when a call does less than the verb can do, such as a dry run: then less trust is
    enough. A `local` verb works with files or modules of this machine: only a door of this machine
    offers it, and only to partners. One that `makes` may make the store that it works on.
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

    def effect_of(self, ask: Ask) -> Effect:
        """What this call does, which may be less than what the verb can do."""
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
) -> Callable[[F], F]:
    """Enter a function into the list of verbs; its annotations and docstring say the rest."""

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
        )
        return run

    return enter


def find(id: str) -> Verb:
    """The verb of an id; its module loads now."""
    if id not in MODULES:
        raise NotFound(f"there is no verb {id!r}", hint=nearest(id, MODULES))
    import_module(MODULES[id])
    return _verbs[id]


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word most like this one; empty when none is."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else ""


def every() -> list[Verb]:
    """All verbs, in the order of the list."""
    return [find(id) for id in MODULES]


def asked(verb: Verb, given: Mapping[str, Any]) -> Ask:
    """The input of a verb from loose values, such as texts; InputError names what is wrong."""
    known = verb.input.__struct_fields__
    for name in given:
        if name not in known:
            hint = nearest(name, known) or f"it takes {', '.join(known) or 'nothing'}"
            raise InputError(f"{verb.id} takes no {name!r}", hint=hint, field=name)
    try:
        return msgspec.convert(dict(given), verb.input, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{verb.id}: {_told(error)}", hint=f"see `dgent help {verb.id}`") from None
    except UnicodeEncodeError:
        raise InputError(f"{verb.id}: what was given is not valid Unicode text") from None


def _told(error: msgspec.ValidationError) -> str:
    """msgspec's words in the words of a caller: `$.limit` is the field limit."""
    text, _, place = str(error).partition(" - at `$")
    text = text.replace("Object missing required field", "it needs")
    wanted = re.match(r"Expected `(\w+)[^`]*`, got", text)
    if wanted and wanted[1] in _KINDS:
        text = f"must be {_KINDS[wanted[1]]}"
    return f"{place.strip('.`')} {text}" if place else text


_KINDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def call(verb: Verb, context: Context, given: Mapping[str, Any] | Ask) -> Any:
    """Call a verb: an awaitable, or an async iterator for one that streams. Trust is checked here."""
    ask = given if isinstance(given, Ask) else asked(verb, given)
    callers.check(context.caller, verb.id, verb.effect_of(ask), verb.local)
    context.check_local(verb.id, verb.local)
    result: Awaitable[Any] | AsyncIterator[Any] = verb.run(context, ask)
    return result
