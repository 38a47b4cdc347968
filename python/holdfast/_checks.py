"""Checks of option values: the message names the option, its value and what is allowed."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from typing import Any, Final, Literal

_PART: Final = re.compile(
    r"(\d+)\s*(week|day|hour|minute|second|millisecond|microsecond)s?\s*", re.IGNORECASE
)

#: The longest time of an option: waits of Python and of the JVM take it.
LONGEST: Final = timedelta(days=36_500)


@dataclass(frozen=True)
class Allowed:
    """The allowed values of an option.

    - `kind`: True or False, a whole number, a timedelta, or a value that other code checks.
    - `unit`: unit of a number, or of the length of a text.
    - `least`, `most`: bounds; in seconds for a time. `above`: True if `least` is not allowed.
    - `optional`: True if None is allowed.
    - `note`: further allowed values, in words.
    """

    kind: Literal["flag", "integer", "time", "other"]
    unit: str = ""
    least: int = 0
    most: int | None = None
    above: bool = False
    optional: bool = False
    note: str = ""


def require_allowed(option: str, value: Any, allowed: Allowed) -> Any:
    """Return an allowed value as Python's own type, or raise ValueError."""
    if allowed.optional and value is None:
        return None
    if allowed.kind == "flag":
        return require_bool(option, value)
    if allowed.kind == "integer":
        return require_int(option, value, at_least=allowed.least, at_most=allowed.most)
    if allowed.kind == "time":
        require_duration(option, value, zero=not allowed.above)
    return value


def whole_number(value: object) -> int | None:
    """Return an integer of any type, such as NumPy's, as Python's; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def require_int(option: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """Return an integer of any type in these bounds as Python's, or raise ValueError."""
    number = whole_number(value)
    if number is None or number < at_least:
        raise not_allowed(option, value, f"an integer of at least {at_least}")
    if at_most is not None and number > at_most:
        raise not_allowed(option, value, f"an integer of at most {at_most}")
    return number


def optional_int(option: str, value: object, *, at_least: int) -> int | None:
    """Return None for None, else the result of `require_int`."""
    return None if value is None else require_int(option, value, at_least=at_least)


def require_bool(option: str, value: object) -> bool:
    """Return True or False, also for NumPy's booleans, or raise ValueError."""
    kind = type(value)
    if kind is not bool and (kind.__module__, kind.__name__.rstrip("_")) != ("numpy", "bool"):
        raise not_allowed(option, value, "True or False")
    return bool(value)


def require_share(option: str, value: object) -> float:
    """Return a number above 0 and at most 1, or raise ValueError."""
    share = float(value) if isinstance(value, Real) and not isinstance(value, bool) else 0
    # NaN compares with nothing, so it is refused.
    if not 0 < share <= 1:
        raise not_allowed(option, value, "a number above 0 and at most 1")
    return share


def duration(option: str, value: object) -> timedelta:
    """Return a timedelta of at least 0, also of Spark's text ``"1 hour"``, or raise ValueError."""
    if isinstance(value, str) and value.strip() and not _PART.sub("", value).strip():
        parts = [(f"{unit.lower()}s", int(number)) for number, unit in _PART.findall(value)]
        with suppress(OverflowError):
            return sum((timedelta(**{unit: number}) for unit, number in parts), timedelta())
    elif isinstance(value, timedelta) and value >= timedelta():
        return value
    raise not_allowed(option, value, 'a timedelta of at least 0, or a text such as "10 minutes"')


def require_duration(option: str, value: object, *, zero: bool) -> None:
    """Raise ValueError unless `value` is a timedelta above 0 (or ``zero``), and not too long."""
    allowed = isinstance(value, timedelta) and (
        value >= timedelta() if zero else value > timedelta()
    )
    if not allowed:
        raise not_allowed(option, value, f"a timedelta {'of at least' if zero else 'above'} 0")
    if isinstance(value, timedelta) and value > LONGEST:
        raise not_allowed(option, value, f"a timedelta of at most {LONGEST.days:,} days")


def require_one_of(option: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of these."""
    if value not in (names := tuple(allowed)):
        raise not_allowed(option, value, f"one of {', '.join(names)}")


def not_allowed(option: str, value: object, expected: str) -> ValueError:
    """Return the error for an option."""
    return ValueError(f"{option}={value!r} is not allowed: expected {expected}")
