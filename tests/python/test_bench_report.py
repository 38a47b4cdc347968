from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark.groupby_count import Plan, Run

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def make_run(provider: str, round_number: int, batch_ms: tuple[int, ...], files: int) -> Run:
    from spark.groupby_count import Run

    from holdfast.demo.figures import BatchFigures, RunFigures
    from holdfast.demo.objects import StateObjects

    batches = tuple(
        BatchFigures(
            batch_id=n, input_rows=10, batch_ms=ms, commit_ms=ms, updates_ms=0, state_rows=20
        )
        for n, ms in enumerate(batch_ms)
    )
    objects = StateObjects(files=files, files_bytes=1024, crc_files=0, crc_bytes=0)
    figures = RunFigures(query="q", provider=provider, batches=batches, objects=objects)
    return Run(round_number=round_number, load=0.0, figures=figures)


def test_ratios_are_taken_within_a_round_and_batch_0_is_dropped() -> None:
    from spark import report

    # The machine is ten times slower in round 1; the ratio within each round is 1/2.
    runs = [
        make_run("rocksdb-changelog", 0, (9999, 100, 100), files=600),
        make_run("holdfast", 0, (9999, 50, 50), files=3),
        make_run("holdfast", 1, (9999, 500, 500), files=3),
        make_run("rocksdb-changelog", 1, (9999, 1000, 1000), files=600),
    ]
    by_title = {metric.title: metric for metric in report.METRICS}
    base, ours = report.lines(runs, by_title["batch time, ms"])
    assert base.ratio is not None
    assert ours.ratio is not None
    assert (base.ratio.low, base.ratio.high) == (1, 1)
    assert (ours.ratio.low, ours.ratio.high) == (0.5, 0.5)
    assert (ours.spread.low, ours.spread.high) == (50, 500)
    _, objects = report.lines(runs, by_title["objects per batch"])
    assert objects.spread.median == 1
    # Nothing divided by nothing is no ratio.
    assert report.lines(runs, by_title["allUpdatesTimeMs, summed"])[1].ratio is None


def test_every_provider_runs_once_in_a_round_and_takes_every_place(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    orders = [plan.order(number) for number in range(4)]
    assert all(sorted(order) == sorted(plan.providers) for order in orders)
    assert all(len(set(place)) == 4 for place in zip(*orders, strict=True))


def test_a_run_that_lost_keys_is_an_error(tmp_path: Path) -> None:
    from spark.groupby_count import WrongStateError, check_state

    plan = make_plan(tmp_path)
    check_state(plan, make_run("spark", 0, (1, 1), files=1).figures)
    with pytest.raises(WrongStateError, match="expected 2 batches and 20 keys"):
        check_state(plan, make_run("spark", 0, (1, 1, 1), files=1).figures)


def test_the_input_holds_every_key_once_before_it_repeats_one(tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from spark.groupby_count import write_input

    keys = pq.read_table(write_input(make_plan(tmp_path))).column("key").to_pylist()
    assert len(keys) == len(set(keys)) == 20


def make_plan(folder: Path) -> Plan:
    from spark.groupby_count import ALL_PROVIDERS, Plan

    return Plan(
        folder=folder,
        providers=ALL_PROVIDERS,
        rounds=4,
        batches=2,
        rows=10,
        keys=1000,
        partitions=2,
        driver_memory="1g",
    )
