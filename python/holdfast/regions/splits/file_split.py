"""One split: the part of a file that a region reads at once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

#: Names that begin so are not listed, as everywhere in Spark.
HIDDEN: Final = (".", "_")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSplit:
    """Part of a file.

    Parameters
    ----------
    path : str
        Of the file, relative to the folder of the source.
    file_bytes : int
        Size of the whole file when it was found.
    modified_ns : int
        When the file was modified, nanoseconds since the epoch.
    groups : tuple of (int, int), optional
        First row group of a Parquet file, and the one after the last. None: the whole file.
    size : int
        Bytes to read, roughly.

    Raises
    ------
    ValueError
        If the path is none that the source lists: checkpoints hold splits, and may come from
        anywhere.
    """

    path: str
    file_bytes: int
    modified_ns: int
    groups: tuple[int, int] | None = None
    size: int

    def __post_init__(self) -> None:
        if not all(part and not part.startswith(HIDDEN) for part in self.path.split("/")):
            raise ValueError(
                f"expected a path below the folder of the source without hidden names, found "
                f"{self.path!r}"
            )

    def __str__(self) -> str:
        if self.groups is None:
            return repr(self.path)
        return f"row groups {self.groups[0]} to {self.groups[1] - 1} of {self.path!r}"

    def to_json(self) -> dict[str, Any]:
        """Return its fields, in types that JSON has."""
        return asdict(self)

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> Self:
        """Make a split from what `to_json` returned."""
        groups = fields["groups"]
        return cls(**{**fields, "groups": None if groups is None else tuple(groups)})

    def encode(self) -> bytes:
        """Return the event that hands the split to a region."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, event: bytes) -> Self:
        """Make a split from what `encode` returned."""
        return cls.of_json(json.loads(event))
