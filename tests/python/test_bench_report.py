from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from common.rounds import Run
    from spark.measure import Plan

    from harness.figures import BatchFigures

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def make_run(provider: str, round_number: int, *batch_ms: float) -> Run:
    from common.rounds import Run

    return Run(
        provider=provider, round_number=round_number, load=0.0, values={"batch_ms": batch_ms}
    )


def test_ratios_are_taken_within_a_round() -> None:
    from common import report
    from spark.cases import BATCH

    # The machine is ten times slower in round 1; the ratio within each round is 1/2.
    runs = [
        make_run("rocksdb-changelog", 0, 100, 100),
        make_run("holdfast", 0, 50, 50),
        make_run("holdfast", 1, 500, 500),
        make_run("rocksdb-changelog", 1, 1000, 1000),
    ]
    base, ours = report.lines(runs, BATCH, report.BASES)
    assert base.ratios["rocksdb-changelog"] is not None
    assert ours.ratios["rocksdb-changelog"] is not None
    assert ours.ratios["rocksdb-changelog"].low == ours.ratios["rocksdb-changelog"].high == 0.5
    assert base.ratios["rocksdb-changelog"].median == 1
    assert (ours.spread.low, ours.spread.high) == (50, 500)
    # No run to divide by.
    assert ours.ratios["spark"] is None


@pytest.mark.parametrize(
    ("others", "columns"),
    [
        (["rocksdb"], ["of RocksDB"]),
        (
            ["spark", "rocksdb", "rocksdb-changelog"],
            ["of RocksDB, changelog", "of RocksDB", "of Spark default"],
        ),
    ],
    ids=["one", "all"],
)
def test_the_table_has_ratios_to_every_configuration_that_was_measured(
    others: list[str], columns: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from common import report
    from spark.cases import BATCH

    from harness.screen import Screen

    runs = [make_run(provider, 0, 100) for provider in others] + [make_run("holdfast", 0, 50)]
    result = report.Result(
        name="case", plan={}, metrics=[BATCH], targets=[], runs=runs, notes="The notes."
    )
    report.show(result, screen=Screen())
    _, header, *rows = capsys.readouterr().out.split("\n")
    assert re.split("  +", header.strip()) == ["metric", "provider", "median", "min..max", *columns]
    assert re.split("  +", rows[len(others)].strip())[-len(columns) :] == (
        ["0.500 (0.500..0.500)"] * len(columns)
    )


def test_nothing_divided_by_nothing_is_no_ratio() -> None:
    from common.rounds import ratio

    runs = [make_run("spark", 0, 0), make_run("holdfast", 0, 0)]
    assert ratio(runs, "batch_ms", "holdfast", "spark") is None


def test_a_target_is_met_at_its_bound_and_missed_above() -> None:
    from common.targets import Target, judge
    from spark.cases import BATCH

    runs = [make_run("spark", 0, 100), make_run("holdfast", 0, 60)]
    targets = [
        Target(metric=BATCH, at_most=0.6, to="spark"),
        Target(metric=BATCH, at_most=0.59, to="spark"),
        Target(metric=BATCH, at_most=60),
        Target(metric=BATCH, at_most=59),
        Target(metric=BATCH, at_most=1, to="rocksdb"),
    ]
    verdicts = judge("case", targets, runs)
    assert [verdict.met for verdict in verdicts] == [True, False, True, False]
    assert verdicts[1].cells() == [
        *("case", "batch time, ms, of Spark default", "0.590", "0.600", "0.600..0.600", "missed")
    ]


def test_every_provider_runs_once_in_a_round_and_takes_every_place() -> None:
    from common.rounds import ALL_PROVIDERS, in_rounds

    runs = list(in_rounds(ALL_PROVIDERS, 4, make_run))
    orders = [[run.provider for run in runs if run.round_number == number] for number in range(4)]
    assert all(sorted(order) == sorted(ALL_PROVIDERS) for order in orders)
    assert all(len(set(place)) == 4 for place in zip(*orders, strict=True))


@pytest.mark.parametrize(("warm_up", "left"), [(1, [80, 50, 70]), (2, [50, 70])])
def test_the_warm_up_is_dropped_from_the_times(warm_up: int, left: list[int]) -> None:
    from spark.measure import figures

    assert list(figures(make_batches(9999, 80, 50, 70), warm_up=warm_up)["batch_ms"]) == left


def test_a_run_that_lost_keys_is_an_error(tmp_path: Path) -> None:
    from common.rounds import WrongStateError
    from spark.measure import check_state

    plan = make_plan(tmp_path)
    check_state(plan, "spark", make_batches(1, 1))
    with pytest.raises(WrongStateError, match="expected 2 batches and 20 rows"):
        check_state(plan, "spark", make_batches(1, 1, 1))


@pytest.mark.parametrize("name", ["groupby-count", "drop-duplicates", "inner-join"])
def test_the_input_holds_every_key_once_before_it_repeats_one(tmp_path: Path, name: str) -> None:
    import pyarrow.parquet as pq
    from spark.queries import QUERIES, write_input

    query = QUERIES[name]
    write_input(tmp_path, query, batches=2, rows=10, keys=1000)
    for table in query.tables:
        keys = pq.read_table(tmp_path / table).column("key").to_pylist()
        assert len(keys) == len(set(keys)) == 20 // len(query.tables)


def make_batches(*batch_ms: int) -> list[BatchFigures]:
    from harness.figures import BatchFigures

    return [
        BatchFigures(
            batch_id=n, input_rows=10, batch_ms=ms, commit_ms=ms, updates_ms=0, state_rows=20
        )
        for n, ms in enumerate(batch_ms)
    ]


def make_plan(folder: Path) -> Plan:
    from spark.cases import Case
    from spark.measure import Plan
    from spark.queries import QUERIES

    return Plan(
        case=Case(query=QUERIES["groupby-count"], partitions=2, targets=(), rows=10, keys=1000),
        folder=folder,
        providers=("spark", "holdfast"),
        rounds=1,
        batches=2,
        warm_up=1,
        driver_memory="1g",
        jfr=None,
    )
