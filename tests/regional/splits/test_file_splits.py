"""A source whose enumerator hands file splits to regions: real files, checkpoints and failures."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.regions.base.clock import now_ms
from holdfast.regions.runners.local import LocalRunner
from holdfast.regions.runners.spark.split_stream import SplitStream
from holdfast.regions.splits import FileSplit
from holdfast.regions.splits.assignment import Assignment, Waiting
from holdfast.regions.splits.discovery import list_files, split_file
from support.regional.hooks import Hooks
from support.regional.split_files import (
    IDS,
    PLACED,
    Placed,
    check_places,
    fail_on,
    gateway,
    open_pipeline,
    output_of,
    pool_of,
    read_ids,
    splits_of,
    write_ids,
)


def test_every_split_is_read_once_and_new_files_are_found(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path) as query:
        assert query.run_available() == 2  # 8 splits, 2 for each of 3 regions
        assert query.run_available() == 0
        ids += write_ids(tmp_path / "in", 3)
        assert query.run_available() == 1
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids
    assert {row["region"] for row in output_of(tmp_path)} == {"r0", "r1", "r2"}


def test_a_restart_goes_on_with_what_no_region_has(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path) as query:
        query.run_available(max_batches=1)
        assert len(pool_of(query.latest)) == 2
    with open_pipeline(tmp_path) as query:
        assert query.run_available() == 1
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_what_a_failed_region_had_goes_back_in_the_checkpoint(
    tmp_path: Path, hooks: Hooks
) -> None:  # R32
    ids = list(write_ids(tmp_path / "in", 1))
    hooks.fail_for("r1", range(10_000))
    with open_pipeline(tmp_path, {"splits_per_region": 1}, hooks=hooks) as query:
        query.run_available(max_batches=1)
        assert set(query.latest.failed) == {"r1"}
        assert [split.groups for split in pool_of(query.latest)] == [(1, 2), (3, 4)]
        check_places(tmp_path, query.latest, ids)
    # From the metadata alone: nothing of the first process is left.
    hooks.calm()
    with open_pipeline(tmp_path, {"splits_per_region": 1}, hooks=hooks) as query:
        query.run_available()
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_a_running_enumerator_takes_back_what_a_failed_region_had(
    tmp_path: Path, hooks: Hooks
) -> None:  # R33
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path, {"splits_per_region": 1}, hooks=hooks) as query:
        hooks.fail_for("r1", range(10_000))
        query.run_available(max_batches=1)
        hooks.calm()
        assert query.run_available() == 1
        assert query.latest.is_global
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_after_an_aborted_attempt_all_splits_are_handed_out_again(
    tmp_path: Path, hooks: Hooks
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path, hooks=hooks, tolerable_failed_checkpoints=5) as query:
        failures = iter(range(3))

        def trouble(region: str, seen: Sequence[int]) -> None:
            if next(failures, None) is not None:
                raise RuntimeError("all are in trouble")

        hooks.on_rows = trouble
        query.run_available()
        assert "aborted" in [record.outcome for record in query.history()]
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_a_split_that_is_to_blame_holds_up_no_other_and_is_named(
    tmp_path: Path, hooks: Hooks
) -> None:  # R22
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    fail_on(hooks, 1015)
    with (
        open_pipeline(tmp_path, hooks=hooks, max_region_staleness=(6, timedelta(hours=1))) as query,
        pytest.raises(holdfast.RegionalQueryError, match="1015 is poison"),
    ):
        query.run_available()
    # Only its own rows are missing: neighbours in the first file and in its region were read.
    assert read_ids(tmp_path) == [value for value in ids if not 1010 <= value < 1020]


def test_a_damaged_file_is_named_and_holds_up_no_other(tmp_path: Path) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    broken = tmp_path / "in" / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with (
        open_pipeline(tmp_path, max_region_staleness=(4, timedelta(hours=1))) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"broken\.parquet.*cannot be read"),
    ):
        query.run_available()
    assert read_ids(tmp_path) == ids


def test_a_file_that_was_changed_after_it_was_found_is_refused(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 1)
    with open_pipeline(tmp_path, {"regions": 2, "splits_per_region": 1}) as query:
        query.run_available(max_batches=1)
        write_ids(tmp_path / "in", 1, rows=50)
        with pytest.raises(holdfast.RegionalQueryError, match="it was changed after it was found"):
            query.run_available()


def test_rows_that_wait_in_a_slow_region_are_in_flight_and_not_in_the_pool(tmp_path: Path) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(
        tmp_path, {"splits_per_region": 4, "regions": 1}, aligned_timeout=timedelta()
    ) as query:
        query.run_available(max_batches=1)
        waiting = sum(
            data.rows for entry in query.latest.regions.values() for data in entry.in_flight
        )
        assert waiting + len(output_of(tmp_path)) == len(ids)
        assert not pool_of(query.latest)
        query.finish()
    assert read_ids(tmp_path) == ids


def test_columns_follow_the_schema(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 1, schema=pa.schema([("id", pa.int32())]))
    write_ids(tmp_path / "in", 2, schema=pa.schema([("other", pa.int64())]))
    with open_pipeline(tmp_path) as query:
        query.run_available()
    read = [row["id"] for row in output_of(tmp_path)]
    assert sorted(value for value in read if value is not None) == list(range(1000, 1040))
    assert read.count(None) == 40


@pytest.mark.parametrize(
    ("kind", "text"), [("csv", "id\n1\n2\n"), ("json", '{"id": 1}\n{"id": 2}\n')]
)
def test_files_of_other_kinds_are_read_as_a_whole(tmp_path: Path, kind: str, text: str) -> None:
    (tmp_path / "in" / "deeper").mkdir(parents=True)
    (tmp_path / "in" / "deeper" / "file").write_text(text)
    (tmp_path / "in" / "_hidden").write_text("nothing that can be read")
    with open_pipeline(tmp_path, {"kind": kind}) as query:
        assert query.run_available() == 1
    assert read_ids(tmp_path) == [1, 2]


def test_old_files_are_forgotten_and_not_read_again(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 100)]
    with open_pipeline(tmp_path, {"max_file_age": timedelta(seconds=10)}) as query:
        query.run_available()  # a first look takes in everything
        write_ids(tmp_path / "in", 2)
        ids += write_ids(tmp_path / "in", 95)
        query.run_available()
        assert b"0001.parquet" not in query.latest.coordinators["#source"]
    assert read_ids(tmp_path) == sorted(ids)


def date(path: Path, number: int, seconds: float) -> None:
    """Say that a file was modified so many seconds from now."""
    at = time.time() + seconds
    os.utime(path / "in" / f"{number:04}.parquet", (at, at))


DAY = 86_400


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_from_the_future_hides_no_other(tmp_path: Path, restarted: bool) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    date(tmp_path, 1, -DAY)
    date(tmp_path, 2, 1000 * DAY)
    query = open_pipeline(tmp_path)
    query.run_available()
    if restarted:
        query.close()
        query = open_pipeline(tmp_path)
    ids += [*write_ids(tmp_path / "in", 3), *write_ids(tmp_path / "in", 4)]
    date(tmp_path, 3, 0)
    date(tmp_path, 4, 999 * DAY)
    query.run_available()
    query.run_available()
    query.close()
    assert read_ids(tmp_path) == sorted(ids)


def test_files_that_are_skipped_for_their_age_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [*write_ids(tmp_path / "in", 50), *write_ids(tmp_path / "in", 100)]
    with open_pipeline(tmp_path, {"max_file_age": timedelta(seconds=10)}) as query:
        query.run_available()
        query.run_available()
        assert "are skipped" not in caplog.text, "0050 is forgotten, but was read"
        write_ids(tmp_path / "in", 2)
        query.run_available()
        query.run_available()
    assert caplog.text.count("0002.parquet") == 1
    assert "1 files in" in caplog.text
    assert "touch them" in caplog.text
    assert read_ids(tmp_path) == sorted(ids)


def test_a_newest_file_from_the_future_hides_no_file_that_comes_from_now_on(
    tmp_path: Path,
) -> None:
    # The enumerator's clock has whole milliseconds.
    now_ns, age_ns = now_ms() * 10**6, 7 * DAY * 10**9
    # A clock that was set back leaves this.
    future = {"newest_ns": now_ns + 1000 * DAY * 10**9, "forgotten_ns": 0}
    old = json.dumps({"version": 1, **future, "seen": {"x": 1}, "pool": []})
    write_ids(tmp_path / "in", 1)
    date(tmp_path, 1, -1)
    enumerator = splits_of(tmp_path).enumerator()
    enumerator.reset(old.encode())
    assert not enumerator.has_work(), "it may have been read"
    write_ids(tmp_path / "in", 2)
    date(tmp_path, 2, 1)
    assert enumerator.has_work()
    again = Assignment.decode(enumerator.checkpoint(1))
    assert again.forgotten_ns >= now_ns
    assert again.newest_ns < now_ns + age_ns


def test_a_savepoint_holds_what_no_region_has(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path) as query:
        query.run_available(max_batches=1)
        query.stop_with_savepoint(tmp_path / "save")
    pipeline = (
        holdfast.regional(splits_of(tmp_path))
        .apply(Placed(), schema=PLACED, name="placed")
        .write_parquet(tmp_path / "out")
    )
    with pipeline.open_local(
        tmp_path / "new", restore=holdfast.restore(tmp_path / "save")
    ) as query:
        query.run_available()
    assert read_ids(tmp_path) == ids


def test_when_data_has_ended_no_further_file_is_read(tmp_path: Path) -> None:  # R60
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path) as query:
        query.run_available()
        query.end_of_data()
        assert all(entry.finished for entry in query.latest.regions.values())
    write_ids(tmp_path / "in", 2)
    with (
        open_pipeline(tmp_path) as query,
        pytest.raises(holdfast.RegionFinishedError, match="data ended in checkpoint"),
    ):
        query.run_available()
    assert read_ids(tmp_path) == ids


def test_more_or_fewer_regions_share_what_is_left(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path, {"splits_per_region": 1}) as query:
        query.run_available(max_batches=1)
    for regions in (5, 1):
        with open_pipeline(tmp_path, {"regions": regions, "splits_per_region": 1}) as query:
            query.run_available(max_batches=1)
            assert not query.latest.failed
    with open_pipeline(tmp_path, {"regions": 2}) as query:
        query.run_available()
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.sets(st.sampled_from(["r0", "r1", "r2", "r3"]))),
            st.tuples(st.just("file"), st.integers(1, 4)),
            st.tuples(st.just("restart"), st.none()),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_in_any_history_every_split_is_in_one_place(steps: list[tuple[str, Any]]) -> None:  # R32
    hooks = Hooks()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        ids = list(write_ids(path / "in", 0))
        options = {"regions": 4, "splits_per_region": 1}

        def opened() -> holdfast.LocalQuery:
            return open_pipeline(
                path,
                options,
                hooks=hooks,
                max_failure_ratio=0.5,
                tolerable_failed_checkpoints=1000,
                max_region_staleness=(1000, timedelta(hours=1)),
            )

        query = opened()
        files = 1
        for what, how in steps:
            if what == "file":
                ids += write_ids(path / "in", files, rows=how * 10)
                files += 1
            elif what == "restart":
                query.close()
                query = opened()
            else:
                _run_with_failures(query, hooks, how)
                if query.latest.batch_id >= 0:
                    discovered = [value for value in ids if _was_found(query, value)]
                    check_places(path, query.latest, discovered)
        hooks.calm()
        query.run_available()
        query.finish()
        check_places(path, query.latest, ids)
        query.close()
        assert read_ids(path) == sorted(ids)


def _run_with_failures(query: holdfast.LocalQuery, hooks: Hooks, regions: set[str]) -> None:
    """Run a batch in which regions fail, each once: an attempt may have to be repeated."""
    left = set(regions)

    def trouble(region: str, ids: Sequence[int]) -> None:
        if region in left:
            left.discard(region)
            raise RuntimeError(f"{region} is in trouble")

    hooks.on_rows = trouble
    query.run_available(max_batches=1)


def _was_found(query: holdfast.LocalQuery, value: int) -> bool:
    return f"{value // 1000:04}.parquet".encode() in query.latest.coordinators["#source"]


SPLIT = {"path": "a", "file_bytes": 90, "modified_ns": 7, "groups": None, "size": 40}
VERSION_1 = (
    b'{"version":1,"newest_ns":7,"forgotten_ns":0,"seen":{"a/b.parquet":5,"c.parquet":7},"pool":['
    b'{"path":"c.parquet","file_bytes":90,"modified_ns":7,"groups":[2,3],"size":40,'
    b'"failures":2,"region":"r1"},'
    b'{"path":"a/b.parquet","file_bytes":10,"modified_ns":5,"groups":null,"size":10,'
    b'"failures":0,"region":""}]}'
)


def test_version_1_of_the_snapshot_stays_readable() -> None:
    assignment = Assignment.decode(VERSION_1)
    assert [str(waiting.split) for waiting in assignment.pool] == [
        "row groups 2 to 2 of 'c.parquet'",
        "'a/b.parquet'",
    ]
    assert [(waiting.failures, waiting.region) for waiting in assignment.pool] == [
        (2, "r1"),
        (0, ""),
    ]
    assert (assignment.seen, assignment.newest_ns) == ({"a/b.parquet": 5, "c.parquet": 7}, 7)
    assert assignment.encode() == VERSION_1
    with pytest.raises(holdfast.NewerFormatError, match="up to version 1, found 2"):
        Assignment.decode(VERSION_1.replace(b'"version":1', b'"version":2'))


def test_a_fallback_snapshot_leaves_the_live_state_alone() -> None:  # R32
    assignment = Assignment.decode(VERSION_1)
    assignment.hand_out(9, ["r0", "r1"], splits_per_region=1)
    live = assignment.encode(), {region: list(given) for region, given in assignment.given.items()}
    copy = assignment.copy()
    copy.take_back("r1", 8)
    copy.take_back("r0", 8)
    assert (assignment.encode(), assignment.given) == live
    assert len(copy.pool) == 2
    assert not copy.given


def test_the_enumerator_keeps_its_state_when_it_is_asked_for_a_fallback(
    tmp_path: Path,
) -> None:  # R32
    write_ids(tmp_path / "in", 1)
    enumerator = splits_of(tmp_path, splits_per_region=1).enumerator()
    enumerator.start(gateway(lambda region, event: None))
    enumerator.begin_batch(5)
    live = enumerator.checkpoint(5)
    fallback = enumerator.checkpoint_fallback(5, {"r0": 4, "r2": 5})
    assert len(json.loads(fallback)["pool"]) == len(json.loads(live)["pool"]) + 1
    assert enumerator.checkpoint(5) == live


def test_a_split_that_failed_twice_is_alone_with_the_region_that_had_it() -> None:
    waiting = [Waiting(FileSplit.of_json({**SPLIT, "path": name})) for name in "abcde"]
    assignment = Assignment(pool=[*waiting[:4], replace(waiting[4], failures=2, region="r1")])
    told = assignment.hand_out(9, ["r0", "r1"], splits_per_region=2)
    assert [(region, split.path) for region, split in told] == [
        ("r1", "e"),
        ("r0", "a"),
        ("r0", "b"),
    ]
    assert [left.split.path for left in assignment.pool] == ["c", "d"]


def test_a_file_at_the_very_limit_of_age_is_remembered(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 11)]
    with open_pipeline(tmp_path, {"max_file_age": timedelta(seconds=10)}) as query:
        query.run_available()
        ids += write_ids(tmp_path / "in", 5)
        query.run_available()
    assert read_ids(tmp_path) == sorted(ids)


def test_a_file_that_comes_while_others_are_read_waits_for_the_next_run(
    tmp_path: Path, hooks: Hooks
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path, hooks=hooks) as query:
        hooks.on_rows = lambda region, seen: write_ids(tmp_path / "in", 2) and None
        query.run_available()
        hooks.calm()
        assert read_ids(tmp_path) == ids
        query.run_available()
    assert read_ids(tmp_path) == [*ids, *range(2000, 2040)]


class Unsafe(Placed):
    region_safe = False


def test_a_start_that_is_refused_leaves_no_thread(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 0)
    before = set(threading.enumerate())
    pipeline = holdfast.regional(splits_of(tmp_path)).apply(Unsafe(), schema=PLACED, name="placed")
    with pytest.raises(ValueError, match="region_safe"):
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt")
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive(), thread.name


def test_a_temporary_folder_that_can_hold_no_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    (tmp_path / "in").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(OSError, match=r"cannot listen on .*longlong.*TMPDIR"):
        SplitStream(splits_of(tmp_path).enumerator())
    assert list(folder.iterdir()) == []


def test_row_groups_are_put_together_up_to_a_size(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 1)
    (file,) = list_files(tmp_path / "in", known=(), unlisted=print)

    def groups(split_bytes: int) -> list[tuple[int, int] | None]:
        splits = split_file(tmp_path / "in", file, kind="parquet", split_bytes=split_bytes)
        return [split.groups for split in splits]

    single = split_file(tmp_path / "in", file, kind="parquet", split_bytes=1)
    sizes = [split.size for split in single]
    assert [split.groups for split in single] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert groups(sizes[0])[0] == (0, 1)
    assert groups(sizes[0] + 1)[0] == (0, 2)
    assert groups(sum(sizes[:3])) == [(0, 3), (3, 4)]
    assert groups(file.size) == [None]


def test_events_reach_a_region_although_its_task_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    run = LocalRunner.run

    def two_tasks(self: LocalRunner, order: Any, source: Any, *arguments: Any) -> Iterator[Any]:
        return run(self, order, source and source[:2], *arguments)

    monkeypatch.setattr(LocalRunner, "run", two_tasks)
    with open_pipeline(tmp_path, {"regions": 4, "splits_per_region": 1}) as query:
        query.run_available(max_batches=1)
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_an_attempt_in_which_a_region_with_splits_keeps_silent_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    run = LocalRunner.run

    def without_r1(self: LocalRunner, order: Any, *arguments: Any) -> Iterator[Any]:
        answers = run(self, order, *arguments)
        yield from (a for a in answers if order.attempt != 2 or a.event.region != "r1")

    monkeypatch.setattr(LocalRunner, "run", without_r1)
    with open_pipeline(tmp_path, tolerable_failed_checkpoints=1) as query:
        query.run_available()
        assert [record.outcome for record in query.history()] == ["global", "aborted", "global"]
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_what_a_region_received_before_its_origin_stays_with_it() -> None:  # R33
    assignment = Assignment.decode(VERSION_1)
    assignment.hand_out(9, ["r1"], splits_per_region=1)
    assignment.take_back("r1", 9)
    assert len(assignment.pool) == 1
    assignment.take_back("r1", 8)
    assert [waiting.failures for waiting in assignment.pool] == [3, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"regions": 0}, "regions=0 is not allowed"),
        ({"split_bytes": 0}, "split_bytes=0 is not allowed"),
        ({"splits_per_region": 0}, "splits_per_region=0 is not allowed"),
        ({"kind": "orc2"}, "kind='orc2' is not allowed: expected one of parquet"),
        ({"max_file_age": timedelta(days=-1)}, "max_file_age=.* is not allowed"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=message):
        holdfast.FileSplits(tmp_path / "in", IDS, **wrong)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*in to read files from"):
        splits_of(tmp_path)
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="region_by is not for FileSplits"):
        holdfast.regional(splits_of(tmp_path), region_by="id")
    with (
        open_pipeline(tmp_path) as query,
        pytest.raises(ValueError, match=r"call run_available\(\)"),
    ):
        query.run_batch([])
