"""Regional pipelines without Spark: real operators, real files, one process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext

import holdfast as hf
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Gate,
    Row,
    RunningCount,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = [f"r{number:02}" for number in range(6)]


def pipeline(
    path: Path, operator: hf.Operator, *, per_region: bool = False, **options: Any
) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out", per_region=per_region)
        .open_local(path / "ckpt", **options)
    )


def run(query: hf.LocalQuery, batches: Sequence[Sequence[Row]], *, first: int = 0) -> None:
    for number, rows in enumerate(batches, start=first):
        query.run_batch(partitions_of(rows, 3), batch_id=number)


def outcomes(query: hf.LocalQuery) -> list[str]:
    return [row.outcome for row in query.history()]


def test_every_row_is_in_state_and_output_once(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS) for number in range(4)]
    with pipeline(tmp_path, RunningCount()) as query:
        run(query, batches)
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_restart_continues_from_the_latest_checkpoint(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS) for number in range(4)]
    with pipeline(tmp_path, RunningCount()) as query:
        run(query, batches[:2])
    with pipeline(tmp_path, RunningCount()) as query:
        run(query, batches[2:], first=2)
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_batch_that_a_checkpoint_covers_is_not_run_again(
    tmp_path: Path, hooks: Hooks
) -> None:  # R74
    batches = [rows_of(number, REGIONS) for number in range(2)]
    with pipeline(tmp_path, RunningCount()) as query:
        run(query, batches)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        hooks.fail_for("r00", range(10_000))
        run(query, batches)
        assert query.latest.batch_id == 1
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_failing_region_falls_back_and_its_rows_come_again(
    tmp_path: Path, hooks: Hooks
) -> None:  # R16, R41
    batches = [rows_of(number, REGIONS) for number in range(4)]
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:1])
        origin = query.latest.id
        hooks.fail_for("r02", range(1000, 3000))
        run(query, batches[1:3], first=1)
        assert query.latest.failed == {"r02": origin}
        assert len(query.latest.regions["r02"].in_flight) == 2
        healthy = [row for row in expected(batches[:3]) if row[0] != "r02"]
        fallen = [row for row in expected(batches[:1]) if row[0] == "r02"]
        assert output_of(tmp_path / "out") == sorted(healthy + fallen)
        hooks.calm()
        run(query, batches[3:], first=3)
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_region_that_fails_in_its_first_batch_begins_empty_later(
    tmp_path: Path, hooks: Hooks
) -> None:  # R26
    batches = [rows_of(number, REGIONS) for number in range(2)]
    hooks.fail_for("r01", range(1000))
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:1])
        assert set(query.latest.failed) == {"r01"}
        hooks.calm()
        run(query, batches[1:], first=1)
    assert output_of(tmp_path / "out") == expected(batches)


def test_rows_that_are_owed_are_replayed_although_none_follow(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(0, REGIONS), rows_of(1, REGIONS), rows_of(2, REGIONS[3:])]
    with pipeline(tmp_path, Troubled(hooks)) as query:
        hooks.fail_for("r02", range(1000, 2000))
        run(query, batches[:2])
        hooks.calm()
        run(query, batches[2:], first=2)
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_finish_replays_what_is_owed(tmp_path: Path, hooks: Hooks) -> None:  # R25
    batches = [rows_of(number, REGIONS) for number in range(2)]
    with pipeline(tmp_path, Troubled(hooks)) as query:
        hooks.fail_for("r05", range(1000, 2000))
        run(query, batches)
        hooks.calm()
        query.finish()
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_fallback_survives_a_restart(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS) for number in range(3)]
    with pipeline(tmp_path, Troubled(hooks)) as query:
        hooks.fail_for("r03", range(1000, 2000))
        run(query, batches[:2])
    hooks.calm()
    with pipeline(tmp_path, RunningCount()) as query:
        assert set(query.latest.failed) == {"r03"}
        run(query, batches[2:], first=2)
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_region_that_hangs_expires_and_the_batch_goes_on(
    tmp_path: Path, hooks: Hooks
) -> None:  # R4, R5
    batches = [rows_of(number, REGIONS) for number in range(3)]
    gate = Gate()

    def hang(region: str, ids: Sequence[int]) -> None:
        if region == "r04" and ids[0] >= 1000:
            gate.pass_through()

    with pipeline(tmp_path, Troubled(hooks), region_timeout=timedelta(seconds=1)) as query:
        run(query, batches[:1])
        hooks.on_rows = hang
        run(query, batches[1:2], first=1)
        assert gate.reached.is_set()
        assert set(query.latest.failed) == {"r04"}
        assert "expired" in query.latest.regions["r04"].cause
        hooks.calm()
        gate.open()
        run(query, batches[2:], first=2)
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_slow_region_does_not_hold_up_the_batch(tmp_path: Path, hooks: Hooks) -> None:  # R51
    batches = [rows_of(number, REGIONS, each=96) for number in range(3)]
    gate = Gate()

    def wait_once(region: str, ids: Sequence[int]) -> None:
        if region == "r01" and ids[0] == 1:
            gate.pass_through()

    hooks.on_rows = wait_once
    with pipeline(
        tmp_path,
        Troubled(hooks),
        aligned_timeout=timedelta(milliseconds=1),
        region_timeout=timedelta(minutes=5),
    ) as query:
        opened = _open_when_reached(gate)
        run(query, batches[:1])
        opened()
        entry = query.latest.regions["r01"]
        assert not entry.failed
        assert entry.in_flight_bytes > 0
        assert query.latest.is_global
        run(query, batches[1:], first=1)
        query.finish()
        assert query.latest.regions["r01"].in_flight_bytes == 0
    assert output_of(tmp_path / "out") == expected(batches)


def _open_when_reached(gate: Gate) -> Any:
    import threading

    def opener() -> None:
        if gate.reached.wait(timeout=60):
            gate.open()

    thread = threading.Thread(target=opener)
    thread.start()
    return thread.join


def test_a_region_whose_output_is_not_durable_falls_back_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # R3
    batches = [rows_of(number, REGIONS) for number in range(3)]
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if "-r01-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "the device is in trouble")
        sync(descriptor)

    with pipeline(tmp_path, RunningCount(), per_region=True) as query:
        run(query, batches[:1])
        before = query.latest.id
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing)
            run(query, batches[1:2], first=1)
        assert query.latest.failed == {"r01": before}
        assert "the device is in trouble" in query.latest.regions["r01"].cause
        run(query, batches[2:], first=2)
        assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_small_pieces_of_rows_reach_the_operator_together(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS, each=50) for number in range(2)]
    sizes: dict[str, list[int]] = {}

    def note(region: str, ids: Sequence[int]) -> None:
        sizes.setdefault(region, []).append(len(ids))

    hooks.on_rows = note
    with pipeline(tmp_path, Troubled(hooks)) as query:
        for number, rows in enumerate(batches):
            query.run_batch(partitions_of(rows, 3, slices=10), batch_id=number)
    assert sizes == {region: [50, 50] for region in REGIONS}
    assert output_of(tmp_path / "out") == expected(batches)


def test_operators_stay_open_whatever_other_tasks_run_in_their_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_operator = RunningCount.open

    def note(self: RunningCount, ctx: hf.OperatorContext) -> None:
        opened.append(ctx.region)
        open_operator(self, ctx)

    monkeypatch.setattr(RunningCount, "open", note)
    batches = [rows_of(number, REGIONS) for number in range(3)]
    with pipeline(tmp_path, RunningCount(), tasks=1) as query:
        run(query, batches)
    assert sorted(opened) == REGIONS
    assert output_of(tmp_path / "out") == expected(batches)


def test_when_too_many_regions_fail_nothing_is_published(
    tmp_path: Path, hooks: Hooks
) -> None:  # R12
    batches = [rows_of(number, REGIONS) for number in range(2)]

    def trouble(region: str, ids: Sequence[int]) -> None:
        if region in REGIONS[:4] and ids[0] >= 1000:
            raise RuntimeError("in trouble")

    hooks.on_rows = trouble
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:1])
        before = query.latest.id
        with pytest.raises(hf.RegionalQueryError, match="in trouble"):
            run(query, batches[1:], first=1)
        assert query.latest.id == before
    hooks.calm()
    assert output_of(tmp_path / "out") == expected(batches[:1])
    with pipeline(tmp_path, RunningCount()) as query:
        run(query, batches[1:], first=1)
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_region_in_two_partitions_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    rows = rows_of(0, REGIONS)
    half = len(rows) // 2
    with pipeline(tmp_path, RunningCount()) as query:
        partitions = partitions_of(rows[:half], 1) + partitions_of(rows[half:], 1)
        with pytest.raises(hf.RegionInTwoTasksError, match="repartition"):
            query.run_batch(partitions, batch_id=0)
    assert output_of(tmp_path / "out") == []


def test_operators_that_do_not_declare_region_safe_are_refused(tmp_path: Path) -> None:
    class Unsafe(RunningCount):
        region_safe = False

    with pytest.raises(ValueError, match="region_safe"):
        pipeline(tmp_path, Unsafe())
    batches = [rows_of(0, REGIONS)]
    with pipeline(tmp_path, Unsafe(), max_consecutive_failures=0) as query:
        run(query, batches)
    assert output_of(tmp_path / "out") == expected(batches)


class TwoLargeStates(Troubled):
    """Both are too large to lie in the metadata; the second one must equal the first."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.one = ctx.state.array("one", shape=(300,), dtype="int64")
        self.two = ctx.state.array("two", shape=(500,), dtype="float32")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert (self.one == self.rows.value).all()
        assert (self.two == self.rows.value).all()
        rows = list(super().process(batch))
        self.one[:] = self.rows.value
        self.two[:] = self.rows.value
        return iter(rows)


