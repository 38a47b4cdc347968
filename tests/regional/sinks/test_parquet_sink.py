"""What a region stages is published once, whole, and under a name of its own."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from holdfast.files.reached import HadoopPath
from holdfast.regions.sinks import ParquetSink, Staged
from holdfast.regions.sinks.parquet_stage import WRITE_BYTES

SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("text", pa.string())])


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA
    )


def stage(sink: ParquetSink, region: str, attempt: int, *numbers: int) -> Staged:
    with sink.writer(region, attempt, SCHEMA) as writer:
        writer.write(rows(*numbers))
        staged = writer.close()
    assert staged is not None
    for error in sink.persist([writer], None):
        if error is not None:
            raise error
    return staged


def visible(sink: ParquetSink) -> list[int]:
    """Rows that a reader of the folder finds."""
    numbers: list[int] = ds.dataset(sink.root, schema=SCHEMA).to_table()["row"].to_pylist()
    return sorted(numbers)


def staged_files(sink: ParquetSink) -> list[Path]:
    return sorted(sink.root.glob("_holdfast/staged/*/*"))


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "out")


def test_staged_rows_are_not_seen_before_the_commit(sink: ParquetSink) -> None:
    # R81
    staged = stage(sink, "JFK", 1, 1, 2, 3)
    assert visible(sink) == []
    sink.commit(1, [staged])
    assert visible(sink) == [1, 2, 3]
    assert staged_files(sink) == []
    assert list(sink.root.glob("_holdfast/staged/*")) == []


def test_what_a_failed_region_staged_is_not_published_by_the_commit_of_others(
    sink: ParquetSink,
) -> None:
    # R80
    healthy, failed = stage(sink, "a", 4, 1), stage(sink, "b", 4, 2)
    sink.commit(1, [healthy])
    assert visible(sink) == [1]
    assert staged_files(sink) == [sink.root / failed.path]


def test_what_is_staged_says_where_how_many_rows_and_bytes(sink: ParquetSink) -> None:
    staged = stage(sink, "JFK", 42, 1, 2, 3)
    file = sink.root / staged.path
    assert staged.path.startswith("_holdfast/staged/0000000042/")
    assert staged.target.startswith("part-0000000042-JFK-")
    assert staged.target.endswith(".parquet")
    assert (staged.rows, staged.bytes) == (3, file.stat().st_size)
    assert pq.read_table(file).equals(pa.Table.from_batches([rows(1, 2, 3)]))


def test_many_small_batches_are_one_row_group(sink: ParquetSink) -> None:
    with sink.writer("a", 1, SCHEMA) as writer:
        for number in range(100):
            writer.write(rows(number))
        staged = writer.close()
    assert staged is not None
    file = pq.ParquetFile(sink.root / staged.path)
    assert file.num_row_groups == 1
    assert file.read()["row"].to_pylist() == list(range(100))


def test_rows_are_written_once_a_row_group_is_together(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rows(1, 2, 3)
    monkeypatch.setattr("holdfast.regions.sinks.parquet_stage.ROW_GROUP_BYTES", 2 * batch.nbytes)
    with sink.writer("a", 1, SCHEMA) as writer:
        for _ in range(5):
            writer.write(batch)
        staged = writer.close()
    assert staged is not None
    metadata = pq.ParquetFile(sink.root / staged.path).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [6, 6, 3]
    assert staged.rows == 15


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "lz4", "none"])
def test_files_are_compressed_as_asked(tmp_path: Path, compression: Any) -> None:
    sink = ParquetSink(tmp_path, compression=compression)
    staged = stage(sink, "a", 1, 1)
    column = pq.ParquetFile(tmp_path / staged.path).metadata.row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_closed_stages_hold_no_buffers(sink: ParquetSink) -> None:
    # A task has one for each of its regions, until it ends.
    gc.collect()
    before = pa.total_allocated_bytes()
    closed = []
    for number in range(8):
        writer = sink.writer(f"r{number}", 1, SCHEMA)
        writer.write(rows(number))
        assert writer.close() is not None
        closed.append(writer)
    assert pa.total_allocated_bytes() - before < WRITE_BYTES
    assert sink.persist(closed, None) == [None] * len(closed)


def test_a_stage_without_rows_is_nothing(sink: ParquetSink) -> None:
    with sink.writer("a", 1, SCHEMA) as writer:
        writer.write(rows())
        assert writer.close() is None
    assert not sink.root.exists()


def test_a_stage_that_is_not_closed_is_discarded(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.regions.sinks.parquet_stage.ROW_GROUP_BYTES", 1)
    with sink.writer("a", 1, SCHEMA) as writer:
        writer.write(rows(1))
        assert len(staged_files(sink)) == 1
    assert staged_files(sink) == []


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What encoders say that are collected before they could come to their end."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    return found


def test_discarding_removes_the_file_before_and_after_it_was_closed(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch, complaints: list[Any]
) -> None:
    monkeypatch.setattr("holdfast.regions.sinks.parquet_stage.ROW_GROUP_BYTES", 1)
    for close in (False, True):
        writer = sink.writer("a", 1, SCHEMA)
        writer.write(rows(1))
        assert len(staged_files(sink)) == 1
        if close:
            writer.close()
        for _ in range(2):
            writer.discard()
        assert staged_files(sink) == []
    gc.collect()
    assert complaints == []


def test_a_stage_that_ended_takes_no_more_rows(sink: ParquetSink) -> None:
    ends: list[Callable[[Any], object]] = [lambda writer: writer.close(), lambda w: w.discard()]
    for end in ends:
        writer = sink.writer("a", 1, SCHEMA)
        end(writer)
        with pytest.raises(ValueError, match="region 'a' in attempt 1 has ended"):
            writer.write(rows(1))
        with pytest.raises(ValueError, match="has ended"):
            writer.close()


@pytest.mark.parametrize("count", [0, 1])
def test_rows_with_other_columns_are_refused(sink: ParquetSink, count: int) -> None:
    other = pa.record_batch({"row": pa.array([1] * count, pa.int32())})
    writer = sink.writer("a", 1, SCHEMA)
    with pytest.raises(
        ValueError, match=r"expected row int64 not null, text string; found row int32$"
    ):
        writer.write(other)
    assert staged_files(sink) == []


@pytest.mark.parametrize(
    "region", ["JFK", "", "/", "..", "../../up", ".hidden", "_x", "a b", "é", "x" * 1024, '["a",1]']
)
def test_every_region_has_a_safe_name_of_its_own(sink: ParquetSink, region: str) -> None:
    staged = stage(sink, region, 1, 1)
    sink.commit(1, [staged, stage(sink, "another", 1, 2)])
    assert visible(sink) == [1, 2]
    assert (sink.root / staged.target).parent == sink.root
    assert (region in staged.target) == (region in ("JFK", ""))


def test_regions_and_attempts_do_not_share_a_name(sink: ParquetSink) -> None:
    # The last two differ in nothing but the case, which some file systems do not keep apart.
    made = [
        stage(sink, region, attempt, 1) for region in ("é", "è", "A", "a") for attempt in (1, 11)
    ]
    assert len({staged.target.lower() for staged in made}) == 8
    sink.commit(1, made)
    assert visible(sink) == [1] * 8


def test_of_two_tasks_of_one_region_the_acknowledged_one_is_published(sink: ParquetSink) -> None:
    # R3, R5: a task that was given up may still be running.
    lost, counted = stage(sink, "a", 1, 1), stage(sink, "a", 1, 2)
    assert lost.target == counted.target
    sink.commit(1, [counted])
    sink.sweep(2)
    assert visible(sink) == [2]
    assert staged_files(sink) == []


def test_a_commit_may_be_repeated(sink: ParquetSink) -> None:
    staged = stage(sink, "a", 1, 1)
    sink.commit(1, [staged])
    before = (sink.root / staged.target).stat()
    sink.commit(1, [staged])
    sink.recover(1, [staged])
    assert (sink.root / staged.target).stat() == before


def test_a_folder_that_was_copied_in_the_middle_of_a_commit_is_finished(
    sink: ParquetSink, tmp_path: Path
) -> None:
    staged = stage(sink, "a", 1, 1)
    shutil.copyfile(sink.root / staged.path, sink.root / staged.target)
    sink.root.rename(tmp_path / "moved")
    moved = ParquetSink(tmp_path / "moved")
    moved.recover(1, [staged])
    assert visible(moved) == [1]
    assert staged_files(moved) == []


@pytest.mark.parametrize(
    ("still_staged", "first_byte", "longer"),
    # Of the same size only while it is staged: later there is nothing to compare with.
    [(True, b"x", 0), (True, b"P", -1), (True, b"P", 1), (False, b"P", -1), (False, b"P", 1)],
)
def test_another_file_under_the_final_name_is_an_error_and_stays(
    sink: ParquetSink,
    monkeypatch: pytest.MonkeyPatch,
    still_staged: bool,
    first_byte: bytes,
    longer: int,
) -> None:
    monkeypatch.setattr("holdfast.files.hard_links._CHUNK_BYTES", 16)
    staged = stage(sink, "a", 1, 1)
    source, target = sink.root / staged.path, sink.root / staged.target
    content = source.read_bytes()
    other = (first_byte + content[1:] + b"x")[: len(content) + longer]
    target.write_bytes(other)
    if not still_staged:
        source.unlink()
    with pytest.raises(FileExistsError, match="another file has the final name") as error:
        sink.commit(1, [staged])
    assert error.value.filename == str(target)
    assert target.read_bytes() == other
    assert source.exists() == still_staged


def test_a_file_that_is_nowhere_is_an_error(sink: ParquetSink) -> None:
    staged = stage(sink, "a", 1, 1)
    sink.sweep(2)
    with pytest.raises(FileNotFoundError, match=r"neither of the two is there") as error:
        sink.commit(1, [staged])
    assert staged.path in str(error.value)
    assert staged.target in str(error.value)


def test_a_damaged_staged_file_is_not_published(sink: ParquetSink) -> None:
    staged = stage(sink, "a", 1, 1)
    os.truncate(sink.root / staged.path, 10)
    with pytest.raises(OSError, match=rf"staged with {staged.bytes} bytes and has 10") as error:
        sink.commit(1, [staged])
    assert error.value.errno == errno.EIO
    assert visible(sink) == []


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "."])
def test_a_path_that_leads_out_of_the_folder_is_refused(sink: ParquetSink, path: str) -> None:
    staged = stage(sink, "a", 1, 1)
    for wrong in (Staged(path, staged.target, 1, 1), Staged(staged.path, path, 1, 1)):
        with pytest.raises(ValueError, match="expected a path inside"):
            sink.commit(1, [wrong])
    assert (sink.root / staged.path).exists()


def test_a_sweep_removes_earlier_attempts_only(sink: ParquetSink) -> None:
    sink.sweep(5)  # nothing was ever staged
    made = {attempt: stage(sink, "a", attempt, attempt) for attempt in (1, 9, 10, 11, 100)}
    sink.commit(1, [made.pop(1)])
    (sink.root / "_holdfast/staged/notes").mkdir()
    for _ in range(2):
        sink.sweep(10)
        assert staged_files(sink) == [sink.root / made[n].path for n in (10, 11, 100)]
        assert not (sink.root / "_holdfast/staged/0000000009").exists()
    assert (sink.root / "_holdfast/staged/notes").exists()
    assert visible(sink) == [1]


def test_a_task_of_a_swept_attempt_fails_or_leaves_what_the_next_sweep_removes(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    # R5, R80: it may still be running.
    monkeypatch.setattr("holdfast.regions.sinks.parquet_stage.ROW_GROUP_BYTES", 1)
    writer = sink.writer("a", 1, SCHEMA)
    writer.write(rows(1))
    sink.sweep(2)
    writer.close()
    (error,) = sink.persist([writer], None)
    assert isinstance(error, FileNotFoundError)
    assert "cannot stage the output of region 'a' in attempt 1" in str(error)
    late = stage(sink, "a", 1, 2)
    assert staged_files(sink) == [sink.root / late.path]
    sink.sweep(2)
    assert staged_files(sink) == []


def test_what_a_file_system_says_of_one_file_is_no_reason_to_lose_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The driver looks at it; from then on only the executor's JVM reaches it.
    monkeypatch.setattr(HadoopPath, "exists", lambda path: False)
    refused = ValueError("Empty etag")
    went_up: list[int] = []

    class Store:
        def stage(self, local_path: str, staged: str, target: str) -> None:
            (row,) = pq.read_table(local_path)["row"].to_pylist()
            if row == 1:
                raise refused
            went_up.append(row)

    sink = ParquetSink(HadoopPath("s3a://bucket/out"))
    writers = []
    for number, region in enumerate("abc"):
        writer = sink.writer(region, 1, SCHEMA)
        writer.write(rows(number))
        writer.close()
        writers.append(writer)
    assert sink.persist(writers, Store()) == [None, refused, None]
    assert sorted(went_up) == [0, 2]


def test_an_acknowledgement_depends_on_the_file_and_on_every_folder_above(
    sink: ParquetSink, synced: list[str]
) -> None:
    staged = stage(sink, "a", 1, 1)
    file = sink.root / staged.path
    assert synced[0] == str(file)
    assert set(synced[1:]) == {str(folder) for folder in file.parents[:5]}
    assert file.parents[4] == sink.root.parent


def test_several_outputs_become_durable_with_one_sync_of_their_folder(
    sink: ParquetSink, synced: list[str]
) -> None:
    writers = [sink.writer(f"r{number}", 1, SCHEMA) for number in range(20)]
    staged = []
    for number, writer in enumerate(writers):
        writer.write(rows(number))
        staged.append(writer.close())
    assert synced == []
    assert sink.persist(writers, None) == [None] * 20
    files = [str(sink.root / one.path) for one in staged if one is not None]
    assert sorted(synced[:20]) == sorted(files)
    assert synced.count(str(Path(files[0]).parent)) == 1


def test_an_output_that_cannot_be_made_durable_is_discarded_and_the_others_are_not(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [sink.writer(region, 1, SCHEMA) for region in ("a", "b")]
    for writer in writers:
        writer.write(rows(1))
        writer.close()
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if "-a-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "in trouble")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    lost, kept = sink.persist(writers, None)
    assert "cannot stage the output of region 'a' in attempt 1" in str(lost)
    assert kept is None
    assert len(staged_files(sink)) == 1


def test_when_the_folder_cannot_be_made_durable_all_outputs_in_it_are_discarded(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [sink.writer(region, 1, SCHEMA) for region in ("a", "b")]
    for writer in writers:
        writer.write(rows(1))
        writer.close()
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "in trouble")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    assert [type(error) for error in sink.persist(writers, None)] == [OSError, OSError]
    assert staged_files(sink) == []


def test_a_folder_above_that_must_not_be_read_does_no_harm(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, opened = {sink.root.parent}, os.open

    def guarded(path: Any, *arguments: Any) -> int:
        if path in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", guarded)
    sink.commit(1, [stage(sink, "a", 1, 1)])
    assert visible(sink) == [1]
    refused.add(sink.root / "_holdfast" / "staged")
    with pytest.raises(PermissionError, match=r"cannot stage .*/_holdfast/staged'$"):
        stage(sink, "a", 2, 2)


def test_a_folder_is_made_durable_once_by_each_process(
    sink: ParquetSink, synced: list[str]
) -> None:
    stage(sink, "a", 1, 1)
    synced.clear()
    file = sink.root / stage(sink, "b", 1, 1).path
    assert synced == [str(file), str(file.parent)]
    synced.clear()
    file = sink.root / stage(sink, "a", 2, 1).path
    assert synced == [str(file), str(file.parent), str(file.parent.parent)]
    synced.clear()
    # Another folder under the same name.
    sink.root.rename(sink.root.with_name("moved"))
    file = sink.root / stage(sink, "b", 2, 1).path
    assert synced == [str(file), *(str(folder) for folder in file.parents[:5])]


def test_staged_names_go_only_when_the_final_ones_are_durable(
    sink: ParquetSink, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [stage(sink, region, 1, 1) for region in ("a", "b")]
    synced.clear()
    unlink, unlinked = os.unlink, []

    def checked(path: Any, **options: Any) -> None:
        assert synced == [str(sink.root)]
        assert sorted(os.listdir(sink.root)) == sorted(["_holdfast", *(m.target for m in made)])
        unlinked.append(path)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", checked)
    sink.commit(1, made)
    assert len(unlinked) == 2


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files and folders that were made durable."""
    fsync, paths = os.fsync, []

    def recorded(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 4, 10, 1000])
