"""The laws of optics, as functions for tests: an empty list means lawful."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dgent.model.lens import Affine, Lens, Prism, Traversal
from dgent.model.path import MISSING

S = TypeVar("S")
A = TypeVar("A")


def lens_laws(lens: Lens[S, A], s: S, a: A, b: A) -> list[str]:
    """Return the laws a lens breaks for these samples, compared with `==`; empty means lawful."""
    return _broken(
        s,
        ("GetPut", lambda: lens.set(s, lens.get(s)), lambda: s),
        ("PutGet", lambda: lens.get(lens.set(s, a)), lambda: a),
        ("PutPut", lambda: lens.set(lens.set(s, a), b), lambda: lens.set(s, b)),
    )


def prism_laws(prism: Prism[S, A], s: S, a: A) -> list[str]:
    """Return the laws a prism breaks for these samples; try None as `a` too where it is a valid case."""
    return _broken(
        s,
        ("ReviewPreview", lambda: prism.preview(prism.review(a)), lambda: a),
        ("PreviewReview", lambda: prism.modify(s, lambda found: found), lambda: s),
    )


def affine_laws(affine: Affine[S, A], s: S, a: A, b: A) -> list[str]:
    """Return the laws an affine breaks for these samples; try an `s` with the part and one without it."""
    return _broken(
        s,
        ("GetPut", lambda: affine.modify(s, lambda found: found), lambda: s),
        (
            "PutGet",
            lambda: affine.preview(affine.set(s, a)),
            lambda: MISSING if affine.preview(s) is MISSING else a,
        ),
        ("PutPut", lambda: affine.set(affine.set(s, a), b), lambda: affine.set(s, b)),
        ("AbsentPut", lambda: affine.set(s, a), lambda: affine.modify(s, lambda _: a)),
    )


def traversal_laws(traversal: Traversal[S, A], s: S, f: Callable[[A], A], g: Callable[[A], A]) -> list[str]:
    """Return the laws a traversal breaks for this value and two pure changes of its parts."""
    get_all, modify = traversal.get_all, traversal.modify

    def visit_parts() -> list[A]:
        seen: list[A] = []

        def record(a: A) -> A:
            seen.append(a)
            return f(a)

        modify(s, record)
        return seen

    return _broken(
        s,
        ("Identity", lambda: modify(s, lambda a: a), lambda: s),
        ("Fusion", lambda: modify(modify(s, f), g), lambda: modify(s, lambda a: g(f(a)))),
        ("Once", visit_parts, lambda: get_all(s)),
        ("GetModified", lambda: get_all(modify(s, f)), lambda: [f(a) for a in get_all(s)]),
    )


def _broken(s: object, *laws: tuple[str, Callable[[], object], Callable[[], object]]) -> list[str]:
    # A value that cannot be copied, or differs from its copy, cannot show that it was changed in place.
    with suppress(Exception):
        before = copy.deepcopy(s)
        if before == s:
            laws = (*laws, ("Purity", lambda: s, lambda: before))
    broken = []
    for law, seen, expected in laws:
        try:
            left, right = seen(), expected()
            if left != right:
                broken.append(f"{law}: saw {left!r}, expected {right!r}")
        except Exception as error:
            broken.append(f"{law}: raised {type(error).__name__}: {error}")
    return broken
