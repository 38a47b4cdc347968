"""A two-phase sink that appends to a Delta table: Parquet files, and one entry of its log.

Workers stage Parquet files in the table's folder, as `ParquetSink` does. The driver gives the files
of a checkpoint their final names and adds them to the table in one entry of the log. The entry has
the checkpoint's id as the version of an application's transaction (the action ``txn`` of Delta's
protocol). The log keeps the latest version for as long as the table lives. So a commit that is
repeated after a crash changes nothing, even if the files were compacted since.
"""

from __future__ import annotations

import errno
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast._core import Staged
from holdfast.files.durable import explained, sync_file, sync_path
from holdfast.files.mounted import MountedPath
from holdfast.files.paths import local_folder
from holdfast.regions.base.clock import now_ms
from holdfast.regions.sinks.layout import own_files, published_attempt
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.parquet_stage import SUFFIX
from holdfast.regions.sinks.readable import kinds_of, require_readable

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake import Schema as DeltaSchema

#: The pipelines of a table in its log. A table belongs to one at a time, and ids of checkpoints
#: rise from one to the next that continues it.
APPLICATION: Final = "holdfast"

LOG_FOLDER: Final = "_delta_log"

# Versions of the table that a process may have added last before it died.
_RECENT: Final = 100

# Tables of these versions and features need nothing else of a writer that adds files of rows.
_WRITER_VERSION: Final = 2
_WRITER_FEATURES: Final = {
    "appendOnly",
    "deletionVectors",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}

# With this property Delta's checkpoints drop transactions, ours as soon as one is written.
_RETENTION: Final = "delta.setTransactionRetentionDuration"