@pytest.mark.parametrize("gathered", [1, 1 << 20])
def test_a_file_that_cannot_grow_is_removed_with_an_error_that_names_the_region(
    sink: ParquetSink,
    monkeypatch: pytest.MonkeyPatch,
    complaints: list[Any],
    size: int,
    gathered: int,
) -> None:
    monkeypatch.setattr("holdfast.regions.sinks.parquet_stage.ROW_GROUP_BYTES", gathered)
    writer = sink.writer("a", 1, SCHEMA)

    def fill() -> None:
        with file_size_limit(size):
            writer.write(rows(*range(1000)))
            writer.close()

    said = rf"\[Errno {errno.EFBIG}\].* output of region 'a' in attempt 1 .*too large"
    with pytest.raises(OSError, match=said):
        fill()
    assert staged_files(sink) == []
    gc.collect()
    assert complaints == []
    with pytest.raises(ValueError, match="has ended"):
        writer.write(rows(1))


def test_a_failed_sync_leaves_no_file(sink: ParquetSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=r"region 'a' in attempt 1 in .*No space left on device"):
        stage(sink, "a", 1, 1)
    assert staged_files(sink) == []


def test_a_file_system_without_hard_links_is_named_as_the_cause(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    staged = stage(sink, "a", 1, 1)
    monkeypatch.setattr(os, "link", refusing)
    with pytest.raises(PermissionError, match=r"must allow hard links"):
        sink.commit(1, [staged])
    monkeypatch.undo()
    sink.commit(1, [staged])
    assert visible(sink) == [1]


def test_a_folder_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "_holdfast").write_text("in the way")
    with pytest.raises(NotADirectoryError, match=rf"cannot stage .*{tmp_path}/_holdfast"):
        stage(ParquetSink(tmp_path), "a", 1, 1)


