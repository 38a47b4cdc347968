"""Calls into one pipeline: from several threads, from its own code, after close, after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.base.clock import Clock
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Gate,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r0", "r1", "r2"]
BATCHES = [rows_of(number, REGIONS) for number in range(8)]


def writer(path: Path, hooks: Hooks) -> hf.RegionalWriter:
    pipeline = hf.regional(region_by="region").apply(Troubled(hooks), schema=COUNTED)
    return pipeline.write_parquet(path / "out")


def ids_of(path: Path) -> list[int]:
    return sorted(row[1] for row in output_of(path / "out"))


def together(calls: list[Callable[[], object]]) -> list[BaseException]:
    """Make calls, each on a thread of its own, and return what they raise."""
    start, errors = threading.Barrier(len(calls)), list[BaseException]()

    def make(call: Callable[[], object]) -> None:
        start.wait(timeout=60)
        try:
            call()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=make, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


# --- several threads ----------------------------------------------------------------------------


def test_batches_of_several_threads_are_all_published(tmp_path: Path, hooks: Hooks) -> None:
    def run(query: hf.LocalQuery, rows: Any) -> Callable[[], object]:
        return lambda: query.run_batch(partitions_of(rows, 2))

    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        assert not together([run(query, rows) for rows in BATCHES])
        assert query.latest.batch_id == len(BATCHES) - 1
    assert ids_of(tmp_path) == sorted(row[1] for rows in BATCHES for row in rows)


def test_a_batch_that_was_overtaken_is_refused_and_not_dropped(
    tmp_path: Path, hooks: Hooks
) -> None:
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[0], 2), batch_id=0)
        query.run_batch(partitions_of(BATCHES[3], 2), batch_id=3)
        with pytest.raises(ValueError, match=r"batch 2 .* batch 3"):
            query.run_batch(partitions_of(BATCHES[2], 2), batch_id=2)
        # These are in checkpoints, so giving them again changes nothing.
        query.run_batch(partitions_of(BATCHES[0], 2), batch_id=0)
        query.run_batch(partitions_of(BATCHES[3], 2), batch_id=3)
        query.run_batch(partitions_of(BATCHES[2], 2))
    assert output_of(tmp_path / "out") == expected([BATCHES[0], BATCHES[3], BATCHES[2]])


def test_of_batches_that_threads_number_themselves_none_is_lost_without_an_error(
    tmp_path: Path, hooks: Hooks
) -> None:
    def run(query: hf.LocalQuery, number: int) -> Callable[[], object]:
        return lambda: query.run_batch(partitions_of(BATCHES[number], 2), batch_id=number)

    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        errors = together([run(query, number) for number in reversed(range(8))])
        assert all(isinstance(error, ValueError) for error in errors)
    assert len(ids_of(tmp_path)) == sum(map(len, BATCHES)) - len(errors) * len(BATCHES[0])


def test_everything_that_changes_a_pipeline_waits_for_its_turn(
    tmp_path: Path, hooks: Hooks
) -> None:
    gate = Gate()
    hooks.on_rows = lambda region, ids: gate.pass_through()
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        batch = threading.Thread(target=query.run_batch, args=(partitions_of(BATCHES[0], 2),))
        batch.start()
        assert gate.reached.wait(timeout=60)
        # Looking at a pipeline waits for nothing.
        assert query.latest.batch_id == -1
        assert len(query.history()) == 1
        assert query.metrics().attempts["global"] == 1
        assert "runs" in query._repr_html_()
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        query.stop_with_savepoint(tmp_path / "saved")
        batch.join()
    assert ids_of(tmp_path) == sorted(row[1] for row in BATCHES[0])
    restored = writer(tmp_path / "2", hooks).open_local(
        tmp_path / "ckpt-2", restore=hf.restore(tmp_path / "saved")
    )
    assert restored.latest.batch_id == 0
    restored.close()


def test_closing_waits_for_a_batch_so_that_its_folder_is_not_given_away(
    tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, interrupted = Gate(), threading.Event()
    hooks.on_rows = lambda region, ids: gate.pass_through()
    interrupt = Clock.interrupt

    def noted(self: Clock) -> None:
        interrupt(self)
        interrupted.set()

    monkeypatch.setattr(Clock, "interrupt", noted)
    query = writer(tmp_path, hooks).open_local(tmp_path / "ckpt")
    batch = threading.Thread(target=query.run_batch, args=(partitions_of(BATCHES[0], 2),))
    batch.start()
    assert gate.reached.wait(timeout=60)
    closing = threading.Thread(target=query.close)
    closing.start()
    assert interrupted.wait(timeout=60)
    with pytest.raises(hf.FolderInUseError):
        writer(tmp_path, hooks).open_local(tmp_path / "ckpt")
    gate.open()
    batch.join()
    closing.join()
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as again:
        assert again.latest.batch_id == 0
        again.run_batch(partitions_of(BATCHES[1], 2))
    assert output_of(tmp_path / "out") == expected(BATCHES[:2])


# --- the pipeline's own code --------------------------------------------------------------------

CALLS: dict[str, Callable[[hf.LocalQuery], object]] = {
    "run_batch": lambda query: query.run_batch(partitions_of(BATCHES[1], 2)),
    "finish": lambda query: query.finish(),
    "end_of_data": lambda query: query.end_of_data(),
    "stop_with_savepoint": lambda query: query.stop_with_savepoint("saved"),
    "close": lambda query: query.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_operator_cannot_call_its_own_pipeline(tmp_path: Path, hooks: Hooks, call: str) -> None:
    def own(region: str, ids: Any) -> None:
        CALLS[call](query)

    hooks.on_rows = own
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt", num_retained=1) as query:
        with pytest.raises(hf.RegionalQueryError, match=f"{call}.*own code") as found:
            query.run_batch(partitions_of(BATCHES[0], 2))
        assert "wait for itself" in str(found.value)
    hooks.calm()
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[0], 2))
    assert output_of(tmp_path / "out") == expected(BATCHES[:1])


@pytest.mark.parametrize("call", CALLS)
def test_rows_that_are_read_cannot_call_their_own_pipeline(
    tmp_path: Path, hooks: Hooks, call: str
) -> None:
    class Rows:
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            CALLS[call](query)
            return iter(())

    with (
        writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match=f"{call}.*own code"),
    ):
        query.run_batch([Rows()])


@pytest.mark.parametrize("call", CALLS)
def test_a_function_cannot_call_its_own_pipeline(tmp_path: Path, hooks: Hooks, call: str) -> None:
    taken = list[int]()

    def take(rows: pa.Table, checkpoint: int) -> None:
        if not taken:
            taken.append(checkpoint)
            CALLS[call](query)

    pipeline = hf.regional(region_by="region").apply(Troubled(hooks), schema=COUNTED)
    with (
        pipeline.foreach_batch(take).open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match=f"{call}.*own code"),
    ):
        query.run_batch(partitions_of(BATCHES[0], 2))
    with pipeline.foreach_batch(take).open_local(tmp_path / "ckpt") as query:
        assert query.latest.batch_id == 0


def test_an_operator_may_call_another_pipeline(tmp_path: Path, hooks: Hooks) -> None:
    calm = Hooks()
    other = writer(tmp_path / "other", calm).open_local(tmp_path / "other-ckpt")
    hooks.on_rows = lambda region, ids: other.run_batch(partitions_of(BATCHES[1], 2))
    with other, writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[0], 2, slices=1))
        assert other.latest.batch_id == len(REGIONS) - 1


# --- after close, and in another process --------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_a_pipeline_that_is_closed_says_so(tmp_path: Path, hooks: Hooks, call: str) -> None:
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[0], 2))
    if call == "close":
        query.close()
    else:
        with pytest.raises(hf.RegionalQueryError, match=f"{call}.* is closed"):
            CALLS[call](query)
    assert query.latest.batch_id == 0
    assert len(query.history()) == 2
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[1], 2))
    assert output_of(tmp_path / "out") == expected(BATCHES[:2])


def test_a_forked_child_can_neither_use_nor_close_its_parents_pipeline(
    tmp_path: Path, hooks: Hooks
) -> None:
    with writer(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(BATCHES[0], 2))
        child = os.fork()
        if not child:
            failed = 1
            try:
                for name, call in CALLS.items():
                    try:
                        call(query)
                    except hf.RegionalQueryError as e:
                        failed += "forked" not in str(e)
                    else:
                        failed += name != "close"
                failed -= 1
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(hf.FolderInUseError):
            writer(tmp_path, hooks).open_local(tmp_path / "ckpt")
        query.run_batch(partitions_of(BATCHES[1], 2))
    assert output_of(tmp_path / "out") == expected(BATCHES[:2])
