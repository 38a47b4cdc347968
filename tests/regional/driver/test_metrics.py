"""What operators count: ``ctx.metrics``, and how the driver adds it up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.coordinator import FailedRegion, HistoryRecord, Outcome
from holdfast.regions.driver import metrics
from holdfast.regions.driver.metrics import GaugeMetrics, MetricsLog
from holdfast.regions.protocol.figures import (
    GaugeFigures,
    OperatorFigures,
    encode,
)
from holdfast.regions.task.metrics import MAX_METRICS, Meter, MetricGroup
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import COUNTED, ROWS, RunningCount, partitions_of, rows_of

REGIONS = [f"r{number:02}" for number in range(3)]
EACH = 5


class Counting(Hooked, RunningCount):
    """Counts rows with its own counter before it takes them in, and shows the largest id."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.seen = ctx.metrics.counter("seen")
        self.largest = ctx.metrics.gauge("largest_id")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ids = batch.column("id").to_pylist()
        self.seen.inc(len(ids))
        self.largest.set(max(ids))
        self.before(batch)
        yield from super().process(batch)


class Halving(hf.Operator):
    """Puts out every other row, in two batches; it has no metrics of its own."""

    region_safe = True

    def process(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        half = batch.take(list(range(0, batch.num_rows, 2)))
        return [half.slice(0, 1), half.slice(1)]


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


def pipeline(path: Path, operator: hf.Operator, **options: Any) -> hf.LocalQuery:
    given = {"max_consecutive_failures": 10, **options}
    return (
        hf.regional(region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **given)
    )


def run(query: hf.LocalQuery, *numbers: int) -> None:
    for number in numbers:
        query.run_batch(partitions_of(rows_of(number, REGIONS, each=EACH), 2))


# --- what an operator has -------------------------------------------------------------------------


def test_a_name_gives_the_same_metric_each_time() -> None:
    group = MetricGroup()
    assert group.counter("rows") is group.counter("rows")
    assert group.gauge("depth") is group.gauge("depth")
    assert group.counter("other") is not group.counter("rows")


@pytest.mark.parametrize(
    "name", ["", "1st", "late rows", "a.b", "a/b", "_x", "ä", "x\n", "a" * 65, "a{b}"]
)
def test_a_name_that_no_metric_can_have_is_refused(name: str) -> None:
    group = MetricGroup()
    for metric in (group.counter, group.gauge):
        with pytest.raises(ValueError, match="up to 64 letters, digits"):
            metric(name)


@pytest.mark.parametrize("name", [None, 3, b"rows", ["rows"]])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(TypeError, match="expected the name of a metric"):
        MetricGroup().counter(name)


def test_one_name_is_not_two_kinds_of_metric() -> None:
    group = MetricGroup()
    group.counter("rows")
    with pytest.raises(ValueError, match="'rows' is a counter already"):
        group.gauge("rows")
    group.gauge("depth")
    with pytest.raises(ValueError, match="'depth' is a gauge already"):
        group.counter("depth")


def test_names_made_from_data_meet_a_bound() -> None:
    group = MetricGroup()
    for number in range(MAX_METRICS):
        (group.gauge if number % 2 else group.counter)(f"m{number}")
    with pytest.raises(ValueError, match="an operator may have 64"):
        group.counter("one-more")
    assert group.counter("m0") is group.counter("m0"), "those that are there can be asked for"


@pytest.mark.parametrize(("n", "error"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_a_counter_only_rises_by_integers(n: Any, error: type[Exception]) -> None:
    meter = Meter()
    counter = meter.own.counter("rows")
    with pytest.raises(error):
        counter.inc(n)
    counter.inc()
    counter.inc(0)
    counter.inc(np.int64(4))
    assert meter.take().counters == {"rows": 5}


@pytest.mark.parametrize(
    ("value", "error"),
    [(float("nan"), ValueError), (float("inf"), ValueError), ("3", TypeError), (None, TypeError)],
)
def test_a_gauge_is_a_finite_number(value: Any, error: type[Exception]) -> None:
    meter = Meter()
    gauge = meter.own.gauge("depth")
    with pytest.raises(error):
        gauge.set(value)
    assert meter.take().gauges == {}, "no value is none, and not 0"
    gauge.set(np.float32(2.5))
    assert meter.take().gauges == {"depth": GaugeFigures.of(2.5)}


def test_what_was_reported_is_not_reported_again_but_gauges_stay() -> None:
    meter = Meter()
    meter.own.counter("rows").inc(3)
    meter.own.gauge("depth").set(1)
    meter.rows_in, meter.busy_ns = 10, 20
    first = meter.take()
    assert first == OperatorFigures(10, 0, 20, {"rows": 3}, {"depth": GaugeFigures.of(1.0)})
    meter.rows_in += 1
    assert meter.take() == OperatorFigures(1, 0, 0, {"rows": 0}, first.gauges)


def test_threads_count_together_and_nothing_is_lost_to_a_report() -> None:
    meter = Meter()
    taken = 0
    each, threads = 5_000, 4

    def count() -> None:
        for _ in range(each):
            meter.own.counter("rows").inc()

    workers = [threading.Thread(target=count) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        taken += meter.take().counters.get("rows", 0)
    for worker in workers:
        worker.join()
    assert taken + meter.take().counters["rows"] == each * threads


# --- on the wire ----------------------------------------------------------------------------------

FIGURES = [
    OperatorFigures(1, 2, 3),
    OperatorFigures(4, 0, 2**60, {"a": 7, "b": 0}, {"g": GaugeFigures(-1.5, 2.0, 0.5, 2)}),
]


def test_figures_travel_and_are_added_up(tmp_path: Path) -> None:
    log = MetricsLog(["a", "b"])
    for region in ("r0", "r1", "r0"):
        log.add(region, encode(FIGURES))
    log.add("r1", encode([OperatorFigures(10), OperatorFigures(counters={"c": 2**63 - 1})]))
    log.ended(record(1))
    found = log.snapshot(empty_checkpoint(tmp_path))
    a, b = found.operators.values()
    assert (a.rows_in, a.rows_out, a.busy_ms, a.counters) == (13, 6, 9e-6, {})
    assert (b.rows_in, b.rows_out, b.busy_ms) == (12, 0, 3 * 2**60 / 1e6)
    assert b.counters == {"a": 21, "b": 0, "c": 2**63 - 1}
    assert b.gauges == {"g": GaugeMetrics(min=-1.5, max=2.0, mean=0.25)}
    assert found.regions["r0"].operators["b"].counters == {"a": 14, "b": 0}


def test_a_counter_that_is_too_large_stays_at_the_largest_number() -> None:
    meter = Meter()
    meter.own.counter("rows").inc(2**200)
    log = MetricsLog(["a"])
    log.add("r0", encode([meter.take()]))
    log.ended(record(1))
    assert log.sums()["operator.a.counter.rows"] == 2**63 - 1


@pytest.mark.parametrize("figures", [FIGURES, FIGURES[:1] * 2])
def test_figures_that_are_cut_are_refused(figures: Sequence[OperatorFigures]) -> None:
    whole = encode(figures)
    for length in range(1, len(whole)):
        log = MetricsLog(["a", "b"])
        with pytest.raises(ValueError, match="figures"):
            log.add("r0", whole[:length])
    log = MetricsLog(["a", "b"])
    log.add("r0", whole)
    log.ended(record(1))


def test_figures_of_parallel_instances_are_added() -> None:
    both = OperatorFigures()
    both.add(FIGURES[1])
    both.add(OperatorFigures(1, 1, 1, {"a": 1, "c": 2}, {"g": GaugeFigures.of(9.0)}))
    assert both == OperatorFigures(
        5, 1, 2**60 + 1, {"a": 8, "b": 0, "c": 2}, {"g": GaugeFigures(-1.5, 9.0, 9.5, 3)}
    )


# --- in a pipeline --------------------------------------------------------------------------------


def test_a_pipeline_shows_what_each_operator_did_in_each_region(tmp_path: Path) -> None:
    with (
        hf.regional(region_by="region")
        .apply(Halving(), schema=ROWS, name="halve")
        .apply(Counting(), schema=COUNTED, name="count", parallelism=2, route_by="key")
        .write_parquet(tmp_path / "out")
        .open_local(tmp_path / "ckpt") as query
    ):
        run(query, 0, 1)
        found = query.metrics()
    # Of ten rows of a region in two batches, six come through.
    rows, kept = len(REGIONS) * 2 * EACH, len(REGIONS) * 2 * 3
    assert list(found.operators) == ["halve", "count"]
    halve, count = found.operators.values()
    assert (halve.rows_in, halve.rows_out, halve.counters) == (rows, kept, {})
    assert (count.rows_in, count.rows_out, count.counters) == (kept, kept, {"seen": kept})
    assert halve.busy_ms > 0
    assert count.busy_ms > 0
    assert sorted(found.regions) == REGIONS
    assert found.unnamed == 0
    for region in found.regions.values():
        assert region.operators["halve"].rows_in == 2 * EACH
        assert region.operators["count"].counters == {"seen": 6}
        assert region.failures == region.in_flight_rows == 0
        assert region.state_bytes["count"] > 0
    assert found.state_bytes["count"] == sum(
        region.state_bytes["count"] for region in found.regions.values()
    )
    assert found.last_operators["count"].rows_in == kept // 2
    assert found.attempts == {"global": 3, "regional": 0, "aborted": 0}
    assert found.checkpoint == found.last_attempt == 3
    largest = max(row_id for _, row_id, _ in rows_of(1, REGIONS, each=EACH))
    assert found.operators["count"].gauges["largest_id"].max == largest
    json.dumps(asdict(found))


def test_counters_count_work_so_rows_that_come_again_count_again(
    tmp_path: Path, hooks: Hooks
) -> None:
    with pipeline(tmp_path, Counting(hooks)) as query:
        run(query, 0)
        hooks.fail_for("r01", range(1000, 2000))
        run(query, 1)
        failed = query.metrics()
        hooks.calm()
        run(query, 2)
        healed = query.metrics()
        again = rows_of(1, REGIONS, each=EACH)
    counted = {
        region: figures.operators["count"].counters["seen"]
        for region, figures in failed.regions.items()
    }
    # What it counted before it failed is there, although no checkpoint has those rows.
    assert counted == dict.fromkeys(REGIONS, 2 * EACH)
    assert failed.regions["r01"].failures == failed.failures == 1
    assert failed.regions["r01"].in_flight_rows == failed.in_flight_rows == EACH
    assert failed.attempts == {"global": 2, "regional": 1, "aborted": 0}
    assert failed.operators["count"].rows_out == 5 * EACH
    # Then they come again.
    assert healed.regions["r01"].operators["count"].counters == {"seen": 4 * EACH}
    assert healed.regions["r00"].operators["count"].counters == {"seen": 3 * EACH}
    assert healed.last_operators["count"].rows_in == 3 * EACH + len(again) // len(REGIONS)
    assert healed.in_flight_rows == 0
    assert healed.failures == 1


def test_an_aborted_attempt_is_in_the_totals_and_in_no_checkpoint(
    tmp_path: Path, hooks: Hooks
) -> None:
    def fail_once(region: str, ids: Sequence[int]) -> None:
        if region == "r01":
            hooks.calm()
            raise RuntimeError("once")

    with pipeline(
        tmp_path, Counting(hooks), max_consecutive_failures=0, tolerable_failed_checkpoints=1
    ) as query:
        hooks.on_rows = fail_once
        run(query, 0)
        found = query.metrics()
    assert found.attempts == {"global": 2, "regional": 0, "aborted": 1}
    assert found.last_operators["count"].counters == {"seen": 3 * EACH}
    assert found.operators["count"].counters["seen"] > 3 * EACH
    assert found.regions["r01"].operators["count"].counters == {"seen": 2 * EACH}
    assert found.failures >= 1


def test_a_restart_begins_at_zero_but_knows_the_size_of_the_state(tmp_path: Path) -> None:
    with pipeline(tmp_path, Counting()) as query:
        run(query, 0)
        before = query.metrics()
    with pipeline(tmp_path, Counting()) as query:
        found = query.metrics()
        assert found.last_attempt is None
        assert found.operators["count"].rows_in == 0
        assert sorted(found.regions) == REGIONS
        assert found.state_bytes == before.state_bytes
        run(query, 1)
        assert query.metrics().operators["count"].counters == {"seen": len(REGIONS) * EACH}


def test_a_name_that_is_refused_makes_its_region_fail_and_names_it(tmp_path: Path) -> None:
    class Wrong(RunningCount):
        def open(self, ctx: hf.OperatorContext) -> None:
            super().open(ctx)
            ctx.metrics.counter("late rows")

    with (
        pipeline(tmp_path, Wrong()) as query,
        pytest.raises(hf.RegionalQueryError, match="no metric can have the name 'late rows'"),
    ):
        run(query, 0)


def test_a_counter_that_another_thread_raises_is_reported_with_a_later_answer(
    tmp_path: Path,
) -> None:
    class Background(RunningCount):
        def open(self, ctx: hf.OperatorContext) -> None:
            super().open(ctx)
            self.ticks = ctx.metrics.counter("ticks")

        def process(self, batch: pa.RecordBatch) -> Any:
            # It may end at any time, also between two attempts.
            threading.Thread(target=self.ticks.inc).start()
            return super().process(batch)

    with pipeline(tmp_path, Background()) as query:
        run(query, 0, 1, 2)
        ticked = query.metrics().operators["count"].counters["ticks"]
    assert 3 <= ticked <= 9


# --- bounds ---------------------------------------------------------------------------------------


def record(id: int, outcome: Outcome = "global", *failed: str) -> HistoryRecord:
    return HistoryRecord(
        id=id,
        batch_id=id,
        kind="checkpoint",
        outcome=outcome,
        failed=tuple(FailedRegion(region=name, origin=1, cause="x") for name in failed),
        in_flight_rows=4 if failed else 0,
        cause="",
        started_ms=10,
        ended_ms=17,
    )


def empty_checkpoint(tmp_path: Path) -> Any:
    with pipeline(tmp_path, RunningCount()) as query:
        return query.latest


def test_regions_beyond_the_bound_are_in_the_sums_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_REGIONS", 2)
    log = MetricsLog(["a"])
    for number in range(5):
        log.add(f"r{number}", encode([OperatorFigures(rows_in=10)]))
        log.add(f"r{number}", encode([OperatorFigures(rows_in=1)]))
    log.ended(record(1, "regional", "r3", "r4", "r0"))
    found = log.snapshot(empty_checkpoint(tmp_path))
    assert list(found.regions) == ["r0", "r1"]
    assert found.operators["a"].rows_in == 55
    assert found.failures == 3
    assert found.regions["r0"].failures == 1


def test_sums_for_sparks_metrics_system_grow_with_operators_and_not_with_regions() -> None:
    log = MetricsLog(["a b", "a_b"])
    names = set(log.sums())
    own = OperatorFigures(2, 1, 5_000_000, {"late": 3}, {"depth": GaugeFigures.of(4.0)})
    for number in range(1000):
        log.add(f"r{number}", encode([own, OperatorFigures()]))
    log.ended(record(1, "regional", "r5"))
    sums = log.sums()
    assert sums.keys() - names == {
        "operator.a_b.counter.late",
        "operator.a_b.gauge.depth.min",
        "operator.a_b.gauge.depth.max",
        "operator.a_b.gauge.depth.mean",
    }
    assert sums["operator.a_b.rowsIn"] == 2000
    assert sums["operator.a_b.busyMs"] == 5000
    assert sums["operator.a_b.counter.late"] == 3000
    assert sums["operator.a_b_2.rowsIn"] == 0
    assert (sums["checkpointsRegional"], sums["failures"], sums["attemptMs"]) == (1, 1, 7)
    assert sums["inFlightRows"] == 4
    log.ended(record(2, "aborted", "r5"))
    assert log.sums()["inFlightRows"] == 4, "those of the latest checkpoint"
    assert log.sums()["operator.a_b.gauge.depth.mean"] == 4.0


def test_gauges_of_regions_and_instances_are_summed_up(tmp_path: Path) -> None:
    log = MetricsLog(["a"])
    for region, value in (("r0", 1.0), ("r1", 5.0)):
        log.add(region, encode([OperatorFigures(gauges={"depth": GaugeFigures.of(value)})]))
    log.ended(record(1))
    log.add("r0", encode([OperatorFigures(rows_in=1)]))
    log.ended(record(2))
    assert log.sums()["operator.a.gauge.depth.mean"] == 3.0
    gauges = log.snapshot(empty_checkpoint(tmp_path)).operators["a"].gauges
    assert gauges == {"depth": GaugeMetrics(min=1.0, max=5.0, mean=3.0)}


def test_figures_of_another_pipeline_are_refused() -> None:
    log = MetricsLog(["a", "b"])
    with pytest.raises(ValueError, match="expected figures of 2 operators, found 1"):
        log.add("r0", encode([OperatorFigures()]))


def test_names_that_differ_from_region_to_region_meet_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MetricsLog(["a"])
    for number in range(500):
        own = OperatorFigures(rows_in=1, counters={f"of_{number:03}": 1, "all": 1})
        log.add(f"r{number:03}", encode([own]))
    log.ended(record(1))
    sums = log.sums()
    assert sums["operator.a.rowsIn"] == sums["operator.a.counter.all"] == 500
    counters = [name for name in sums if ".counter." in name]
    assert len(counters) == metrics.MAX_NAMES
    (warning,) = caplog.records
    assert "may have 64 names together" in warning.getMessage()


def test_figures_can_be_asked_for_at_any_moment(tmp_path: Path) -> None:
    latest = empty_checkpoint(tmp_path)
    log = MetricsLog(["a"])
    own = OperatorFigures(rows_in=1, counters={"n": 2}, gauges={"g": GaugeFigures.of(3.0)})
    for number in range(3):
        log.add("r0", encode([own]))
        log.add(f"new{number}", encode([OperatorFigures(rows_in=1, counters={f"m{number}": 1})]))
        found = log.snapshot(latest)
        assert found.operators["a"].rows_in == 2 * (number + 1)
        assert found.regions["r0"].operators["a"].counters["n"] == 2 * (number + 1)
        assert found.operators["a"].gauges["g"].mean == 3.0
    log.ended(record(1))
    assert log.snapshot(latest).operators == found.operators
