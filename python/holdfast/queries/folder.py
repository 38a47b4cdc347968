"""Facts in the checkpoint of an ordinary streaming query, read from Spark's logs and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from holdfast.files.arrow_paths import ReadPath
from holdfast.files.paths import AnyPath
from holdfast.files.physical_files import file_sizes
from holdfast.queries.logs import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    PARTITIONS_KEY,
    PROVIDER_KEY,
    logged_batches,
    read_plan,
)

PROVIDER: str = "io.holdfast.spark.HoldfastStateStoreProvider"

#: Physical files of the state.
STATE_FILES_FOLDER: str = "state/holdfast"

_METADATA = "metadata"


@dataclass(frozen=True)
class QueryCheckpoint:
    """The checkpoint of a streaming query that is no regional pipeline.

    Attributes
    ----------
    query : str or None
        Id of the query; None if Spark's file does not say.
    planned, committed : int or None
        Newest batch in Spark's offset log, and in its commit log; None without any.
    provider : str or None
        Class of the state store provider; None if no batch was planned, or a very old Spark did
        not write it. The number of `partitions` is known if the provider is.
    files, file_bytes : int
        Number of Holdfast's files with state, and their size in bytes.
    """

    folder: AnyPath
    query: str | None
    planned: int | None
    committed: int | None
    provider: str | None
    partitions: int | None
    has_state: bool
    files: int
    file_bytes: int

    def describe(self) -> str:
        """Return the kind of the folder in one sentence."""
        if not self.has_state:
            state = "which keeps no state"
        elif self.provider is None:
            state = "whose log names no state store provider"
        elif self.provider == PROVIDER:
            state = "whose state is in Holdfast's state store"
        else:
            state = f"whose state is in {self.provider}, not in Holdfast"
        named = "" if self.query is None else f" {self.query}"
        return f"{self.folder} is the checkpoint of the streaming query{named}, {state}"


def is_query_checkpoint(folder: ReadPath) -> bool:
    """Return whether a folder has the layout of the checkpoint of a query of Spark."""
    # A new query has nothing but its metadata file.
    return (folder / _METADATA).is_file() or (folder / OFFSETS_FOLDER).is_dir()


def read_query_checkpoint(folder: AnyPath) -> QueryCheckpoint:
    """Read Spark's logs if `is_query_checkpoint` holds; OSError if a file cannot be read."""
    planned = max(logged_batches(folder / OFFSETS_FOLDER), default=None)
    conf: Mapping[str, str] = {}
    if planned is not None:
        conf = read_plan(folder, planned).conf
    files = file_sizes(folder / STATE_FILES_FOLDER).values()
    partitions = conf.get(PARTITIONS_KEY)
    return QueryCheckpoint(
        folder=folder,
        query=_id(folder / _METADATA),
        planned=planned,
        committed=max(logged_batches(folder / COMMITS_FOLDER), default=None),
        provider=conf.get(PROVIDER_KEY),
        partitions=None if partitions is None else int(partitions),
        has_state=(folder / "state").is_dir(),
        files=len(files),
        file_bytes=sum(files),
    )


def _id(file: AnyPath) -> str | None:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found.get("id")
    return None
