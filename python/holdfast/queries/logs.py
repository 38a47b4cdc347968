"""Spark's logs of a streaming query: ``offsets/N`` plans batch N, and ``commits/N`` ends it.

Spark's classes are ``OffsetSeqLog`` and ``CommitLog``. Java reads the logs in
``io.holdfast.spark.sparklog``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from holdfast._core import CorruptSegmentError
from holdfast._options import STORE
from holdfast.files.arrow_paths import ReadPath

OFFSETS_FOLDER: Final = "offsets"
COMMITS_FOLDER: Final = "commits"

PROVIDER_KEY: Final = f"{STORE}.providerClass"
PARTITIONS_KEY: Final = "spark.sql.shuffle.partitions"

T = TypeVar("T")
P = TypeVar("P", bound=ReadPath)


@dataclass(frozen=True)
class Plan:
    """An entry of the offset log; `text` is the whole entry.

    Attributes
    ----------
    conf : Mapping of str to str
        Settings of the batch; empty if a very old Spark wrote none.
    planned_ms : int or None
        When the batch was planned, in milliseconds since 1970; None if the entry does not say.
    sources : Mapping of str to str
        The end of the batch in each source, by the name of the source's folder.
    """

    conf: Mapping[str, str]
    planned_ms: int | None
    sources: Mapping[str, str]

    @property
    def provider(self) -> str | None:
        """Class of the state's provider; None if a very old Spark wrote none."""
        return self.conf.get(PROVIDER_KEY)


def logged_batches(log: ReadPath) -> list[int]:
    """Return the batches of a log of Spark, ascending."""
    try:
        # Other names are files under way.
        return sorted(int(file.name) for file in log.iterdir() if file.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []


def committed_batches(folder: ReadPath) -> list[int]:
    """Return the batches in the commit log of a query, ascending."""
    return logged_batches(folder / COMMITS_FOLDER)


def is_committed(folder: ReadPath, batch: int) -> bool:
    """Return whether a batch is committed; FileNotFoundError if the query cleaned it up."""
    logged = committed_batches(folder)
    if logged and logged[-1] < batch:
        return False
    # Entries that appear during a listing may be missing in it, and later ones not.
    if batch not in logged and batch not in (logged := committed_batches(folder)):
        first = next((one for one in logged if one > batch), None)
        raise FileNotFoundError(
            f"{folder}: the query cleaned up batches {batch} to "
            f"{'the newest' if first is None else first - 1} before they were read: open a newer "
            "one, or let the query retain more (spark.sql.streaming.minBatchesToRetain)"
        )
    return True


def entry_of(folder: P, batch: int) -> P:
    """Return the entry of a batch in the commit log of a query."""
    return cast("P", folder / COMMITS_FOLDER / str(batch))


def read_plan(folder: ReadPath, batch: int) -> Plan:
    """Read the plan of a batch.

    Raises a FileNotFoundError if there is none, and a CorruptSegmentError if it is damaged: a
    machine that crashed may have left it empty.
    """
    return _read(folder / OFFSETS_FOLDER / str(batch), _plan)


def read_commit(folder: ReadPath, batch: int) -> list[tuple[int, int, str]]:
    """Return operator, partition and id (none in format 1) of stores; errors as in `read_plan`."""
    return _read(entry_of(folder, batch), _commit)


def _read(file: ReadPath, parse: Callable[[str], T]) -> T:
    text = file.read_text(errors="replace")
    try:
        return parse(text)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise CorruptSegmentError(f"{file} is damaged: put it back from a copy") from None


def _plan(text: str) -> Plan:
    # The lines are a version, facts about the whole batch, then one for each source.
    version, facts, *lines = text.splitlines()
    found: dict[str, Any] = json.loads(facts or "{}")
    if version == "v1":
        sources = {str(source): offset for source, offset in enumerate(lines)}
    elif version == "v2":
        named = (line.partition(":") for line in lines)
        sources = {source: offset for source, _, offset in named}
    else:
        raise ValueError(version)
    conf = found.get("conf") or {}
    return Plan(dict(conf), found.get("batchTimestampMs") or None, sources)


def _commit(text: str) -> list[tuple[int, int, str]]:
    operators = json.loads(text.partition("\n")[2] or "{}").get("stateUniqueIds") or {}
    ids = [
        (int(operator), partition, id)
        for operator, partitions in operators.items()
        for partition, stores in enumerate(partitions)
        for id in stores
    ]
    if not all(isinstance(id, str) for _, _, id in ids):
        raise TypeError("an id of a store is no text")
    return ids
