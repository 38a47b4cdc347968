"""Options of a pipeline: what is refused, and how."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types

import holdfast as hf
from holdfast._core import SnapshotManager
from holdfast.regions.api.options import ALLOWED, PipelineOptions
from holdfast.regions.base.saved import StateError
from holdfast.regions.state.registry import StateRegistry


class Through(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("name", "", "a string of 1 to 1,024 bytes"),
        ("name", "\u00fc" * 513, "a string of 1 to 1,024 bytes"),
        ("name", 7, "a string of 1 to 1,024 bytes"),
        ("bounded", 1, "True or False"),
        ("verify_state", None, "True or False"),
        ("region_threads", "x", "an integer of at least 1"),
        ("region_threads", 0, "an integer of at least 1"),
        ("quarantine_after", 2.5, "an integer of at least 1"),
        ("max_file_bytes", 0, "an integer of at least 1"),
        ("region_timeout", timedelta(), "a timedelta above 0"),
        ("region_timeout", 60, "a timedelta above 0"),
        ("global_timeout", timedelta(seconds=-1), "a timedelta of at least 0"),
        *(
            (option, timedelta.max, "a timedelta of at most 36,500 days")
            for option in (
                "region_timeout",
                "aligned_timeout",
                "global_timeout",
                "retire_idle",
            )
        ),
        ("max_region_staleness", (1, timedelta.max), "a timedelta of at most 36,500 days"),
        ("aligned_timeout", 0.5, "a timedelta of at least 0"),
        ("max_region_staleness", 10, "a number of checkpoints and a timedelta"),
        ("max_region_staleness", (10, 600), "a number of checkpoints and a timedelta"),
        ("max_failure_ratio", "0.3", "a number above 0 and at most 1"),
        ("num_retained", "3", "an integer of at least 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(option: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}=.* is not allowed: expected {expected}"):
        PipelineOptions(**{option: value})


def test_the_edges_are_allowed() -> None:
    options = PipelineOptions(
        name="x" * 1024,
        aligned_timeout=timedelta(),
        region_threads=1,
        max_file_bytes=1,
        max_region_staleness=(1, timedelta(milliseconds=1)),
    )
    assert options.tasks(gpu=False).aligned_timeout_ms == 0
    assert PipelineOptions().tasks(gpu=False).aligned_timeout_ms is None


def test_the_core_seals_files_at_the_same_size_by_default() -> None:
    default = inspect.signature(SnapshotManager).parameters["max_file_bytes"].default
    assert PipelineOptions().max_file_bytes == default


ROWS = pa.schema([("k", pa.string()), ("x", pa.float64()), ("raw", pa.binary())])


def applied(**options: Any) -> Any:
    before = hf.regional(region_by="k").apply(Through(), schema=ROWS, name="before")
    return before.apply(Through(), schema=ROWS, **options)


@pytest.mark.parametrize("name", ["a->b", "->", "in-flight", "a#b", "", "x" * 1025, "\ud800", 7])
def test_a_name_that_no_operator_may_have_is_refused_when_it_is_applied(name: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot be named .*; give apply\(name=\.\.\.\)"):
        applied(name=name)


def test_the_number_of_an_instance_has_room_in_its_name() -> None:
    with pytest.raises(ValueError, match="at most 1024 bytes"):
        applied(name="x" * 1022, parallelism=11, route_by="k")
    applied(name="x" * 1022, parallelism=10, route_by="k")
    applied(name="x" * 1024)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("x", TypeError, "'x' has type double, which cannot say where a row goes: floating"),
        (["k", "x"], TypeError, "'x' has type double"),
        ("raw", TypeError, "'raw' has type binary, which cannot say where a row goes: expected"),
        (["k", "k"], ValueError, "names the column 'k' twice"),
        (["k", 7], TypeError, "names columns: expected strings, found 7"),
        ("missing", ValueError, "names missing, but its rows have the columns k, x, raw"),
    ],
)
def test_columns_that_rows_cannot_go_by_are_refused_when_they_are_applied(
    columns: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=rf"^route_by of operator 'two'.* {message}"):
        applied(name="two", parallelism=2, route_by=columns)
    (tmp_path / "in").mkdir()
    files = hf.regional(hf.FileSplits(tmp_path / "in", ROWS))
    with pytest.raises(error, match=rf"^route_by of operator 'two'.* {message}"):
        files.apply(Through(), schema=ROWS, name="two", parallelism=2, route_by=columns)


def test_one_instance_needs_no_route(tmp_path: Path) -> None:
    applied(name="one", route_by="x")


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ((), ValueError, "names no column"),
        (["k", "k"], ValueError, "names the column 'k' twice"),
        ([b"k"], TypeError, "names columns: expected strings, found b'k'"),
    ],
)
def test_columns_that_name_no_region_are_refused_at_once(
    columns: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^region_by {message}"):
        hf.regional(region_by=columns)


@pytest.mark.parametrize("option", ["region_by", "route_by of operator 'two'"])
def test_rows_that_come_without_a_schema_are_refused_by_the_name_of_the_option(
    option: str, tmp_path: Path
) -> None:
    rows = pa.record_batch({"k": ["a"], "x": [1.5], "raw": [b"r"]})
    pipeline = hf.regional(region_by="x" if option == "region_by" else "k").apply(
        Through(), schema=ROWS, name="two", parallelism=2, route_by="x"
    )
    with (
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match=f"{option}: the column 'x' has type double"),
    ):
        query.run_batch([[rows]])


NUMPY_INTEGERS = [np.int64, np.uint8, np.int32]


@pytest.mark.parametrize("kind", NUMPY_INTEGERS)
def test_integers_of_numpy_are_integers_in_every_option(kind: Any) -> None:
    given = {
        option: kind((getattr(PipelineOptions(), option) or 0) % 100 + 1)
        for option, allowed in ALLOWED.items()
        if allowed.kind == "integer"
    }
    given["max_region_staleness"] = (kind(3), timedelta(minutes=1))
    options = PipelineOptions(**given, max_failure_ratio=np.float32(0.29))
    for option in given:
        value = getattr(options, option)
        assert value == given[option]
        assert type(value[0] if isinstance(value, tuple) else value) is int, option
    assert options.coordinator().failures_allowed(100) == 29


@pytest.mark.parametrize("flag", ["bounded", "verify_state"])
def test_a_flag_of_numpy_is_a_flag_and_no_number(flag: str) -> None:
    assert getattr(PipelineOptions(**{flag: np.False_}), flag) is False
    with pytest.raises(ValueError, match=r"num_retained=.* expected an integer of at least 1"):
        PipelineOptions(num_retained=np.True_)
    with pytest.raises(ValueError, match=f"{flag}=.*1.* expected True or False"):
        PipelineOptions(**{flag: np.int64(1)})


class Shaped(hf.Operator):
    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        number = ctx.xp.int64
        self.cells = ctx.state.array("cells", shape=number(5), exact=np.True_, dtype="int64")
        self.grid = ctx.state.array("grid", shape=(number(2), 3), fill=number(7))

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.cells += batch.num_rows
        assert self.grid.tolist() == [[7.0] * 3] * 2
        return batch


@pytest.mark.parametrize("kind", NUMPY_INTEGERS)
def test_a_pipeline_runs_with_integers_of_numpy_in_every_call(kind: Any, tmp_path: Path) -> None:
    rows = pa.record_batch({"region": ["eu", "us"], "number": [1, 2]})
    pipeline = hf.regional(region_by="region").apply(
        Shaped(), schema=rows.schema, parallelism=kind(2), route_by="number"
    )

    def opened(folder: str, **options: Any) -> hf.LocalQuery:
        return pipeline.write_parquet(tmp_path / f"out-{folder}").open_local(
            tmp_path / folder, **options
        )

    with opened("first", tasks=kind(2), gpu=np.False_) as query:
        for number in range(3):
            query.run_batch([[rows]], batch_id=kind(number))
        assert len(query.history(last=kind(2))) == 2
        query.run_batch([[rows]], batch_id=kind(1))
        assert query.latest.batch_id == 2
        chosen = kind(query.latest.id - 1)
    with opened("first", checkpoint_id=chosen) as query:
        assert query.latest.batch_id == 1
    restore = hf.restore(tmp_path / "first", checkpoint_id=chosen)
    with opened("second", restore=restore) as query:
        query.run_batch([[rows]])
        assert query.latest.batch_id == 2


@pytest.mark.parametrize("kind", NUMPY_INTEGERS)
def test_files_are_read_with_integers_of_numpy(kind: Any, tmp_path: Path) -> None:
    rows = pa.table({"number": [1, 2]})
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "one.parquet")
    source = hf.FileSplits(
        tmp_path / "in",
        schema=rows.schema,
        regions=kind(2),
        split_bytes=kind(100),
        splits_per_region=kind(1),
    )
    pipeline = hf.regional(source).apply(Shaped(), schema=rows.schema)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        assert query.run_available(max_batches=kind(1)) == 1


@pytest.mark.parametrize("kind", NUMPY_INTEGERS)
def test_settings_and_a_manager_take_integers_of_numpy(kind: Any, tmp_path: Path) -> None:
    size, mib = kind(64), np.int64(1 << 20)
    settings = hf.spark_conf(
        max_file_bytes=mib,
        max_memory_bytes=2 * mib,
        target_memory_bytes=mib,
        local_cache_bytes=size,
    )
    assert settings == hf.spark_conf(
        max_file_bytes=1 << 20,
        max_memory_bytes=2 << 20,
        target_memory_bytes=1 << 20,
        local_cache_bytes=64,
    )
    assert hf.spark_conf(change_journal=np.True_) == hf.spark_conf(change_journal=True)
    with hf.SnapshotManager(tmp_path, max_file_bytes=size) as manager:
        assert manager.stats().live_segments == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [("tasks", 0), ("tasks", 1.5), ("tasks", True), ("checkpoint_id", 2.0), ("gpu", 1)],
)
def test_a_call_names_the_option_that_is_not_allowed(
    option: str, value: Any, tmp_path: Path
) -> None:
    schema = pa.schema([("region", pa.string())])
    writer = hf.regional(region_by="region").apply(Shaped(), schema=schema).write_parquet(tmp_path)
    with pytest.raises(ValueError, match=f"^{option}={value} is not allowed: expected"):
        writer.open_local(tmp_path / "ckpt", **{option: value})
    assert not (tmp_path / "ckpt").exists()


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True, None])
def test_a_parallelism_is_an_integer(parallelism: Any) -> None:
    schema = pa.schema([("region", pa.string())])
    with pytest.raises(ValueError, match=r"with parallelism=.* an integer of at least 1"):
        hf.regional(region_by="region").apply(
            Shaped(), schema=schema, parallelism=parallelism, route_by="region"
        )


@pytest.mark.parametrize("shape", [1.5, "3", True, -1, (2, None), (2, -1)])
def test_a_shape_is_made_of_integers(shape: Any) -> None:
    with pytest.raises(StateError, match=r"state 'cells' .* shape=.* expected an integer"):
        StateRegistry(np, owner="operator 'o'").array("cells", shape=shape)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (types.CalendarIntervalType(), "interval"),
        (types.YearMonthIntervalType(0, 1), "interval year to month"),
        (types.ArrayType(types.CharType(3)), r"array<char\(3\)>"),
    ],
)
def test_a_schema_of_spark_that_arrow_does_not_have_is_refused_by_column(
    kind: types.DataType, shown: str
) -> None:
    schema = types.StructType().add("k", types.StringType()).add("of", kind)
    with pytest.raises(TypeError, match=f"^schema: the column 'of' has type {shown}, which Arrow"):
        hf.regional(region_by="k").apply(Through(), schema=schema)
