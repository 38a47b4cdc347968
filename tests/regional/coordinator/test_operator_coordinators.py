"""Coordinators of users: events in both directions, each once and between the same rows."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.cli.main import main
from support.regional.hooks import Hooks
from support.regional.pipelines import ROWS, output_of, partitions_of, rows_of
from support.regional.split_files import splits_of, write_ids
from support.regional.versions import SCORED, Scorer, Versions, open_versions

REGIONS = ["a", "b", "c", "d"]


def run(query: hf.LocalQuery, number: int, regions: list[str] = REGIONS) -> None:
    query.run_batch(partitions_of(rows_of(number, regions), 2), batch_id=number)


def scored(folder: Path) -> dict[tuple[str, int], set[Any]]:
    """Versions that rows were scored by, by region and batch; fails if a row is there twice."""
    rows = output_of(folder / "out")
    assert len({row[:2] for row in rows}) == len(rows)
    found: dict[tuple[str, int], set[Any]] = {}
    for region, row_id, version in rows:
        found.setdefault((region, row_id // 1000), set()).add(version)
    return found


def test_events_come_in_front_of_the_rows_of_the_batch(tmp_path: Path) -> None:  # R31
    versions = Versions()
    with open_versions(tmp_path, versions) as query:
        for number in range(3):
            run(query, number)
    # No checkpoint knows the regions before the first batch, so the second has the first events.
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(3)}
    assert versions.taken == {region: [2, 3] for region in REGIONS}


def test_a_region_that_falls_back_gets_its_events_again_between_the_same_rows(  # R31
    tmp_path: Path,
) -> None:
    hooks, versions = Hooks(), Versions()
    with open_versions(tmp_path, versions, hooks) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 3000))
        run(query, 1)
        run(query, 2)
        assert query.latest.regions["b"].failed
        assert versions.taken == {region: [2, 3] for region in "acd"}
        hooks.calm()
        run(query, 3)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(4)}
    assert versions.taken == {region: [2, 3, 4] for region in REGIONS}
    assert versions.calls.count("region_reset") == 2


def test_a_restart_gives_a_failed_region_its_events_again(tmp_path: Path) -> None:
    hooks = Hooks()
    with open_versions(tmp_path, Versions(), hooks) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 3000))
        run(query, 1)
        run(query, 2)
    hooks.calm()
    with open_versions(tmp_path, versions := Versions(), hooks) as query:
        assert versions.taken == {region: [2, 3] for region in "acd"}
        assert versions.version == 3
        run(query, 3)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(4)}
    assert versions.taken == {region: [2, 3, 4] for region in REGIONS}


def test_show_lists_the_events_that_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = Hooks()
    with open_versions(tmp_path, Versions(), hooks) as query:
        run(query, 0)
        main(["show", str(tmp_path / "ckpt")])
        assert "events of coordinators" not in capsys.readouterr().out
        hooks.fail_for("b", range(1000, 3000))
        run(query, 1)
        run(query, 2)
        id = query.latest.id
    for arguments in ([], ["--id", str(id)]):
        main(["show", str(tmp_path / "ckpt"), *arguments])
        shown = capsys.readouterr().out
        assert f"wait for their region in checkpoint {id}" in shown
        main(["show", str(tmp_path / "ckpt"), *arguments, "--json"])
        document = json.loads(capsys.readouterr().out)
        found = document.get("checkpoints", [document])[-1]["waiting_events"]
        assert [(one["region"], one["attempt"]) for one in found] == [("b", id - 1), ("b", id)]
        assert all(one["operator"] in shown and one["bytes"] for one in found)


def test_after_an_aborted_attempt_all_go_back_and_nothing_comes_twice(tmp_path: Path) -> None:
    hooks, versions = Hooks(), Versions()
    failing = {"a", "b", "c"}

    def trouble(region: str, ids: Any) -> None:
        if ids[0] >= 1000 and region in failing:
            failing.discard(region)
            raise RuntimeError(f"{region} is in trouble")

    hooks.on_rows = trouble
    with open_versions(tmp_path, versions, hooks) as query:
        for number in range(3):
            run(query, number)
        outcomes = [record.outcome for record in query.history()]
    assert outcomes == ["global", "global", "aborted", "global", "global"]
    assert versions.calls.count("reset") == 2
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(3)}
    assert versions.taken == {region: [2, 3] for region in REGIONS}


def test_a_region_without_rows_runs_for_its_events(tmp_path: Path) -> None:
    versions = Versions()
    with open_versions(tmp_path, versions) as query:
        run(query, 0)
        run(query, 1, ["a"])
        assert versions.taken == {region: [2] for region in REGIONS}
        assert query.latest.regions["d"].origin == query.latest.id


def test_what_is_sent_behind_the_snapshot_belongs_to_the_next_checkpoint(  # R31
    tmp_path: Path,
) -> None:
    hooks, versions = Hooks(), Versions(every_batch=False)
    sent = threading.Event()

    def send_late(region: str, ids: Any) -> None:
        if ids[0] >= 1000 and region == "a" and not sent.is_set():
            with versions.gateway.in_one_step():
                versions.send_next()
            sent.set()

    with open_versions(tmp_path, versions, hooks) as query:
        run(query, 0)
        hooks.on_rows = send_late
        run(query, 1)
        assert sent.is_set()
        assert not versions.taken
        run(query, 2)
        assert versions.taken == {region: [1] for region in REGIONS}
    assert scored(tmp_path) == {(r, n): {int(n == 2)} for r in REGIONS for n in range(3)}


# --- what a user may get wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "event", "error", "message"),
    [
        ("a", "1", TypeError, "region 'a' of 'score' is of the type str: expected bytes"),
        ("a", {"v": 1}, TypeError, "is of the type dict: expected bytes"),
        ("a", bytes(2**20 + 1), ValueError, "has 1048577 bytes, and 1048576 are allowed"),
        ("z", b"1", ValueError, "region 'z' of 'score' cannot be sent: there is no such region"),
    ],
)
def test_an_event_that_cannot_travel_is_refused_where_it_is_sent(
    tmp_path: Path, region: str, event: Any, error: type[Exception], message: str
) -> None:
    versions = Versions()
    with open_versions(tmp_path, versions) as query:
        run(query, 0)
        with pytest.raises(error, match=message):
            versions.gateway.send(region, event)
        run(query, 1)
    assert versions.taken == {name: [2] for name in REGIONS}


def test_an_event_to_an_operator_that_takes_none_is_refused(tmp_path: Path) -> None:
    class Deaf(Scorer):
        on_event = hf.Operator.on_event

    versions = Versions(every_batch=False)
    pipeline = hf.regional(region_by="region").apply(
        Deaf(), schema=SCORED, name="score", coordinator=versions
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0)
        with pytest.raises(TypeError, match=r"cannot be sent: Deaf does not define on_event"):
            versions.gateway.send("a", b"1")


def test_more_events_than_a_checkpoint_holds_are_refused(tmp_path: Path) -> None:
    versions = Versions(every_batch=False)
    with open_versions(tmp_path, versions) as query:
        run(query, 0)
        for _ in range(16):
            versions.gateway.send("a", b"1" * 2**20)
        with pytest.raises(RuntimeError, match="16777216 bytes of events wait for regions"):
            versions.gateway.send("b", b"1")


@pytest.mark.parametrize(
    ("each", "message"),
    [
        (17, "sent more than 16777216 bytes of events in one batch"),
        (5, "'score': regions sent it 20971520 bytes of events in one checkpoint, and 16777216"),
    ],
)
def test_more_events_of_regions_than_a_checkpoint_holds_are_refused(
    tmp_path: Path, each: int, message: str
) -> None:
    class Talking(Scorer):
        def process(self, batch: Any) -> Any:
            for _ in range(each):
                self.ctx.send_event(bytes(2**20))
            return super().process(batch)

    pipeline = hf.regional(region_by="region").apply(
        Talking(), schema=SCORED, name="score", coordinator=Versions()
    )
    with (
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query,
        pytest.raises((hf.RegionalQueryError, ValueError), match=message),
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2, slices=1))


def test_nothing_can_be_sent_behind_the_end(tmp_path: Path) -> None:
    versions = Versions()
    with open_versions(tmp_path, versions) as query:
        run(query, 0)
    with pytest.raises(RuntimeError, match="cannot be sent: the pipeline has ended"):
        versions.gateway.send("a", b"1")
    assert versions.calls[-1] == "close"


def test_nothing_is_sent_to_a_region_whose_data_has_ended(tmp_path: Path) -> None:
    versions = Versions()
    with open_versions(tmp_path, versions) as query:
        run(query, 0)
        query.end_of_data()
        assert versions.gateway.regions == frozenset()
        with pytest.raises(ValueError, match="or its data has ended"):
            versions.gateway.send("a", b"1")


def test_what_is_sent_while_the_data_of_a_region_ends_is_dropped(tmp_path: Path) -> None:
    class Ending(Scorer):
        def on_end_of_data(self) -> None:
            assert self.hooks is not None
            assert self.hooks.on_flush is not None
            self.hooks.on_flush(self.region)

    hooks, versions = Hooks(), Versions(every_batch=False)
    hooks.on_flush = lambda region: versions.gateway.send(region, b"9")
    pipeline = hf.regional(region_by="region").apply(
        Ending(hooks), schema=SCORED, name="score", coordinator=versions
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0, ["a", "b"])
        query.end_of_data()
        run(query, 1, ["new"])
        assert versions.gateway.regions == {"new"}
        assert not versions.taken


@pytest.mark.parametrize("where", ["begin_batch", "checkpoint", "handle_event"])
@pytest.mark.parametrize("error", [OSError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_coordinator_that_raises_costs_an_attempt_and_goes_back(  # R35
    tmp_path: Path, where: str, error: type[BaseException]
) -> None:
    class Failing(Versions):
        failures = 0

    def failing(self: Any, *arguments: Any) -> Any:
        result = getattr(Versions, where)(self, *arguments)
        if self.version == 2 and self.failures < 1:
            self.failures += 1
            raise error("not today")
        return result

    setattr(Failing, where, failing)
    versions = Failing()
    with open_versions(tmp_path, versions) as query:
        for number in range(4):
            run(query, number)
        aborted = [record for record in query.history() if record.outcome == "aborted"]
    # An exception in handle_event comes behind the checkpoint; the next attempt repeats the call.
    assert len(aborted) == (where != "handle_event")
    assert all(f"{error.__name__}: not today" in record.cause for record in aborted)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(4)}
    assert versions.taken == {region: [2, 3, 4] for region in REGIONS}


def test_a_coordinator_that_keeps_failing_at_an_event_ends_the_query(tmp_path: Path) -> None:
    class Failing(Versions):
        handle_event = hf.OperatorCoordinator.handle_event

    with open_versions(tmp_path, Failing(), tolerable_failed_checkpoints=1) as query:
        run(query, 0)
        run(query, 1)
        with pytest.raises(hf.RegionalQueryError, match=r"Failing does not define handle_event"):
            run(query, 2)
    with open_versions(tmp_path, versions := Versions()) as query:
        assert versions.taken == {region: [2] for region in REGIONS}
        run(query, 2)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(3)}


def test_a_coordinator_whose_snapshot_is_no_bytes_is_told_so(tmp_path: Path) -> None:
    class Wrong(Versions):
        def checkpoint(self, checkpoint: int) -> Any:
            return {"version": self.version}

    with pytest.raises(
        hf.RegionalQueryError, match=r"Wrong.checkpoint\(\) returned dict: expected bytes"
    ):
        open_versions(tmp_path, Wrong(), tolerable_failed_checkpoints=0)


def test_an_operator_sends_events_only_where_they_are_sent_once(tmp_path: Path) -> None:
    problems: list[str] = []

    class Early(Scorer):
        def open(self, ctx: hf.OperatorContext) -> None:
            super().open(ctx)
            self.tried()

        def on_checkpoint_completed(self, checkpoint: int) -> None:
            self.tried()

        def tried(self) -> None:
            with pytest.raises(RuntimeError) as error:
                self.ctx.send_event(b"1")
            problems.append(str(error.value))

    pipeline = hf.regional(region_by="region").apply(
        Early(), schema=SCORED, name="score", coordinator=Versions()
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0, ["a", "b"])
        run(query, 1, ["a", "b"])
    assert len(problems) == 6, "of each region: open, and the notices of two checkpoints"
    assert all("may send events in process()" in problem for problem in problems)


def test_an_operator_without_coordinator_cannot_send(tmp_path: Path) -> None:
    class Lonely(Scorer):
        def process(self, batch: Any) -> Any:
            self.ctx.send_event(b"1")
            return super().process(batch)

    pipeline = hf.regional(region_by="region").apply(Lonely(), schema=SCORED, name="score")
    with (
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.OperatorFailedError, match="has no coordinator to send an event to"),
    ):
        run(query, 0)


def test_a_coordinator_serves_one_pipeline_at_a_time(tmp_path: Path) -> None:
    versions = Versions()
    with open_versions(tmp_path / "1", versions) as query:
        run(query, 0)
        with pytest.raises(RuntimeError, match="serves an operator of a running pipeline already"):
            open_versions(tmp_path / "2", versions)
        run(query, 1)
    with open_versions(tmp_path / "2", versions) as query:
        run(query, 0)
        assert not versions.taken


def test_an_operator_does_not_hold_its_coordinator(tmp_path: Path) -> None:
    scorer: Any = Scorer()
    scorer.versions = Versions()
    pipeline = hf.regional(region_by="region").apply(
        scorer, schema=SCORED, coordinator=scorer.versions
    )
    with pytest.raises(TypeError, match="is a coordinator and stays on the driver"):
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt")


def test_what_is_taken_back_must_not_be_lost(tmp_path: Path) -> None:
    class Careless(Versions):
        takes_back_events = True

    with pytest.raises(TypeError, match="has to define checkpoint_fallback and region_reset"):
        open_versions(tmp_path, Careless())


@pytest.mark.parametrize("given", [Versions, b"coordinator"])
def test_what_is_no_coordinator_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"takes an instance of holdfast.OperatorCoordinator"):
        hf.regional(region_by="region").apply(Scorer(), schema=SCORED, coordinator=given)


def test_the_name_of_an_operator_with_coordinator_leaves_room_for_its_events() -> None:
    pipeline = hf.regional(region_by="region")
    pipeline.apply(Scorer(), schema=SCORED, name="x" * 1017, coordinator=Versions())
    with pytest.raises(ValueError, match="its name has at most 1017 bytes"):
        pipeline.apply(Scorer(), schema=SCORED, name="x" * 1018, coordinator=Versions())


def test_without_support_for_fallbacks_every_checkpoint_is_global(tmp_path: Path) -> None:  # R15
    class Plain(Versions):
        supports_fallback = False

    hooks = Hooks()
    with open_versions(tmp_path, Plain(), hooks) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 2000))
        with pytest.raises(hf.RegionalQueryError, match="does not support fallback: score"):
            run(query, 1)


# --- other pipelines ----------------------------------------------------------------------------


def test_every_instance_of_the_operator_gets_an_event(tmp_path: Path) -> None:
    versions = Versions()
    pipeline = hf.regional(region_by="region").apply(
        Scorer(), schema=SCORED, name="score", parallelism=2, route_by="id", coordinator=versions
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        for number in range(2):
            run(query, number)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(2)}
    assert versions.taken == {region: [2, 2] for region in REGIONS}


def test_two_operators_have_a_coordinator_each(tmp_path: Path) -> None:
    class Passing(hf.Operator):
        region_safe = True

        def open(self, ctx: hf.OperatorContext) -> None:
            self.ctx = ctx

        def on_event(self, event: bytes) -> None:
            self.ctx.send_event(b"-" + event)

        def process(self, batch: Any) -> Any:
            return batch

    first, second = Versions(), Versions()
    pipeline = (
        hf.regional(region_by="region")
        .apply(Passing(), schema=ROWS, name="pass", coordinator=first)
        .apply(Scorer(), schema=SCORED, name="score", coordinator=second)
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        for number in range(3):
            run(query, number)
    assert scored(tmp_path) == {(r, n): {n + 1 if n else 0} for r in REGIONS for n in range(3)}
    assert first.taken == {region: [-2, -3] for region in REGIONS}
    assert second.taken == {region: [2, 3] for region in REGIONS}


def test_an_operator_behind_splits_of_files_has_a_coordinator(tmp_path: Path) -> None:
    class Splits(Scorer):
        def process(self, batch: Any) -> Any:
            ids = batch.column("id")
            regions = pa.array([self.region] * len(ids))
            versions = pa.array([self.version.value] * len(ids))
            return pa.RecordBatch.from_arrays([regions, ids, versions], schema=SCORED)

    for number in range(3):
        write_ids(tmp_path / "in", number)
    versions = Versions()
    pipeline = hf.regional(splits_of(tmp_path, splits_per_region=1)).apply(
        Splits(), schema=SCORED, name="score", coordinator=versions
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        batches = query.run_available()
    assert batches > 1
    rows = output_of(tmp_path / "out")
    assert sorted(row_id for _, row_id, _ in rows) == sorted(
        number * 1000 + place for number in range(3) for place in range(40)
    )
    assert {version for _, _, version in rows} <= {0, *range(2, batches + 1)}
    assert all(taken == [*range(2, batches + 1)] for taken in versions.taken.values())


def test_an_event_may_put_out_rows_for_a_side_output(tmp_path: Path) -> None:
    taken = pa.schema([("region", pa.string()), ("version", pa.int64())])

    class Telling(Scorer):
        def on_event(self, event: bytes) -> None:
            super().on_event(event)
            rows = {"region": [self.region], "version": [int(event)]}
            self.ctx.emit("taken", pa.table(rows, schema=taken))

    hooks = Hooks()
    pipeline = (
        hf.regional(region_by="region")
        .apply(Telling(hooks), schema=SCORED, coordinator=Versions())
        .side("taken", schema=taken)
        .write_parquet(tmp_path / "taken")
        .write_parquet(tmp_path / "out")
    )
    with pipeline.open_local(tmp_path / "ckpt", max_failure_ratio=0.5) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 2000))
        run(query, 1)
        hooks.calm()
        run(query, 2, ["a"])
    assert output_of(tmp_path / "taken") == [(r, version) for r in REGIONS for version in (2, 3)]


# --- notices of checkpoints ---------------------------------------------------------------------


def test_a_completed_checkpoint_names_the_regions_that_took_part(
    tmp_path: Path,
) -> None:  # R34, R40
    heard: list[tuple[str, hf.CheckpointInfo]] = []

    class Listening(Scorer):
        def on_regional_checkpoint_completed(
            self, checkpoint: int, info: hf.CheckpointInfo
        ) -> None:
            assert checkpoint == info.checkpoint
            heard.append((self.region, info))

    hooks, versions = Hooks(), Versions(every_batch=False)
    pipeline = hf.regional(region_by="region").apply(
        Listening(hooks), schema=SCORED, name="score", coordinator=versions
    )
    with pipeline.write_parquet(tmp_path / "out").open_local(
        tmp_path / "ckpt", max_failure_ratio=0.5
    ) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 2000))
        run(query, 1, ["a", "b", "c"])
        hooks.calm()
        run(query, 2)
    told = hf.CheckpointInfo(checkpoint=3, took_part=frozenset("ac"), fallbacks={"b": 2})
    assert versions.completed[2] == told
    assert (told.effective("b"), told.effective("d"), told.oldest) == (2, 3, 2)
    assert sorted(region for region, info in heard if info == told) == ["a", "c", "d"]


# --- changes of the program ---------------------------------------------------------------------


def test_a_checkpoint_without_coordinator_goes_on_with_one(tmp_path: Path) -> None:
    class Alone(Scorer):
        def process(self, batch: Any) -> Any:
            return super().process(batch)

    def opened(coordinator: hf.OperatorCoordinator | None, **options: Any) -> hf.LocalQuery:
        pipeline = hf.regional(region_by="region").apply(
            Alone(), schema=SCORED, name="score", coordinator=coordinator
        )
        return pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt", **options)

    with opened(None) as query:
        run(query, 0)
    with opened(versions := Versions()) as query:
        assert versions.calls == ["start", "reset", "checkpoint_complete"]
        run(query, 1)
        assert versions.taken == {region: [1] for region in REGIONS}
    before = sorted(path for path in tmp_path.rglob("*") if "lock" not in path.name)
    with pytest.raises(hf.LayoutChangedError, match="state of a coordinator of operator 'score'"):
        opened(None)
    assert sorted(path for path in tmp_path.rglob("*") if "lock" not in path.name) == before
    with opened(None, drop_undeclared_state=True) as query:
        run(query, 2)
        assert not query.latest.coordinators
    assert scored(tmp_path) == {(r, n): {min(n, 1)} for r in REGIONS for n in range(3)}


@pytest.mark.parametrize("how", ["restore", "savepoint"])
def test_a_restore_takes_the_coordinator_and_its_events_along(tmp_path: Path, how: str) -> None:
    hooks = Hooks()
    with open_versions(tmp_path, Versions(), hooks) as query:
        run(query, 0)
        hooks.fail_for("b", range(1000, 2000))
        run(query, 1)
        if how == "savepoint":
            hooks.calm()
            query.stop_with_savepoint(tmp_path / "saved")
    hooks.calm()
    restore = hf.restore(tmp_path / ("ckpt" if how == "restore" else "saved"))
    scorer = Scorer(hooks)
    plain = hf.regional(region_by="region").apply(scorer, schema=SCORED, name="score")
    with pytest.raises(hf.LayoutChangedError, match="state of a coordinator of operator 'score'"):
        plain.write_parquet(tmp_path / "new").open_local(tmp_path / "next", restore=restore)
    pipeline = hf.regional(region_by="region").apply(
        scorer, schema=SCORED, name="score", coordinator=(versions := Versions())
    )
    with pipeline.write_parquet(tmp_path / "new").open_local(
        tmp_path / "next", restore=restore
    ) as query:
        run(query, 2)
        assert versions.taken == {region: [2, 3] for region in REGIONS}


def test_going_back_takes_the_coordinator_back(tmp_path: Path) -> None:
    with open_versions(tmp_path, Versions()) as query:
        for number in range(3):
            run(query, number)
    with open_versions(tmp_path, versions := Versions(), checkpoint_id=3) as query:
        assert (versions.version, versions.taken) == (2, {region: [2] for region in REGIONS})
        run(query, 2)
    assert scored(tmp_path)["a", 2] == {3}