def test_segments_of_all_states_outlive_fallbacks_and_restarts(
    tmp_path: Path, hooks: Hooks
) -> None:  # R44
    batches = [rows_of(number, REGIONS) for number in range(5)]
    options = {"num_retained": 1, "max_file_bytes": 1, "max_consecutive_failures": 10}
    with pipeline(tmp_path, TwoLargeStates(hooks), **options) as query:
        run(query, batches[:1])
        hooks.fail_for("r02", range(1000, 4000))
        run(query, batches[1:3], first=1)
        assert set(query.latest.failed) == {"r02"}
    with pipeline(tmp_path, TwoLargeStates(hooks), **options) as query:
        run(query, batches[3:4], first=3)
        hooks.calm()
        run(query, batches[4:], first=4)
        assert query.latest.is_global
        # Two states of each region. Appends at the same moment may share a file.
        assert query.manager.stats().live_segments == 2 * len(REGIONS)
    assert len(list((tmp_path / "ckpt" / "segments").iterdir())) <= 2 * len(REGIONS)
    assert output_of(tmp_path / "out") == expected(batches)


def test_files_of_subsumed_checkpoints_go(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS, each=40) for number in range(12)]
    with pipeline(tmp_path, RunningCount(), num_retained=1, max_file_bytes=4096) as query:
        run(query, batches)
        query.manager.wait_for_deletes()
        assert query.manager.stats().physical_files <= 2
    assert len(list((tmp_path / "ckpt" / "metadata").iterdir())) == 1


