"""Objects and bytes that the batches of a query write, from its checkpoint or its progress."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from holdfast.files.paths import AnyPath, listed, listed_with_status
from holdfast.queries.folder import PROVIDER, read_query_checkpoint
from holdfast.queries.logs import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    committed_batches,
    logged_batches,
    read_plan,
)
from holdfast.queries.state import StateOfQuery

#: Kinds of objects: an entry of Spark's logs; files of a state store, by their suffix, with the
#: checksum of a file; a file that versions of RocksDB share; and a merged file of Holdfast.
LOG: Final = "log entry"
DELTA, SNAPSHOT, ZIP, CHANGELOG, CRC = FILES = ("delta", "snapshot", "zip", "changelog", "crc")
SST: Final = "sst"
MERGED: Final = "merged file"

#: Bound on the newest batches that are read.
BATCHES_MAX: Final = 20

_VERSIONED: Final = re.compile(r"(\d+)(?:_[\w-]+)?\.(delta|snapshot|zip|changelog)(\.crc)?")
_EVENT_FILE: Final = re.compile(r"events_\d+_.*")


@dataclass(frozen=True)
class Batches:
    """Objects and bytes that batches of a query wrote, on average; None is unknown.

    Attributes
    ----------
    interval_s : float or None
        Seconds from one batch to the next.
    objects : mapping
        Objects of a batch, by kind.
    bytes : float or None
        Bytes of state that a batch wrote.
    commit_ms : float or None
        Time that the stores of a batch take to commit, summed over tasks.
    """

    query: str | None
    provider: str
    batches: int
    interval_s: float | None
    objects: Mapping[str, float]
    bytes: float | None = None
    commit_ms: float | None = None
    executors: int | None = None

    @property
    def is_holdfast(self) -> bool:
        """True if Holdfast keeps the state."""
        return MERGED in self.objects

    @property
    def has_state(self) -> bool:
        """True if the query keeps state."""
        return len(self.objects) > 1


def of_checkpoint(folder: AnyPath) -> Batches:
    """Return the newest batches' writes; OSError without a committed batch or for a bad file."""
    committed = committed_batches(folder)[-BATCHES_MAX:]
    if not committed:
        raise FileNotFoundError(
            f"{folder}: expected committed batches, found none. Let the query run, or give the "
            "checkpoint folder of a query that ran"
        )
    query = read_query_checkpoint(folder)
    count = len(committed)
    logs = [folder / OFFSETS_FOLDER, folder / COMMITS_FOLDER, *listed(folder / "sources")]
    entries = sum(len({*committed}.intersection(_numbers(log))) for log in logs)
    if query.provider == PROVIDER:
        objects, size = _merged(folder, committed)
    else:
        objects, size = _files(folder, {batch + 1 for batch in committed})
    return Batches(
        query=query.query,
        provider=(query.provider or "none").rpartition(".")[2],
        batches=count,
        interval_s=_interval_s(folder, committed),
        objects={LOG: entries / count} | objects,
        bytes=size,
    )


def _interval_s(folder: AnyPath, committed: list[int]) -> float | None:
    first, last = (read_plan(folder, at).planned_ms for at in (committed[0], committed[-1]))
    if first is None or last is None or len(committed) == 1:
        return None
    return (last - first) / 1000 / (committed[-1] - committed[0])


def _numbers(log: AnyPath) -> Iterator[int]:
    """Yield the batches of a log; a source's log merges every tenth entry with older ones."""
    yield from logged_batches(log)
    for entry in listed(log):
        if entry.name.endswith(".compact"):
            yield int(entry.name.removesuffix(".compact"))


def _files(folder: AnyPath, versions: set[int]) -> tuple[dict[str, float], float]:
    """Return the files and bytes of a version, of providers that name files by it."""
    counts: Counter[str] = Counter()
    size, ssts, sst_bytes = 0, 0, 0
    images: set[int] = set()
    for name, file_bytes in _walk(folder / "state"):
        if (found := _VERSIONED.fullmatch(name)) is not None:
            if found[2] == ZIP:
                images.add(int(found[1]))
            if int(found[1]) in versions:
                counts[CRC if found[3] else found[2]] += 1
                size += file_bytes
        elif name.endswith(f".{SST}"):
            ssts += 1
            sst_bytes += file_bytes
    objects = {kind: count / len(versions) for kind, count in counts.items()}
    # Images share them, and their names have no version.
    share = len(images & versions) / len(versions) / max(1, len(images))
    if ssts:
        objects[SST] = ssts * share
    return objects, size / len(versions) + sst_bytes * share