def require_deltalake() -> None:
    """Check that deltalake is installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "write_delta needs the package deltalake on the driver: pip install "
            "'holdfast-spark[delta]'"
        ) from error


class DeltaSink(ParquetSink):
    """Appends the output of regions to a Delta table, exactly once; see `ParquetSink`.

    Raises a ValueError if the table is on a file system that is not mounted.
    """

    root: MountedPath

    def __init__(self, path: str | Path, **options: Any) -> None:
        try:
            folder = local_folder(path)
        except ValueError as error:
            raise ValueError(
                f"write_delta: {error}. For a table elsewhere use foreach_batch with deltalake and "
                "storage_options, as in docs/regional/delta-and-kafka.md"
            ) from None
        super().__init__(folder, **options)

    def at(self, location: str) -> DeltaSink | None:
        """Return a sink for another table; None if it is not on a mounted file system."""
        if not location.startswith("/"):
            return None
        return DeltaSink(location, compression=self.compression)

    def require_fit(self, schema: pa.Schema) -> None:
        """Check that rows of a schema can be added to the table. Changes nothing."""
        wanted = _delta_schema(schema)
        require_readable(schema, by="write_delta")
        table = self._table()
        if table is None:
            return
        if columns := table.metadata().partition_columns:
            raise ValueError(
                f"the Delta table {self.root} is partitioned by {', '.join(columns)}: write_delta "
                "adds to tables without partitions only"
            )
        _require_protocol(table, self.root)
        _require_transactions_stay(table, self.root)
        found = {one.name: one for one in table.schema().fields}
        given = {one.name: one for one in wanted.fields}
        for name in {**found, **given}:
            there, here = found.get(name), given.get(name)
            if (
                there is None
                or here is None
                or there.type != here.type
                or (here.nullable and not there.nullable)
                or "delta.invariants" in there.metadata
            ):
                raise ValueError(
                    f"rows do not fit the Delta table {self.root}: column {name!r} is "
                    f"{there or 'not there'} in the table and {here or 'not there'} in the rows"
                )

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Add the staged files of a checkpoint in one entry of the log.

        Raises a FileNotFoundError if a file is not staged, published or in the table, and a
        DeltaError if the table changed so that they cannot be added.
        """
        files = list(staged)
        table = self._table()
        before = -1 if table is None else table.version()
        # First, because files that were added may be compacted and gone.
        if table is not None and _last_added(table) >= checkpoint:
            # The process that added them may have died before it made that durable.
            self._sync_log(max(-1, before - _RECENT))
            return
        if table is None:
            self._require_no_other_files(files)
        super().commit(checkpoint, files)
        from deltalake.transaction import create_table_with_add_actions

        rows = Counter[str]()
        for one in files:
            rows[one.target] += one.rows
        added = [
            self._added(target, size, rows[target])
            for _, target, size in own_files(self.root, files, SUFFIX)
        ]
        properties = _properties(checkpoint)
        if table is None:
            import pyarrow.parquet as pq

            schema = _delta_schema(pq.read_schema(self.root / files[0].target))
            create_table_with_add_actions(
                str(self.root), schema, added, mode="error", commit_properties=properties
            )
        else:
            table.create_write_transaction(
                added, "append", table.schema(), commit_properties=properties
            )
        self._sync_log(before)

    def recover(self, checkpoint: int, staged: Sequence[Staged]) -> None:
        """See `TwoPhaseSink`. Refuses a folder of other files before any batch runs."""
        if self._table() is None:
            self._require_no_other_files(staged)
        super().recover(checkpoint, staged)

    def unpublished(self, staged: Iterable[Staged]) -> list[str]:
        """Return the paths of staged files that were not added yet. Changes nothing."""
        table = self._table()
        last = -1 if table is None else _last_added(table)
        return [
            str(self.root / target)
            for _, target, _ in own_files(self.root, staged, SUFFIX)
            if (published_attempt(target, SUFFIX) or 0) > last
        ]

    def published_after(self, attempt: int) -> list[str]:
        """Return the files that later attempts published; else the last checkpoint added."""
        found = super().published_after(attempt)
        table = self._table()
        if table is not None and (last := _last_added(table)) > attempt and not found:
            return [f"checkpoint {last} of {self.root}"]
        return found

    def withdraw(self, after_attempt: int) -> None:
        """Remove the rows and files of later attempts, durable on return.

        Earlier versions of the table that had these rows become unreadable. Raises an OSError if
        compacted files may have these rows, or the file system refuses.
        """
        table = self._table()
        if table is not None and _last_added(table) > after_attempt:
            self._require_not_rewritten(table, after_attempt)
            from deltalake.transaction import RemoveAction

            removed: list[Any] = [
                RemoveAction(one["path"], data_change=True, deletion_timestamp=now_ms())
                for one in _files(table)
                if (of := published_attempt(one["path"], SUFFIX)) is not None and of > after_attempt
            ]
            before = table.version()
            properties = _properties(after_attempt)
            table.create_write_transaction(
                removed, "append", table.schema(), commit_properties=properties
            )
            self._sync_log(before)
        super().withdraw(after_attempt)

    def _table(self) -> DeltaTable | None:
        """Return the current table; None if there is none."""
        from deltalake import DeltaTable

        path = str(self.root)
        return DeltaTable(path) if DeltaTable.is_deltatable(path) else None

    def _require_no_other_files(self, files: Iterable[Staged]) -> None:
        """Check that no pipeline wrote there without a table."""
        ours = {one.target for one in files}
        others = [name for name in super().published_after(-1) if Path(name).name not in ours]
        if others:
            raise FileExistsError(
                errno.EEXIST,
                "write_parquet published files in the folder, which has no Delta table: give "
                "write_delta a folder of its own",
                others[0],
            )

    def _added(self, target: str, size: int, rows: int) -> Any:
        from deltalake.transaction import AddAction

        written = (self.root / target).stat().st_mtime_ns // 1_000_000
        stats = json.dumps({"numRecords": rows})
        return AddAction(target, size, {}, written, data_change=True, stats=stats)

    def _sync_log(self, before: int) -> None:
        """Make log entries after a version durable, which deltalake does not."""
        table = self._table()
        last = -1 if table is None else table.version()
        log = self.root / LOG_FOLDER
        with explained(f"cannot make the log of the Delta table {self.root} durable"):
            for version in range(before + 1, last + 1):
                for name in (f"{version:020d}.json", f"{version:020d}.checkpoint.parquet"):
                    if (log / name).exists():
                        sync_file(log / name)
            sync_path(self.root, log)

    def _require_not_rewritten(self, table: DeltaTable, after_attempt: int) -> None:
        """Check that no file of another writer has rows that later attempts added."""
        files = {one["path"]: one["modification_time"] for one in _files(table)}
        attempts = {name: published_attempt(name, SUFFIX) for name in files}
        last = _last_added(table)
        known = set(attempts.values())
        # When the oldest file was published that was added and is no longer in the table.
        gone_ms: float = math.inf
        for path in map(Path, super().published_after(after_attempt)):
            attempt = published_attempt(path.name, SUFFIX) or 0
            known.add(attempt)
            if path.name not in files and attempt <= last:
                gone_ms = min(gone_ms, path.stat().st_mtime_ns // 1_000_000)
        rewritten = any(of is None and files[name] >= gone_ms for name, of in attempts.items())
        if rewritten or last not in known:
            raise OSError(
                errno.ENOTSUP,
                f"rows of checkpoints after {after_attempt} may be in files that another writer "
                "made of them (OPTIMIZE, DELETE, UPDATE). Take the table back to a version before "
                "these rows, with RESTORE or DeltaTable.restore, and start again; or delete the "
                f"rows, and set the version of the transaction {APPLICATION!r} in the table to "
                f"{after_attempt}",
                str(self.root),
            )


def _delta_schema(schema: pa.Schema) -> DeltaSchema:
    from deltalake import Schema as DeltaSchema

    for field in schema:
        for kind in kinds_of(field.type):
            if pa.types.is_unsigned_integer(kind) or (
                pa.types.is_timestamp(kind) and kind.unit != "us"
            ):
                raise ValueError(
                    f"a Delta table has no type for column {field.name!r}, which is {field.type}: "
                    "cast it to a signed integer, or to timestamp[us]"
                )
    try:
        return DeltaSchema.from_arrow(schema)
    except Exception as error:
        raise ValueError(f"a Delta table has no type for a column of {schema}: {error}") from error


def _require_protocol(table: DeltaTable, root: object) -> None:
    protocol = table.protocol()
    features = set(protocol.writer_features or ())
    if features - _WRITER_FEATURES or (
        protocol.min_writer_version > _WRITER_VERSION and protocol.writer_features is None
    ):
        needed = ", ".join(sorted(features - _WRITER_FEATURES)) or (
            f"writer version {protocol.min_writer_version}"
        )
        raise ValueError(
            f"the Delta table {root} needs of its writers what write_delta does not do: {needed}"
        )


def _require_transactions_stay(table: DeltaTable, root: object) -> None:
    if retention := table.metadata().configuration.get(_RETENTION):
        raise ValueError(
            f"the Delta table {root} forgets transactions after {retention!r}, and write_delta "
            f"knows by one which rows it added: remove the property {_RETENTION} from the table"
        )


def _last_added(table: DeltaTable) -> int:
    version = table.transaction_version(APPLICATION)
    return -1 if version is None else int(version)


def _properties(checkpoint: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(APPLICATION, int(checkpoint))])


def _files(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Yield path and modification time in ms of the files of the table's newest version."""
    columns = ["path", "modification_time"]
    yield from pa.table(table.get_add_actions()).select(columns).to_pylist()