def open_with_function(path: Path, function: Callable[[pa.Table, int], None]) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED, name="count")
        .foreach_batch(function)
        .open_local(path / "ckpt")
    )


def test_a_function_gets_the_rows_of_every_checkpoint_once(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS) for number in range(3)]
    got: dict[int, list[Any]] = {}

    def keep(rows: pa.Table, checkpoint: int) -> None:
        assert checkpoint not in got
        got[checkpoint] = [tuple(row.values()) for row in rows.to_pylist()]

    with open_with_function(tmp_path, keep) as query:
        run(query, batches[:2])
    with open_with_function(tmp_path, keep) as query:
        run(query, batches[2:], first=2)
    assert sorted(row for rows in got.values() for row in rows) == expected(batches)
    assert list((tmp_path / "ckpt" / "output").glob("*.parquet")) == []


def test_a_function_that_failed_is_called_again_with_the_same_checkpoint(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS) for number in range(2)]
    calls: list[tuple[int, int]] = []

    def fail_at_first(rows: pa.Table, checkpoint: int) -> None:
        calls.append((checkpoint, rows.num_rows))
        if len(calls) == 1:
            raise ConnectionError("the database is away")

    query = open_with_function(tmp_path, fail_at_first)
    with query, pytest.raises(ConnectionError):
        run(query, batches[:1])
    with open_with_function(tmp_path, fail_at_first) as query:
        run(query, batches)
    rows = len(batches[0])
    assert calls == [(2, rows), (2, rows), (3, rows)]


@pytest.mark.parametrize("kind", ["union", "broadcast"])
def test_state_that_regions_share_is_refused_in_a_region_safe_operator(
    tmp_path: Path, kind: str
) -> None:
    class Sharing(RunningCount):
        def open(self, ctx: hf.OperatorContext) -> None:
            super().open(ctx)
            getattr(ctx.state, kind)("shared")

    with (
        pipeline(tmp_path, Sharing()) as query,
        pytest.raises(hf.RegionalQueryError, match=f"region_safe and has {kind} state"),
    ):
        run(query, [rows_of(0, REGIONS)])
    Sharing.region_safe = False
    batches = [rows_of(0, REGIONS)]
    with pipeline(tmp_path, Sharing(), max_consecutive_failures=0) as query:
        run(query, batches)
    assert output_of(tmp_path / "out") == expected(batches)


def test_after_a_failed_publication_nothing_goes_on_before_a_restart(tmp_path: Path) -> None:  # R81
    batches = [rows_of(number, REGIONS) for number in range(3)]
    calls: list[int] = []

    def fail_at_first(rows: pa.Table, checkpoint: int) -> None:
        calls.append(rows.num_rows)
        if len(calls) == 1:
            raise ConnectionError("the database is away")

    with open_with_function(tmp_path, fail_at_first) as query:
        with pytest.raises(ConnectionError):
            run(query, batches[:1])
        for batch in (0, 1):  # neither the same one nor the next
            with pytest.raises(hf.RegionalQueryError, match="start it again"):
                query.run_batch(partitions_of(batches[batch], 3), batch_id=batch)
        # A savepoint would say nothing of the output that is not published.
        with pytest.raises(hf.RegionalQueryError, match="start it again"):
            query.stop_with_savepoint(tmp_path / "saved")
    with open_with_function(tmp_path, fail_at_first) as query:
        run(query, batches)
    assert calls == [len(batches[0])] * 2 + [len(rows) for rows in batches[1:]]


def test_a_schema_that_spark_parses_needs_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(ValueError, match="create a SparkSession first, or give a pyarrow"):
        hf.regional(region_by="region").apply(RunningCount(), schema="id long")
