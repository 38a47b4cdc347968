"""Side outputs: rows that operators emit beside their own, published with the same checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import holdfast as hf
from holdfast.regions.sinks.publisher import Publishers
from support.regional.hooks import Hooks
from support.regional.own_sink import SqliteSink, rows_in
from support.regional.pipelines import (
    COUNTED,
    ROWS,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r00", "r01", "r02", "r03"]
BATCHES = [rows_of(number, REGIONS) for number in range(4)]
EVEN = [(region, row_id) for rows in BATCHES for region, row_id, _ in rows if row_id % 2 == 0]
IDS = pa.schema([("region", pa.string()), ("id", pa.int64())])


class Emits(Troubled):
    """Emits the region and the id of rows with an even id, before it counts or fails."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        even = batch.filter(pc.equal(pc.bit_wise_and(batch["id"], 1), 0))
        self.ctx.emit("even", even.select(["region", "id"]))
        yield from super().process(batch)


Write = Callable[[Any], hf.RegionalPipeline]


def pipeline_of(
    write: Write | None, path: Path, hooks: Hooks | None = None, *, schema: Any = IDS
) -> hf.RegionalWriter:
    pipeline = hf.regional(region_by="region").apply(Emits(hooks), schema=COUNTED, name="count")
    if write is not None:
        pipeline = write(pipeline.side("even", schema=schema))
    return pipeline.write_parquet(path / "out")


def to_parquet(folder: Path) -> Write:
    return lambda side: side.write_parquet(folder)


def run(query: hf.LocalQuery, count: int, *, first: int = 0) -> None:
    for number in range(first, count):
        query.run_batch(partitions_of(BATCHES[number], 2), batch_id=number)


def even(count: int) -> list[tuple[str, int]]:
    ids = {row[1] for rows in BATCHES[:count] for row in rows}
    return sorted(row for row in EVEN if row[1] in ids)


def test_emitted_rows_are_published_once_with_the_main_output(tmp_path: Path) -> None:
    write = to_parquet(tmp_path / "even")
    for first, end in [(0, 2), (2, 4)]:
        with pipeline_of(write, tmp_path).open_local(tmp_path / "ckpt") as query:
            run(query, end, first=first)
    assert output_of(tmp_path / "even") == sorted(EVEN)
    assert output_of(tmp_path / "out") == expected(BATCHES)


def test_rows_that_a_failed_region_emitted_come_once_and_later(
    tmp_path: Path, hooks: Hooks
) -> None:
    hooks.fail_for("r01", range(1000, 2000))
    writer = pipeline_of(to_parquet(tmp_path / "even"), tmp_path, hooks)
    with writer.open_local(tmp_path / "ckpt", max_consecutive_failures=9) as query:
        run(query, 2)
        assert set(query.latest.failed) == {"r01"}
        seen = output_of(tmp_path / "even")
        assert seen == [row for row in even(2) if row[0] != "r01" or row[1] < 1000]
        hooks.calm()
        run(query, 4, first=2)
    assert output_of(tmp_path / "even") == sorted(EVEN)
    assert output_of(tmp_path / "out") == expected(BATCHES)


