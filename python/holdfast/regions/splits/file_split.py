"""One split: the part of a file that a region reads as a whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

#: Names that begin with these are not listed, as in Spark.
HIDDEN: Final = (".", "_")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSplit:
    """Part of a file.

    Parameters
    ----------
    path : str
        Path of the file, relative to the folder of the source.
    file_bytes : int
        Size of the whole file when it was found.
    modified_ns : int
        Time of modification of the file, nanoseconds since the epoch.
    groups : tuple of (int, int), optional
        First row group of a Parquet file, and the one after the last. None: the whole file.
    size : int
        Bytes to read, roughly.
    parts : int, optional
        Number of splits of the file; None: it was not divided.
    footer : str, default ""
        Digest of the footer of a divided file: equal digests mean equal content.

    Raises a ValueError for a path that the source cannot list: checkpoints may have any origin.
    """

    path: str
    file_bytes: int
    modified_ns: int
    groups: tuple[int, int] | None = None
    size: int
    parts: int | None = None
    footer: str = ""

    def __post_init__(self) -> None:
        if not all(part and not part.startswith(HIDDEN) for part in self.path.split("/")):
            raise ValueError(
                f"expected a path below the folder of the source without hidden names, found "
                f"{self.path!r}"
            )

    def __str__(self) -> str:
        return f"{self._groups} of {self.path!r}" if self._groups else repr(self.path)

    @property
    def _groups(self) -> str:
        return "" if self.groups is None else f"row groups {self.groups[0]} to {self.groups[1] - 1}"

    def rows(self, first: int, count: int) -> str:
        """Name rows of the split; they are numbered in the file, from 0."""
        groups = f", {self._groups}" if self._groups else ""
        return f"rows {first} to {first + count - 1} of {self.path!r}{groups}"

    def to_json(self) -> dict[str, Any]:
        """Return its fields in JSON's types, without those that only a divided file has."""
        fields = asdict(self)
        if not self.footer:
            del fields["parts"], fields["footer"]
        return fields

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> Self:
        """Make a split from the fields of `to_json`."""
        groups = fields["groups"]
        return cls(**{**fields, "groups": None if groups is None else tuple(groups)})

    def encode(self) -> bytes:
        """Return the event that hands the split to a region."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, event: bytes) -> Self:
        """Make a split from an event of `encode`."""
        return cls.of_json(json.loads(event))


@dataclass(frozen=True, slots=True)
class BadSplit:
    """The event with the reason why a region left out a split that it cannot read."""

    split: FileSplit
    reason: str

    def encode(self) -> bytes:
        """Return the event."""
        return json.dumps({"split": self.split.to_json(), "reason": self.reason}).encode()

    @classmethod
    def decode(cls, event: bytes) -> Self:
        """Return the content of an event of `encode`."""
        fields = json.loads(event)
        return cls(FileSplit.of_json(fields["split"]), fields["reason"])