def _walk(folder: AnyPath) -> Iterator[tuple[str, int]]:
    for path, status in listed_with_status(folder):
        if status.is_folder and not path.name.startswith("_"):
            yield from _walk(path)
        elif status.is_file:
            yield path.name, status.st_size


def _merged(folder: AnyPath, committed: list[int]) -> tuple[dict[str, float], float | None]:
    """Return the merged files to which a batch writes, and the bytes of its segments."""
    state = StateOfQuery(folder)
    refs = [{id.ref for _, _, id in state.ids(batch) if id.ref} for batch in committed]
    new = [after - before for before, after in pairwise(refs)]
    if not new:
        return {MERGED: float(len({ref.file for ref in refs[0]}))}, None
    files = sum(len({ref.file for ref in found}) for found in new)
    return {MERGED: files / len(new)}, sum(ref.length for found in new for ref in found) / len(new)


def of_progress(path: Path) -> list[Batches]:
    """Return what the batches of each query wrote, by events of its progress.

    The path is a file with lines of JSON, or the folder of a rolling event log. Raises an
    OSError if it cannot be read, or has no batch of a query with state.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _EVENT_FILE.fullmatch(file.name))
    events: dict[str, deque[Mapping[str, Any]]] = {}
    executors = set()
    for event in _events(files):
        if event.get("Event") == "SparkListenerExecutorAdded":
            executors.add(event.get("Executor ID"))
        progress = event.get("progress", event)
        # Progress without a batch lacks this time.
        if "addBatch" in progress.get("durationMs", {}) and progress.get("stateOperators"):
            newest = events.setdefault(progress["id"], deque(maxlen=BATCHES_MAX))
            newest.append(progress)
    if not events:
        raise OSError(
            f"{path}: expected the checkpoint folder of a query, its progress events (one JSON "
            "object a line) or Spark's event log, found no batch of a query with state. To make "
            "such a file, write the json of the events of query.recentProgress into it"
        )
    return [_of_events(list(found), len(executors)) for found in events.values()]


def _events(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        try:
            with file.open() as lines:
                # An event log has many other events, which are large.
                for line in lines:
                    if '"durationMs"' in line or "ExecutorAdded" in line:
                        event = json.loads(line)
                        if not isinstance(event, dict):
                            raise ValueError(f"found a {type(event).__name__}")
                        yield event
        except ValueError as error:
            raise OSError(
                f"{file}: expected one JSON object a line ({error}). If it is compressed, expand "
                "it, or set spark.eventLog.compress=false"
            ) from None


def _of_events(events: list[Mapping[str, Any]], executors: int) -> Batches:
    count = len(events)
    operators = [operator for event in events for operator in event["stateOperators"]]
    metrics: Counter[str] = Counter()
    for operator in operators:
        metrics.update(operator.get("customMetrics", {}))
    stores = sum(operator["numStateStoreInstances"] for operator in operators) / count
    times = [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events]
    # Each batch of a source of files has an entry in the source's own log.
    sources = [source["description"] for source in events[-1]["sources"]]
    entries = 2.0 + sum(text.startswith("FileStreamSource[") for text in sources)
    provider, objects, size = _by_metrics(metrics, stores, count, executors)
    return Batches(
        query=events[0]["id"],
        provider=provider,
        batches=count,
        interval_s=(times[-1] - times[0]) / (count - 1) if count > 1 else None,
        objects={LOG: entries} | objects,
        bytes=size,
        commit_ms=sum(operator["commitTimeMs"] for operator in operators) / count,
        executors=executors or None,
    )


def _by_metrics(
    metrics: Mapping[str, int], stores: float, count: int, executors: int
) -> tuple[str, dict[str, float], float | None]:
    """Return provider, objects and bytes of a batch, by sums over `count` batches."""
    if any(name.startswith("holdfast") for name in metrics):
        # On an object store each executor makes one object of all changelogs of its stores.
        writes = metrics["holdfastChangelogs"] / count
        size = metrics["holdfastStoredBytes"] / count
        return PROVIDER.rpartition(".")[2], {MERGED: min(writes, float(executors or 1))}, size
    if "rocksdbCommitFlushLatency" not in metrics:
        return "HDFSBackedStateStoreProvider", {DELTA: stores}, None
    provider = "RocksDBStateStoreProvider"
    if not metrics["rocksdbSaveZipFilesLatencyMs"]:
        return provider, {CHANGELOG: stores}, None
    size = metrics["rocksdbBytesCopied"] + metrics["rocksdbZipFileBytesUncompressed"]
    return provider, {ZIP: stores, SST: metrics["rocksdbFilesCopied"] / count}, size / count