class EmitsAgain(hf.Operator):
    """Emits the region and the id of every row, and passes the rows on."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.ctx.emit("all", batch.select(["region", "id"]))
        return batch


def test_emitted_rows_belong_to_the_state_also_when_barriers_overtake_rows(tmp_path: Path) -> None:
    writer = (
        hf.regional(region_by="region")
        .apply(Emits(), schema=COUNTED, name="first")
        .apply(EmitsAgain(), schema=COUNTED, name="second")
        .side("even", schema=IDS)
        .write_parquet(tmp_path / "even")
        .side("all", schema=IDS)
        .write_parquet(tmp_path / "all")
        .write_parquet(tmp_path / "out")
    )
    owed = 0
    for number in range(4):
        with writer.open_local(tmp_path / "ckpt", aligned_timeout=timedelta(0)) as query:
            query.run_batch(partitions_of(BATCHES[number], 2, slices=10), batch_id=number)
            owed += sum(entry.in_flight_bytes for entry in query.latest.regions.values())
            if number == 3:
                query.finish()
    assert owed > 0
    assert output_of(tmp_path / "even") == sorted(EVEN)
    assert len(output_of(tmp_path / "all")) == len(expected(BATCHES))
    assert output_of(tmp_path / "out") == expected(BATCHES)


# --- other destinations ---------------------------------------------------------------------------


def test_a_side_output_goes_to_any_sink(tmp_path: Path) -> None:
    given: list[tuple[str, int]] = []

    def take(rows: pa.Table, checkpoint: hf.CheckpointId) -> None:
        given.extend(tuple(row.values()) for row in rows.to_pylist())

    def all_of(pipeline: hf.RegionalPipeline) -> hf.RegionalPipeline:
        pipeline = pipeline.side("function", schema=IDS).foreach_batch(take)
        pipeline = pipeline.side("delta", schema=IDS).write_delta(tmp_path / "delta")
        return pipeline.side("own", schema=COUNTED).write_to(SqliteSink(tmp_path / "out.db"))

    class ToAll(Emits):
        def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            ids = batch.select(["region", "id"])
            self.ctx.emit("function", ids)
            self.ctx.emit("delta", ids)
            for rows in super(Emits, self).process(batch):
                self.ctx.emit("own", rows)
                yield rows

    pipeline = hf.regional(region_by="region").apply(ToAll(), schema=COUNTED)
    writer = all_of(pipeline).foreach_batch(lambda rows, checkpoint: None)
    for first, end in [(0, 2), (2, 4)]:
        with writer.open_local(tmp_path / "ckpt") as query:
            run(query, end, first=first)
    ids = sorted((region, row_id) for rows in BATCHES for region, row_id, _ in rows)
    assert sorted(given) == ids
    table = DeltaTable(tmp_path / "delta").to_pyarrow_table().to_pylist()
    assert sorted(tuple(row.values()) for row in table) == ids
    assert rows_in(tmp_path / "out.db") == expected(BATCHES)


def test_two_outputs_of_a_pipeline_have_a_place_each(tmp_path: Path) -> None:
    writer = pipeline_of(to_parquet(tmp_path / "out"), tmp_path)
    with pytest.raises(ValueError, match="the main output and side output 'even' both write to"):
        writer.open_local(tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


def test_the_folder_of_a_side_output_belongs_to_one_pipeline(tmp_path: Path) -> None:
    write = to_parquet(tmp_path / "even")
    with pipeline_of(write, tmp_path / "a").open_local(tmp_path / "a" / "ckpt") as query:
        run(query, 1)
    with pytest.raises(FileExistsError, match="the folder belongs to pipeline"):
        pipeline_of(write, tmp_path / "b").open_local(tmp_path / "b" / "ckpt")


# --- going back, going on, leaving out ------------------------------------------------------------


def test_going_back_withdraws_the_rows_of_side_outputs_too(tmp_path: Path) -> None:
    writer = pipeline_of(to_parquet(tmp_path / "even"), tmp_path)
    with writer.open_local(tmp_path / "ckpt", num_retained=9) as query:
        run(query, 4)
        ids = query.latest.id
    with writer.open_local(tmp_path / "ckpt", num_retained=9, checkpoint_id=ids - 2) as query:
        assert output_of(tmp_path / "even") == even(2)
        run(query, 4, first=2)
    assert output_of(tmp_path / "even") == sorted(EVEN)


def unpublished(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves a pipeline whose latest checkpoint was not published."""

    def dies(*_: object) -> None:
        raise OSError("out of reach")

    with pipeline_of(write, tmp_path).open_local(tmp_path / "ckpt") as query:
        run(query, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Publishers, "commit", dies)
            with pytest.raises(OSError, match="out of reach"):
                run(query, 2, first=1)


def test_a_side_output_is_left_out_once_its_rows_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = to_parquet(tmp_path / "even")
    unpublished(tmp_path, write, monkeypatch)
    without = (
        hf.regional(region_by="region")
        .apply(Troubled(), schema=COUNTED, name="count")
        .write_parquet(tmp_path / "out")
    )
    advice = re.escape("start it once more with .side('even', ...), which publishes them")
    with pytest.raises(ValueError, match=advice):
        without.open_local(tmp_path / "ckpt")
    with pipeline_of(write, tmp_path).open_local(tmp_path / "ckpt"):
        assert output_of(tmp_path / "even") == even(2)
    with without.open_local(tmp_path / "ckpt") as query:
        run(query, 4, first=2)
    assert output_of(tmp_path / "even") == even(2)
    assert output_of(tmp_path / "out") == expected(BATCHES)


def test_a_function_of_a_side_output_is_left_out_once_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    unpublished(
        tmp_path,
        lambda side: side.foreach_batch(lambda rows, checkpoint: given.append(rows.num_rows)),
        monkeypatch,
    )
    with pytest.raises(ValueError, match="has rows for the side output 'even'"):
        pipeline_of(None, tmp_path).open_local(tmp_path / "ckpt")
    write: Write = lambda side: side.foreach_batch(  # noqa: E731
        lambda rows, checkpoint: given.append(rows.num_rows)
    )
    with pipeline_of(write, tmp_path).open_local(tmp_path / "ckpt"):
        assert sum(given) == len(even(2))
    with pipeline_of(None, tmp_path).open_local(tmp_path / "ckpt"):
        pass


@pytest.mark.parametrize("mode", ["claim", "no_claim"])
def test_a_pipeline_that_begins_from_another_publishes_its_side_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    write = to_parquet(tmp_path / "even")
    unpublished(tmp_path, write, monkeypatch)
    restore = hf.restore(tmp_path / "ckpt", mode=mode)
    elsewhere = pipeline_of(to_parquet(tmp_path / "other"), tmp_path)
    with pytest.raises(ValueError, match=r"has not published \d files? of"):
        elsewhere.open_local(tmp_path / "ckpt-2", restore=restore)
    with pipeline_of(write, tmp_path).open_local(tmp_path / "ckpt-2", restore=restore) as query:
        assert output_of(tmp_path / "even") == even(2)
        run(query, 4, first=2)
    assert output_of(tmp_path / "even") == sorted(EVEN)
    assert output_of(tmp_path / "out") == expected(BATCHES)


