"""Tables as checkpoints have them: their columns, their commit, and the segments of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast._core import SegmentRef
from holdfast.regions.state.saved import StateError

#: Newest version of the encodings of rows, and of the text that a checkpoint has of a table.
VERSION: Final = 2

#: Version of a table whose rows do not expire.
FIRST_VERSION: Final = 1


@dataclass(frozen=True)
class FrozenTable:
    """A table that was committed for a checkpoint.

    Attributes
    ----------
    columns : str
        Its columns, see `description`.
    commit : str
        Id of the commit.
    segments : tuple of SegmentRef
        All segments that it is made of, oldest first.
    keys : int
        Number of its keys.
    """

    name: str
    columns: str
    commit: str
    segments: tuple[SegmentRef, ...]
    keys: int

    @property
    def text(self) -> bytes:
        """The description of the table in a checkpoint, beside its segments."""
        columns = json.loads(self.columns)
        version = VERSION if "ttl" in columns else FIRST_VERSION
        content = {"version": version, "commit": self.commit, "keys": self.keys}
        return json.dumps({**content, **columns}, separators=(",", ":")).encode()


def saved_commit(data: memoryview) -> str:
    """Return the id of the commit in the text of a checkpoint."""
    return str(_saved(data)["commit"])


def saved_columns(data: memoryview) -> str:
    """Return the columns in the text of a checkpoint, see `description`."""
    saved = _saved(data)
    columns = {name: saved[name] for name in ("key", "value", "ttl") if name in saved}
    return json.dumps(columns, separators=(",", ":"))


def _saved(data: memoryview) -> Any:
    saved = json.loads(bytes(data))
    if saved["version"] not in (FIRST_VERSION, VERSION):
        raise StateError(
            f"a table of version {saved['version']} was written by a newer Holdfast, this one "
            f"reads versions up to {VERSION}: upgrade Holdfast to read it"
        )
    return saved
