"""A region whose operators process each row by itself goes on without the rows that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.regions.protocol.orders import TaskOptions
from holdfast.regions.sinks import ParquetSink
from holdfast.regions.task.suspects import Suspects
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    ROWS,
    Row,
    RunningCount,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = [f"r{number:02}" for number in range(3)]
BAD = {0, 1002, 1011, 1040}
RUNS_MAX = TaskOptions().bad_row_runs


class Independent(Troubled):
    row_independent = True


class RunningCountAlone(RunningCount):
    row_independent = True


class Passing(hf.Operator):
    """Puts out the rows as they are; fails at some by itself."""

    region_safe = True
    row_independent = True

    def __init__(self, bad: Sequence[int] = ()) -> None:
        self.bad = frozenset(bad)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        # Some rows come before the error.
        yield batch.slice(0, batch.num_rows // 2)
        if found := self.bad.intersection(batch.column("id").to_pylist()):
            raise ValueError(f"bad: {sorted(found)}")
        yield batch.slice(batch.num_rows // 2)


def opened(
    path: Path, *operators: hf.Operator, sink: hf.TwoPhaseSink | None = None, **options: Any
) -> hf.LocalQuery:
    pipeline = hf.regional(region_by="region")
    for number, operator in enumerate(operators):
        last = number == len(operators) - 1
        schema = COUNTED if last else ROWS
        pipeline = pipeline.apply(operator, schema=schema, name=f"operator{number}")
    letters = ROWS.append(pa.field("reason", pa.string()))
    with_letters = pipeline.side("bad", schema=letters).write_parquet(path / "bad")
    return (
        with_letters.on_bad_row("bad")
        .write_to(sink or ParquetSink(path / "out"))
        .open_local(path / "ckpt", **options)
    )


def run(query: hf.LocalQuery, batches: Sequence[Sequence[Row]], *, first: int = 0) -> None:
    for number, rows in enumerate(batches, start=first):
        query.run_batch(partitions_of(rows, 2), batch_id=number)


def without(batches: Sequence[Sequence[Row]], ids: set[int]) -> list[list[Row]]:
    return [[row for row in rows if row[1] not in ids] for rows in batches]


def letters_of(path: Path) -> dict[int, str]:
    rows = pq.read_table(path / "bad").to_pylist() if list(path.glob("bad/*.parquet")) else []
    assert all(count == 1 for count in Counter(row["id"] for row in rows).values())
    return {row["id"]: row["reason"] for row in rows}


def trouble(hooks: Hooks, bad: set[int]) -> None:
    def fail(region: str, ids: Sequence[int]) -> None:
        if found := bad.intersection(ids):
            raise RuntimeError(f"in trouble with {len(found)}")

    hooks.on_rows = fail


def test_the_rows_that_fail_are_set_aside_and_no_region_falls_back(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(number, REGIONS, each=20) for number in range(3)]
    trouble(hooks, BAD)
    with opened(tmp_path, Independent(hooks)) as query:
        run(query, batches)
        assert {one.outcome for one in query.history()} == {"global"}
        assert not any(one.failed for one in query.history())
    assert letters_of(tmp_path) == dict.fromkeys(BAD, "RuntimeError: in trouble with 1")
    assert output_of(tmp_path / "out") == expected(without(batches, BAD))


def test_a_later_operator_may_be_the_one_that_fails(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS, each=20) for number in range(2)]
    trouble(hooks, {1002})
    with opened(tmp_path, Passing(bad=[11, 1040]), Independent(hooks)) as query:
        run(query, batches)
    assert letters_of(tmp_path) == {
        11: "ValueError: bad: [11]",
        1040: "ValueError: bad: [1040]",
        1002: "RuntimeError: in trouble with 1",
    }
    assert output_of(tmp_path / "out") == expected(without(batches, {11, 1002, 1040}))


def test_rows_that_a_region_owes_are_searched_as_well(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS, each=20) for number in range(3)]
    hooks.fail_for("r00", range(10**9))
    with opened(tmp_path, Troubled(hooks), max_consecutive_failures=100) as query:
        run(query, batches[:2])
        assert query.latest.failed == {"r00": 1}
    trouble(hooks, BAD)
    with opened(tmp_path, Independent(hooks)) as query:
        run(query, batches[2:], first=2)
        assert query.latest.is_global
    found = letters_of(tmp_path)
    assert found.keys() == {id for id in BAD if id % 10 == 0}
    assert output_of(tmp_path / "out") == expected(without(batches, set(found)))


def test_a_region_of_which_every_row_fails_falls_back(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS, each=2 * RUNS_MAX) for number in range(2)]
    hooks.fail_for("r00", range(1000))
    with opened(tmp_path, Independent(hooks)) as query:
        run(query, batches)
        assert query.history()[1].failed[0].cause == "RuntimeError: r00 is in trouble"
        assert not letters_of(tmp_path)
        hooks.calm()
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)


class Full(ParquetSink):
    """Has no space left for rows of a region, as long as a file is there."""

    def __init__(self, path: Path, mark: Path) -> None:
        super().__init__(path, per_region=True)
        object.__setattr__(self, "mark", mark)

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Any:
        stage = super().writer(region, attempt, schema)
        if region == "r00" and self.mark.exists():
            stage.write = self.refuse
        return stage

    @staticmethod
    def refuse(rows: pa.RecordBatch) -> None:
        raise OSError("no space left")


def test_an_error_of_a_sink_is_the_fault_of_no_row(tmp_path: Path) -> None:
    batches = [rows_of(0, REGIONS, each=20)]
    mark = tmp_path / "mark"
    mark.touch()
    sink = Full(tmp_path / "out", mark)
    with opened(tmp_path, Passing(), RunningCountAlone(), sink=sink) as query:
        run(query, batches)
        assert query.latest.failed == {"r00": 1}
        mark.unlink()
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)
    assert not letters_of(tmp_path)


@pytest.mark.parametrize("how", ["no side output", "not declared by all"])
def test_without_on_bad_row_or_the_word_of_all_operators_a_region_falls_back(
    tmp_path: Path, hooks: Hooks, how: str
) -> None:
    batches = [rows_of(number, REGIONS, each=20) for number in range(1)]
    trouble(hooks, {0})
    if how == "no side output":
        chain = hf.regional(region_by="region").apply(Independent(hooks), schema=COUNTED)
        query = chain.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt")
    else:
        query = opened(tmp_path, Passing(), Troubled(hooks))
    with query:
        run(query, batches)
        assert query.latest.failed == {"r00": 1}


def test_each_run_halves_the_rows_in_question() -> None:
    for rows in (1, 2, 1000, 16_384):
        for bad in {0, rows // 3, rows - 1}:
            found, runs, begin = Suspects(RUNS_MAX), 0, 0
            while bad not in found.bad:
                begin = 0
                while begin < rows:
                    end = min(begin + (found.room(begin) or rows), rows)
                    if begin <= bad < end:
                        break
                    begin = end
                assert found.failed(begin, end, "bad")
                runs += 1
            assert runs <= (rows - 1).bit_length() + 1


def test_the_bound_ends_the_search() -> None:
    found = Suspects(2)
    assert found.failed(0, 4, "bad")
    assert not found.failed(0, 2, "bad")