def test_a_sink_travels_by_pickling(sink: ParquetSink) -> None:
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301
    assert copy == sink
    sink.commit(1, [stage(copy, "a", 1, 1)])
    assert visible(sink) == [1]


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost", "FILE:"])
def test_local_paths_and_file_uris_are_folders(tmp_path: Path, prefix: str) -> None:
    assert ParquetSink(f"{prefix}{tmp_path}/a%20b").root == tmp_path / "a%20b"


def test_a_relative_path_is_made_absolute_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ParquetSink("out/").root == tmp_path / "out"
    assert ParquetSink("./s3a:out").root == tmp_path / "s3a:out"
    assert ParquetSink(Path("s3a:out")).root == tmp_path / "s3a:out"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file://host/out", "expected no host, found 'host'"),
        ("file:out", "expected an absolute path"),
        ("file://", "expected an absolute path"),
        ("", "expected the path of a folder"),
    ],
)
def test_a_path_that_is_not_local_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParquetSink(path)


@pytest.mark.parametrize("path", ["s3a://bucket/out", "hdfs:/out"])
def test_a_path_that_only_spark_reaches_needs_a_session(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests of this process may have begun one.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match="there is no Spark session"):
        ParquetSink(path)


def test_a_folder_whose_readers_would_not_see_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(ValueError, match="_spark_metadata"):
        ParquetSink(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="expected a folder, found a file"):
        ParquetSink(tmp_path / "file")


def test_options_that_are_not_allowed_are_refused(tmp_path: Path) -> None:
    wrong: Any = "zip"
    with pytest.raises(ValueError, match="compression='zip' is not allowed: expected one of snap"):
        ParquetSink(tmp_path, compression=wrong)
    with pytest.raises(ValueError, match="attempt=-1 is not allowed"):
        ParquetSink(tmp_path).writer("a", -1, SCHEMA)
