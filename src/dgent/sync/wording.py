"""Signatures and documentation of async functions in their blocking form."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

_LOOP_TYPES = ("Awaitable[", "AsyncIterator[", "AsyncGenerator[", "AsyncContextManager[")
_TEXTS = (
    ("`async with dgent.open", "`with sync.open"),
    ("`async with", "`with"),
    (", or `await` it", ", or `close` it later"),
    (" = await ", " = "),
    ("`await ", "`"),
    ("It belongs to the event loop that opened it", "Any thread of this process may use it"),
    (", plain or async;", ";"),
)


def blocking(text: str) -> str:
    """Return a docstring or a hint as a blocking caller should read it."""
    for old, new in _TEXTS:
        text = text.replace(old, new)
    return text


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the parameters of an async function, with plain functions as callbacks and plain iterators."""
    real = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=plain(parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in real.parameters.values()
    ]
    answer = real.return_annotation
    if isinstance(answer, str):
        if is_context(function):
            answer = answer.replace("AsyncIterator[", "AbstractContextManager[")
        answer = plain(answer)
    return real.replace(parameters=parameters, return_annotation=answer)


def is_context(function: Callable[..., Any]) -> bool:
    """Return whether the result of a function is for `async with`: `asynccontextmanager` or it says so."""
    made_from = inspect.unwrap(function)
    if made_from is not function and inspect.isasyncgenfunction(made_from):
        return True
    return str(returns(function)).startswith("AbstractAsyncContextManager[")


def callbacks(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters that take a function of the caller's, whose result is awaited."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if _is_awaited_function(p.annotation))


def _is_awaited_function(annotation: Any) -> bool:
    return isinstance(annotation, str) and "Callable[" in annotation and "Awaitable[" in annotation


def returns(function: Callable[..., Any]) -> Any:
    """Return the annotation of a function's result."""
    return inspect.signature(function).return_annotation


def plain(annotation: str) -> str:
    """Return an annotation without a trace of the event loop."""
    if not any(name in annotation for name in _LOOP_TYPES):
        return annotation
    return ast.unparse(_Plain().visit(ast.parse(annotation, mode="eval")))


class _Plain(ast.NodeTransformer):
    """`Awaitable[X]` becomes `X`, an iterator of the loop `Stream[X]`, and `X | X` just `X`."""

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name):
            if node.value.id == "Awaitable":
                return node.slice
            if node.value.id in ("AsyncIterator", "AsyncGenerator"):
                node.value.id = "Stream"
            if node.value.id == "AbstractAsyncContextManager":
                node.value.id = "AbstractContextManager"
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return node.left if ast.unparse(node.left) == ast.unparse(node.right) else node
