"""Checks of option values: the message names the option, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True)
class Allowed:
    """What an option may be.

    Attributes
    ----------
    kind : {"flag", "integer", "time", "other"}
        True or False, a whole number, a timedelta; another is checked in words.
    unit : str
        What a number counts, and of a text its length.
    least, most : int or None
        Bounds, of a time in seconds.
    above : bool
        Whether `least` itself is not allowed.
    optional : bool
        Whether None is allowed.
    note : str
        What is allowed beside that.
    """

    kind: Literal["flag", "integer", "time", "other"]
    unit: str = ""
    least: int = 0
    most: int | None = None
    above: bool = False
    optional: bool = False
    note: str = ""


def require_allowed(option: str, value: object, allowed: Allowed) -> None:
    """Raise ValueError unless a value is what `allowed` says."""
    if allowed.optional and value is None:
        return
    match allowed.kind:
        case "flag":
            require_bool(option, value)
        case "time":
            require_duration(option, value, zero=not allowed.above)
        case "integer":
            require_int(option, value, at_least=allowed.least, at_most=allowed.most)
        case "other":
            pass


def require_int(option: str, value: object, *, at_least: int, at_most: int | None = None) -> None:
    """Raise ValueError unless `value` is an integer in these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise not_allowed(option, value, f"an integer of at least {at_least}")
    if at_most is not None and value > at_most:
        raise not_allowed(option, value, f"an integer of at most {at_most}")


def require_bool(option: str, value: object) -> None:
    """Raise ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise not_allowed(option, value, "True or False")


def require_duration(option: str, value: object, *, zero: bool) -> None:
    """Raise ValueError unless `value` is a positive timedelta; ``zero`` allows one of 0, too."""
    allowed = isinstance(value, timedelta) and (
        value >= timedelta() if zero else value > timedelta()
    )
    if not allowed:
        raise not_allowed(option, value, f"a timedelta {'of at least' if zero else 'above'} 0")


def require_one_of(option: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of these."""
    if value not in (names := tuple(allowed)):
        raise not_allowed(option, value, f"one of {', '.join(names)}")


def not_allowed(option: str, value: object, expected: str) -> ValueError:
    """Return the error for an option."""
    return ValueError(f"{option}={value!r} is not allowed: expected {expected}")
