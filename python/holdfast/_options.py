"""Options of state stores, declared in ``settings.json`` for Python and for the plugin."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, get_type_hints

from holdfast._checks import (
    not_allowed,
    require_bool,
    require_int,
    require_share,
    whole_number,
)

F = TypeVar("F", bound=Callable[..., Any])

#: Spark ships settings with this prefix to executors.
STORE: Final = "spark.sql.streaming.stateStore"

# Spark's notation of sizes: 64m and 64mb are 64 MiB.
_SIZE: Final = re.compile(r"(?P<number>[0-9]+)(?:(?P<unit>[kmgtp])b?|b)?")
_SHIFTS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of state stores.

    - `key`: Spark's key.
    - `type`: a number, True or False, one of `names`, a path, a number above 0 and at most 1, or a
      number of bytes.
    - `default`: its value if the caller gives none.
    - `expected`: the allowed values, in words.
    - `meaning`: its effect. The first sentence is the help of the command line.
    - `names`: the names that it may be, and sizes outside of the bounds.
    - `least`, `most`: bounds of a number.
    """

    key: str
    type: Literal["count", "flag", "name", "path", "share", "size"]
    default: bool | float | str
    expected: str
    meaning: str
    names: Sequence[str] = ()
    least: int = 0
    most: int = (1 << 63) - 1

    def written(self, name: str, value: object) -> str:
        """Return the key's value for an option's value, or raise ValueError."""
        if self.type == "flag":
            return str(require_bool(name, value)).lower()
        if self.type == "share":
            return str(require_share(name, value))
        if self.type == "count":
            return str(require_int(name, value, at_least=self.least))
        if self.type == "path" and isinstance(value, str | Path) and str(value).strip():
            return str(value)
        size = _bytes(value) if self.type == "size" else None
        text = str(value if size is None else size)
        if text in self.names or (size is not None and self.least <= size <= self.most):
            return text
        raise not_allowed(name, value, self.expected)


class StoreOptions(TypedDict, total=False):
    """Options of state stores, for `spark_conf` and `configure`. None is an option not given."""

    max_file_bytes: int | str | None
    compression: Literal["lz4", "none"] | None
    max_memory_bytes: int | str | None
    target_memory_bytes: int | str | None
    local_cache_bytes: int | str | None
    commit_copies: Literal[0, 1] | None
    change_journal: bool | None
    spark_files: bool | None
    rebalance: Literal["auto", "off"] | None
    adopt: bool | None
    isolate_failures: bool | None
    isolation_max_ratio: float | None
    isolation_max_bytes: int | str | None
    isolation_rerun: Literal["fail", "at-least-once"] | None
    bad_rows: Literal["fail", "dead-letter"] | None
    bad_rows_max: int | None
    bad_rows_max_ratio: float | None
    dead_letters: str | Path | None


#: The options by name.
OPTIONS: Final[Mapping[str, Option]] = {
    name: Option(**declared)
    for name, declared in json.loads(Path(__file__).with_name("settings.json").read_text()).items()
}


def written(given: Mapping[str, object]) -> dict[str, str]:
    """Return Spark's settings with defaults; TypeError or ValueError for a wrong name or value."""
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name!r}: expected {', '.join(OPTIONS)}")
    if given.get("bad_rows") == "dead-letter" and given.get("dead_letters") is None:
        raise ValueError("bad_rows='dead-letter' needs dead_letters, a folder for the rows")
    return {
        option.key: option.written(
            name, option.default if (value := given.get(name)) is None else value
        )
        for name, option in OPTIONS.items()
    }


def takes_options(function: F) -> F:
    """Show the options in signature and docstring of a function that takes them by name."""
    types = get_type_hints(StoreOptions)
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name]
        )
        for name in OPTIONS
    ]
    ordered = sorted([*options, *own], key=lambda one: one.kind)
    function.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    if function.__doc__ is not None:  # Python drops docstrings with -OO
        entries = "".join(map(_entry, OPTIONS, OPTIONS.values()))
        function.__doc__ = function.__doc__.replace("    options\n", entries)
    return function


def _entry(name: str, option: Option) -> str:
    """Return the lines of an option in a docstring."""
    indent = " " * 8
    meaning = textwrap.fill(option.meaning, 100, initial_indent=indent, subsequent_indent=indent)
    return f"    {name} : {option.expected}, default {option.default}\n{meaning}\n"


def _bytes(size: object) -> int | None:
    """Return the bytes of a number or a text in Spark's notation; None for anything else."""
    if (number := whole_number(size)) is not None:
        return number
    found = _SIZE.fullmatch(size.strip().lower()) if isinstance(size, str) else None
    if found is None:
        return None
    return int(found["number"]) << _SHIFTS[found["unit"] or "b"]
