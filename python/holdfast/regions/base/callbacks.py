"""Methods and functions of users: checks of them and of their results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any


def methods_of(kind: type) -> list[str]:
    """Return the names of the methods of a class that users derive from."""
    return [name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name))]


def require_methods(given: object, kind: type, *, yields: Collection[str] = ()) -> None:
    """Raise TypeError if a method makes a coroutine or, if not in `yields`, a generator."""
    for name in methods_of(kind):
        require_function(
            getattr(given, name), f"{type(given).__name__}.{name}", may_yield=name in yields
        )


def require_function(function: Any, name: str, *, may_yield: bool = False) -> None:
    """Raise TypeError if a call of `function` would only make a generator or a coroutine."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name}() is async, and nothing awaits it: define it with 'def' alone")
    if inspect.isgeneratorfunction(function) and not may_yield:
        raise TypeError(
            f"{name}() has a 'yield', so a call of it would do nothing: write it without 'yield'"
        )


def called(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function; TypeError if it returns a value, because that would be lost."""
    if (found := function(*arguments)) is not None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise TypeError(
            f"{name}() returned {type(found).__name__}, which nothing takes: let it return None"
        )
