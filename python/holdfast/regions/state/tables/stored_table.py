"""Tables as checkpoints have them: their columns, their commit, and the segments of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from holdfast._core import RegionEntry, SegmentRef
from holdfast.regions.base.saved import StateError

#: Version of the encodings of rows, and of the text that a checkpoint has of a table.
VERSION: Final = 1

#: Parts of the text that say how a table was declared.
_DECLARED: Final = ("key", "value", "ttl", "time", "of")

Of: TypeAlias = Literal["table", "map", "list"]

#: A text has this if it says when a timer is due.
_DUE: Final = b'"due":'


@dataclass(frozen=True)
class FrozenTable:
    """A table that was committed for a checkpoint.

    `columns` are as in `description`. `segments` are all segments of the table, oldest first.
    `keys` is the number of its keys. The first processing-time timer is due at `due_us`, in
    microseconds since 1970.
    """

    name: str
    columns: str
    commit: str
    segments: tuple[SegmentRef, ...]
    keys: int
    due_us: int | None = None

    @property
    def text(self) -> bytes:
        """The description of the table in a checkpoint, without its segments."""
        columns = json.loads(self.columns)
        content = {"version": VERSION, "commit": self.commit, "keys": self.keys, **columns}
        if self.due_us is not None:
            content["due"] = self.due_us
        return json.dumps(content, separators=(",", ":")).encode()


def saved_commit(data: memoryview) -> str:
    """Return the id of the commit in the text of a checkpoint."""
    return str(_saved(data)["commit"])


def saved_columns(data: memoryview) -> str:
    """Return the columns in the text of a checkpoint, see `description`."""
    saved = _saved(data)
    columns = {name: saved[name] for name in _DECLARED if name in saved}
    return json.dumps(columns, separators=(",", ":"))


def saved_due(data: memoryview) -> int | None:
    """Return when the first timer is due, in microseconds since 1970; None if none will be."""
    due = _saved(data).get("due")
    return None if due is None else int(due)


def first_due(entry: RegionEntry) -> int | None:
    """Return `saved_due` for all timers in processing time of a region."""
    # Every region that answers is looked at, and few have these timers.
    texts = [
        memoryview(text)
        for operator in entry.operators
        for state in operator.states
        if state.kind == "table" and _DUE in (text := state.inline or b"")
    ]
    return min((due for text in texts if (due := saved_due(text)) is not None), default=None)


def saved_of(data: memoryview) -> Of:
    """Return the state that the operator has, from the text of a checkpoint."""
    of: Of = _saved(data).get("of", "table")
    return of


def saved_key(data: memoryview) -> list[list[str]]:
    """Return names and types of the columns of the key."""
    key: list[list[str]] = _saved(data)["key"]
    return key


def _saved(data: memoryview) -> Any:
    saved = json.loads(bytes(data))
    if saved["version"] > VERSION:
        raise StateError(
            f"a table of version {saved['version']} was written by a newer Holdfast, this one "
            f"reads versions up to {VERSION}: upgrade Holdfast to read it"
        )
    return saved
