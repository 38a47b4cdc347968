"""A reader of the output folder sees whole checkpoints of regions, whatever the driver is at."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as ds
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.regions.sinks import ParquetSink, Staged

SCHEMA = pa.schema({"attempt": pa.int64(), "region": pa.string(), "row": pa.int64()})
ROWS = 5000
READS = 30
CALLS = ["fsync", "link", "rmdir", "stat", "unlink"]

Wanted = Counter[tuple[int, str]]


def stage(sink: ParquetSink, region: str, attempt: int, rows: int) -> Staged | None:
    columns = [[attempt] * rows, [region] * rows, range(rows)]
    with sink.writer(region, attempt, SCHEMA) as writer:
        writer.write(pa.record_batch(columns, schema=SCHEMA))
        staged = writer.close()
    assert staged is None or sink.persist([writer], None) == [None]
    return staged


def read(sink: ParquetSink) -> Wanted:
    """How many rows of each attempt and region are seen."""
    table = ds.dataset(sink.root, schema=SCHEMA, format="parquet").to_table(["attempt", "region"])
    return Counter(zip(table["attempt"].to_pylist(), table["region"].to_pylist(), strict=True))


def test_a_reader_beside_commits_sees_all_rows_of_a_region_and_attempt_or_none(
    tmp_path: Path,
) -> None:
    # R81
    sink = ParquetSink(tmp_path)
    published: set[tuple[int, str]] = set()
    reads: list[tuple[set[tuple[int, str]], Wanted]] = []
    enough, stopped = threading.Event(), threading.Event()

    def reader() -> None:
        try:
            while not stopped.is_set():
                before = set(published)
                reads.append((before, read(sink)))
                if len(reads) >= READS:
                    enough.set()
        finally:
            enough.set()

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for attempt in itertools.count(1):
            staged = {region: stage(sink, region, attempt, ROWS) for region in ("a", "b", "failed")}
            sink.commit(1, [one for region, one in staged.items() if one and region != "failed"])
            published.update((attempt, region) for region in ("a", "b"))
            sink.sweep(attempt)
            if enough.is_set():
                break
    finally:
        stopped.set()
        thread.join()
    assert len(reads) >= READS, "the reader ended early, with an error"
    for before, seen in reads:
        assert set(seen.values()) <= {ROWS}
        assert before <= seen.keys() <= published
    assert read(sink) == Counter(dict.fromkeys(published, ROWS))


class CrashError(BaseException):
    """The driver dies here, as far as the sink can tell."""


def crashing(after: int) -> Any:
    """Lets the sink make so many system calls, and no more."""
    left = [after]

    def dying(call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise CrashError
            left[0] -= 1
            return call(*arguments, **options)

        return counted

    return mock.patch.multiple(os, **{name: dying(getattr(os, name)) for name in CALLS})


REGIONS = st.sampled_from(["JFK", "LGA", "", "/", "..", "null", "é", '["a",1]'])
# Rows of each region, which of them are healthy, how many calls the driver lives, lost twins.
ATTEMPTS = st.tuples(
    st.dictionaries(REGIONS, st.integers(0, 3), max_size=5),
    st.sets(REGIONS),
    st.none() | st.integers(0, 30),
    st.sets(REGIONS),
)


@settings(deadline=None, max_examples=60)
@given(attempts=st.lists(ATTEMPTS, max_size=6))
def test_after_any_history_the_folder_holds_the_committed_rows_once(
    tmp_path_factory: Any, attempts: list[tuple[Any, ...]]
) -> None:
    # R74, R80, R81
    sink = ParquetSink(tmp_path_factory.mktemp("sink"))
    expected: Wanted = Counter()
    for attempt, (regions, healthy, lives, twins) in enumerate(attempts, start=1):
        for region in twins & regions.keys():
            stage(sink, region, attempt, regions[region] + 1)
        staged = {region: stage(sink, region, attempt, rows) for region, rows in regions.items()}
        assert [staged[region] is None for region in regions] == [n == 0 for n in regions.values()]
        assert read(sink) == expected
        owed = [one for region, one in staged.items() if one and region in healthy]
        expected += Counter(
            {(attempt, region): regions[region] for region in regions.keys() & healthy}
        )
        try:
            with crashing(-1 if lives is None else lives):
                sink.commit(1, owed)
                sink.sweep(attempt)
        except CrashError:
            assert read(sink) <= expected
            sink.recover(1, owed)
            sink.sweep(attempt)
        assert read(sink) == expected
        left = {file.parent.name for file in sink.root.glob("_holdfast/staged/*/*")}
        unpublished = any(
            rows and region not in healthy for region, rows in regions.items()
        ) or bool(twins & regions.keys())
        assert left == ({f"{attempt:010d}"} if unpublished else set())