def test_the_next_pipeline_may_write_a_side_output_elsewhere_once_all_is_published(
    tmp_path: Path,
) -> None:
    with pipeline_of(to_parquet(tmp_path / "even"), tmp_path).open_local(tmp_path / "a") as query:
        run(query, 2)
    writer = pipeline_of(to_parquet(tmp_path / "other"), tmp_path)
    with writer.open_local(tmp_path / "b", restore=hf.restore(tmp_path / "a")) as query:
        run(query, 4, first=2)
    assert output_of(tmp_path / "other") == sorted(set(EVEN) - set(even(2)))


# --- errors of operators --------------------------------------------------------------------------


class Calls(hf.Operator):
    """Calls a function with its context where it is told to."""

    region_safe = True

    def __init__(self, call: Callable[[hf.OperatorContext, pa.RecordBatch | None], Any]) -> None:
        self.call = call

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.call(self.ctx, batch)
        return batch

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        NOTICED.append(self.ctx)


NOTICED: list[hf.OperatorContext] = []


def outcome(call: Callable[[Any, Any], Any], tmp_path: Path, *, bad_rows: bool = False) -> None:
    pipeline = hf.regional(region_by="region").apply(Calls(call), schema=ROWS)
    bad = pa.schema([*ROWS, ("reason", pa.string())])
    pipeline = pipeline.side("bad", schema=bad).write_parquet(tmp_path / "bad")
    if bad_rows:
        pipeline = pipeline.on_bad_row("bad")
    writer = pipeline.write_parquet(tmp_path / "out")
    with writer.open_local(tmp_path / "ckpt", tolerable_failed_checkpoints=0) as query:
        run(query, 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda ctx, batch: ctx.emit("lost", batch),
            r"emit\('lost', ...\): the pipeline has no such side output \(declared: bad\)",
        ),
        (lambda ctx, batch: ctx.emit("bad", batch), "rows do not fit the side output 'bad': the"),
        (lambda ctx, batch: ctx.emit("bad", [1]), "takes a pyarrow.RecordBatch or pyarrow.Table"),
        (lambda ctx, batch: ctx.reject(batch, "odd"), "the pipeline has no on_bad_row"),
        (lambda ctx, batch: ctx.reject(batch, ["odd"]), "got 1 reasons for 5 rows"),
    ],
)
def test_rows_that_no_side_output_takes_make_the_region_fail(
    tmp_path: Path, call: Callable[[Any, Any], Any], error: str
) -> None:
    with pytest.raises(hf.RegionalQueryError, match=error):
        outcome(call, tmp_path)


def test_an_operator_emits_only_while_it_is_at_work(tmp_path: Path) -> None:
    NOTICED.clear()
    outcome(lambda ctx, batch: None, tmp_path)
    with pytest.raises(RuntimeError, match="allowed in process"):
        NOTICED[0].emit("bad", pa.RecordBatch.from_pydict({}))


def test_rejected_rows_go_to_their_side_output_with_the_reason(tmp_path: Path) -> None:
    def reject(ctx: hf.OperatorContext, batch: pa.RecordBatch) -> None:
        ids: Sequence[int] = batch["id"].to_pylist()
        ctx.reject(batch, [f"id {row_id}" for row_id in ids])
        ctx.reject(pa.Table.from_batches([batch.slice(0, 1)]), "first")
        ctx.reject(batch.slice(0, 0), "none")

    outcome(reject, tmp_path, bad_rows=True)
    found = [pq.read_table(file).to_pylist() for file in (tmp_path / "bad").glob("*.parquet")]
    rows = [row for of_file in found for row in of_file]
    assert sorted(row["id"] for row in rows if row["reason"] == f"id {row['id']}") == sorted(
        row_id for batch in BATCHES[:2] for _, row_id, _ in batch
    )
    assert sum(row["reason"] == "first" for row in rows) >= len(REGIONS)


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "1st", "a/b", "x" * 65, None])
def test_the_name_of_a_side_output_is_checked(name: Any) -> None:
    with pytest.raises(ValueError, match="a side output cannot be named"):
        hf.regional(region_by="region").side(name, schema=IDS)


def test_a_side_output_is_declared_once_and_before_bad_rows_go_there(tmp_path: Path) -> None:
    pipeline = hf.regional(region_by="region").apply(Emits(), schema=COUNTED)
    with pytest.raises(ValueError, match=r"there is no such side output \(declared: none\)"):
        pipeline.on_bad_row("even")
    pipeline = pipeline.side("even", schema=IDS).write_parquet(tmp_path / "even")
    with pytest.raises(ValueError, match="has a side output 'even' already"):
        pipeline.side("even", schema=IDS)
    with pytest.raises(ValueError, match="needs a column 'reason' of strings"):
        pipeline.on_bad_row("even")
    with pytest.raises(ValueError, match="the pipeline has no sink"):
        pipeline.start("ckpt")
