"""Regions that are stuck go into quarantine: the pipeline stores their rows and runs without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.protocol.orders import TaskOptions
from holdfast.regions.task.region.quarantined_rows import LARGE_BYTES, merged_from
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import (
    COUNTED,
    Row,
    Troubled,
    expected,
    output_of,
    partitions_of,
    quarantining,
    rows_of,
    run_batches,
)
from support.regional.split_files import PLACED, Placed, splits_of
from support.regional.tuned import tune_tasks

REGIONS = [f"r{number:02}" for number in range(6)]
STUCK = "r00"
EVER = range(10**9)


pipeline = partial(quarantining, quarantine_after=2)
run = partial(run_batches, tasks=3)


def without(batches: Sequence[Sequence[Row]], region: str) -> list[list[Row]]:
    return [[row for row in rows if row[0] != region] for rows in batches]


def test_a_region_that_fell_back_often_enough_is_in_quarantine(
    tmp_path: Path, hooks: Hooks
) -> None:  # R27
    batches = [rows_of(number, REGIONS) for number in range(6)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:1])
        assert query.latest.failed == {STUCK: 1}
        run(query, batches[1:2], first=1)
        assert query.latest.is_global
        attempts = len(hooks.happened("open", region=STUCK))
        run(query, batches[2:], first=2)
        # No operator ran for it any more, and no checkpoint was regional.
        assert len(hooks.happened("open", region=STUCK)) == attempts
        assert [one.outcome for one in query.history()][-4:] == ["global"] * 4
        entry = query.latest.regions[STUCK]
        assert in_quarantine(entry)
        assert (entry.origin, entry.fallbacks) == (1, 2)
        assert sum(piece.rows for piece in entry.in_flight) == 6 * 5
        query.finish()
        assert query.latest.batch_id == 5
    assert output_of(tmp_path / "out") == expected(without(batches, STUCK))


def test_the_next_start_replays_it_once(tmp_path: Path, hooks: Hooks) -> None:  # R29
    batches = [rows_of(number, REGIONS) for number in range(8)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:4])
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[4:6], first=4)
        failed = [(one.outcome, [it.region for it in one.failed]) for one in query.history()]
        assert failed[-2:] == [("global", [STUCK]), ("global", [])]
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[6:], first=6)
        assert not any(entry.fallbacks for entry in query.latest.regions.values())
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_start_without_new_rows_replays_it_as_well(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS) for number in range(3)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches)
        query.finish()
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks)) as query:
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)


def test_it_does_not_count_as_a_failed_region(tmp_path: Path, hooks: Hooks) -> None:  # R12
    regions = [*REGIONS[:2], "r02"]
    batches = [rows_of(number, regions) for number in range(6)]

    def trouble(at: str, ids: Sequence[int]) -> None:
        if at == STUCK or (at == "r01" and any(id >= 3000 for id in ids)):
            raise RuntimeError(f"{at} is in trouble")

    hooks.on_rows = trouble
    with pipeline(tmp_path, Troubled(hooks), max_failure_ratio=0.1) as query:
        run(query, batches)
        assert sorted(r for r, e in query.latest.regions.items() if in_quarantine(e)) == [
            STUCK,
            "r01",
        ]


def test_a_region_that_keeps_failing_at_the_end_goes_into_quarantine(
    tmp_path: Path, hooks: Hooks
) -> None:  # R25, R27
    batches = [rows_of(number, REGIONS) for number in range(2)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(
        tmp_path, Troubled(hooks), quarantine_after=10, global_timeout=timedelta(0)
    ) as query:
        run(query, batches[:1])
        query.finish()
        assert in_quarantine(query.latest.regions[STUCK])
        run(query, batches[1:], first=1)
        query.end_of_data()
        finished = {name for name, entry in query.latest.regions.items() if entry.finished}
        assert finished == {*REGIONS} - {STUCK}
        query.end_of_data()
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks)) as query:
        query.end_of_data()
        assert all(entry.finished for entry in query.latest.regions.values())
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_savepoint_has_it_as_it_is(tmp_path: Path, hooks: Hooks) -> None:
    batches = [rows_of(number, REGIONS) for number in range(6)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:4])
        held = query.latest.regions[STUCK]
        query.stop_with_savepoint(tmp_path / "saved")
    hooks.calm()
    (tmp_path / "new").mkdir()
    with pipeline(
        tmp_path / "new", Troubled(hooks), restore=hf.restore(tmp_path / "saved")
    ) as query:
        copied = query.latest.regions[STUCK]
        assert in_quarantine(copied)
        assert (copied.origin, copied.cause) == (held.origin, held.cause)
        run(query, batches[4:], first=4)
    found = output_of(tmp_path / "out") + output_of(tmp_path / "new" / "out")
    assert sorted(found) == expected(batches)


def test_rows_beyond_the_bound_end_the_pipeline_with_the_reason(
    tmp_path: Path, hooks: Hooks
) -> None:  # R28
    batches = [rows_of(number, REGIONS) for number in range(30)]
    hooks.fail_for(STUCK, EVER)
    with (
        pipeline(tmp_path, Troubled(hooks), max_quarantined_bytes=10_000) as query,
        pytest.raises(hf.RegionalQueryError, match="more than max_quarantined_bytes") as caught,
    ):
        run(query, batches)
    assert "10000 are allowed" in str(caught.value)
    assert "r00 is in trouble" in str(caught.value)
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches)
    assert output_of(tmp_path / "out") == expected(batches)


def test_its_pieces_stay_few(
    tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:  # R28
    few = 8
    tune_tasks(monkeypatch.setattr, quarantine_pieces=few)
    batches = [rows_of(number, [STUCK, "r01"]) for number in range(3 * few)]
    hooks.fail_for(STUCK, EVER)
    most = 0
    with pipeline(tmp_path, Troubled(hooks)) as query:
        for number, rows in enumerate(batches):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
            most = max(most, len(query.latest.regions[STUCK].in_flight))
    assert most == few
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks)) as query:
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.parametrize("size", [1, 1_000, LARGE_BYTES // 3, LARGE_BYTES - 1, LARGE_BYTES])
def test_rows_are_written_again_few_times_and_pieces_are_bounded(size: int) -> None:  # R28
    most = TaskOptions().quarantine_pieces
    pieces: list[int] = []
    written = 0
    batches = 2_000
    for _ in range(batches):
        first = merged_from(pieces, size, most)
        merged = sum(pieces[first:]) + size
        pieces[first:] = [merged]
        written += merged
        assert merged < 2 * LARGE_BYTES + size
    assert len(pieces) <= (most + 1) * (1 + batches * size // (2 * LARGE_BYTES))
    assert written <= batches * size * batches.bit_length()


def test_a_running_pipeline_shows_and_releases_it(tmp_path: Path, hooks: Hooks) -> None:  # R29
    batches = [rows_of(number, REGIONS) for number in range(6)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:4])
        held = query.quarantine()
        (one,) = held.regions
        assert str(held) == "<Quarantine of 1 regions: 'r00'>"
        assert (one.region, one.fallbacks, one.origin, one.rows) == (STUCK, 2, 1, 20)
        assert "r00 is in trouble" in one.error
        assert query.metrics().quarantined_regions == 1
        assert query.metrics().quarantined_bytes == one.bytes > 0
        assert "rows in flight. In quarantine: r00 at 1." in query._repr_html_()
        rows = held.rows(STUCK)
        assert rows.column("_row").to_pylist() == list(range(20))
        assert rows.column("id").to_pylist() == [
            id for batch in batches[:4] for region, id, _ in batch if region == STUCK
        ]
        with pytest.raises(ValueError, match=r"'r01' is not in quarantine.*: 'r00'"):
            held.release("r01")
        held.release(STUCK)
        run(query, batches[4:5], first=4)
        assert [it.region for it in query.history()[-1].failed] == [STUCK]
        assert [it.fallbacks for it in held.regions] == [3]
        hooks.calm()
        held.release(STUCK)
        run(query, batches[5:], first=5)
        assert list(held.regions) == []
        assert query.metrics().quarantined_regions == 0
    assert output_of(tmp_path / "out") == expected(batches)


def test_the_command_prints_it_and_its_rows(
    tmp_path: Path, hooks: Hooks, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    batches = [rows_of(number, REGIONS, each=1) for number in range(3)]
    hooks.fail_for(STUCK, EVER)
    folder = str(tmp_path / "ckpt")
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:1])
        assert main(["quarantine", folder]) == 0
        assert b"nothing is in quarantine" in capsysbinary.readouterr().err
        run(query, batches[1:], first=1)
        # The pipeline may run meanwhile.
        assert main(["quarantine", folder]) == 0
    head, line = capsysbinary.readouterr().out.decode().splitlines()
    assert head.split() == ["region", "since", "fallbacks", "origin", "rows", "bytes", "error"]
    assert line.split()[0] == STUCK
    assert "r00 is in trouble" in line
    assert main(["quarantine", folder, "--json"]) == 0
    (one,) = json.loads(capsysbinary.readouterr().out)["quarantined"]
    assert (one["region"], one["rows"], one["fallbacks"]) == (STUCK, 3, 2)
    assert main(["quarantine", folder, "show", "--region", STUCK]) == 0
    shown = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(row["_row"], row["_checkpoint"], row["id"]) for row in shown] == [
        (0, 2, 0),
        (1, 3, 1000),
        (2, 4, 2000),
    ]
    assert main(["quarantine", folder, "show", "--region", STUCK, "--rows", "arrow"]) == 0
    with pa.ipc.open_stream(capsysbinary.readouterr().out) as stream:
        assert stream.read_all().to_pylist() == shown
    assert main(["quarantine", folder, "show", "--region", STUCK, "--rows", "parquet"]) == 0
    found = pq.read_table(pa.BufferReader(capsysbinary.readouterr().out))
    assert found.to_pylist() == shown
    assert main(["quarantine", folder, "show", "--region", "r01"]) == 2
    assert b"'r01' is not in quarantine" in capsysbinary.readouterr().err


class Summed(Hooked, hf.Operator):
    """Keeps the number of rows as a value, or in an array."""

    region_safe = True

    def __init__(self, hooks: Hooks, *, in_array: bool) -> None:
        super().__init__(hooks)
        self.in_array = in_array

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        if self.in_array:
            self.total = ctx.state.array("total", shape=1, dtype="int64", evolve=np.atleast_1d)
        else:
            self.value = ctx.state.value("total", 0)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.before(batch)
        if self.in_array:
            self.total += batch.num_rows
            seen = self.total[0]
        else:
            self.value.value += batch.num_rows
            seen = self.value.value
        row = {"region": [self.region], "id": [-1], "seen": [seen], "of_key": [0]}
        return pa.RecordBatch.from_pydict(row, schema=COUNTED)


def test_state_that_is_to_be_converted_is_converted_in_quarantine_as_well(
    tmp_path: Path, hooks: Hooks
) -> None:  # R78
    batches = [rows_of(number, REGIONS) for number in range(3)]

    def opened(*, in_array: bool) -> hf.LocalQuery:
        operator = Summed(hooks, in_array=in_array)
        return pipeline(tmp_path, operator, quarantine_after=1, global_timeout=timedelta(0))

    with opened(in_array=False) as query:
        run(query, batches[:1])
        hooks.fail_for(STUCK, EVER)
        run(query, batches[1:2], first=1)
        assert in_quarantine(query.latest.regions[STUCK])
    with (
        opened(in_array=True) as query,
        pytest.raises(hf.RegionalQueryError, match="r00 is in trouble"),
    ):
        run(query, batches[2:], first=2)
    hooks.calm()
    with opened(in_array=True) as query:
        run(query, batches[2:], first=2)
        assert not any(entry.fallbacks for entry in query.latest.regions.values())
    assert output_of(tmp_path / "out")[:3] == [(STUCK, -1, n, 0) for n in (5, 10, 15)]


def test_a_source_with_a_coordinator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    chain = hf.regional(splits_of(tmp_path)).apply(Placed(), schema=PLACED)
    writer = chain.write_parquet(tmp_path / "out")
    with pytest.raises(ValueError, match="quarantine_after=1 is not allowed with FileSplits"):
        writer.open_local(tmp_path / "ckpt", quarantine_after=1)
    assert not (tmp_path / "ckpt").exists()


def test_without_quarantine_after_it_is_a_region_that_owes_rows(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(number, REGIONS) for number in range(4)]
    hooks.fail_for(STUCK, EVER)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, batches[:3])
    hooks.calm()
    with pipeline(tmp_path, Troubled(hooks), quarantine_after=None) as query:
        run(query, batches[3:], first=3)
    assert output_of(tmp_path / "out") == expected(batches)
