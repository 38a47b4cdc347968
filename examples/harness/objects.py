"""The content of a checkpoint: the objects of a state store, the newest batch in Spark's logs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Folders and files at the top of a checkpoint that Spark writes for every query, with any provider
#: and without state. Everything else belongs to the state.
SPARK_LOGS = frozenset({"offsets", "commits", "sources"})
SPARK_FILES = frozenset({"metadata", ".metadata.crc"})

#: Spark's own description of the stateful operators; the driver writes it, not the provider.
OPERATOR_METADATA = "_metadata"

HOW_COUNTED = (
    "objects: files under state/ at the end of the run, without _metadata (Spark's description of "
    "the operators)\nand without the .crc twins that Hadoop's local file system adds, which are "
    "counted apart. A provider's files beside\nstate/ would count too"
)


@dataclass(frozen=True, kw_only=True)
class StateObjects:
    """Objects of a state store in one checkpoint.

    Attributes
    ----------
    files, files_bytes
        Objects of the state store and their summed size in bytes, without Hadoop's twins.
    crc_files, crc_bytes
        The ``.NAME.crc`` twins that Hadoop's checksummed local file system adds. HDFS and
        object stores have none.
    """

    files: int
    files_bytes: int
    crc_files: int
    crc_bytes: int


def is_hadoop_crc(name: str) -> bool:
    """Tell Hadoop's hidden twin ``.NAME.crc`` from Spark's own checksum object ``NAME.crc``."""
    return name.startswith(".") and name.endswith(".crc")


def count_state_objects(checkpoint: Path) -> StateObjects:
    """Count the files of the state store under a checkpoint root in a local folder.

    Parameters
    ----------
    checkpoint
        Checkpoint root of one query. A root that does not exist counts as empty.
    """
    sizes = {}
    for folder, _, names in os.walk(checkpoint):
        for name in names:
            size = _size_or_none(Path(folder, name))
            if size is not None:
                sizes[Path(folder, name).relative_to(checkpoint).as_posix()] = size
    return count_objects(sizes)


def count_objects(sizes: Mapping[str, int]) -> StateObjects:
    """Count the files of the state store among the files under a checkpoint root.

    Every file outside Spark's own logs counts, so that files outside ``state/`` count as well.
    `sizes` has the size in bytes of every file by its path relative to the root.
    """
    files = files_bytes = crc_files = crc_bytes = 0
    for path, size in sizes.items():
        *folders, name = path.split("/")
        if OPERATOR_METADATA in folders or not SPARK_LOGS.isdisjoint(folders[:1]):
            continue
        if not folders and name in SPARK_FILES:
            continue
        if is_hadoop_crc(name):
            crc_files += 1
            crc_bytes += size
        else:
            files += 1
            files_bytes += size
    return StateObjects(
        files=files, files_bytes=files_bytes, crc_files=crc_files, crc_bytes=crc_bytes
    )


def last_logged(log: Path) -> int:
    """Return the newest batch id in an offset or commit log, -1 if it has none."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


def _size_or_none(path: Path) -> int | None:
    # Background cleanup may delete a file between the listing and this call.
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
