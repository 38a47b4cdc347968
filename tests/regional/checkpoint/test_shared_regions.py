"""A checkpoint of a thousand regions and more writes what changed, and shares the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.regions.files.folders import BASE_SUFFIX, CheckpointFolders
from support.commands import run as command

ROWS = pa.schema([("region", pa.string()), ("value", pa.int64())])
COUNT = 1_100


class Sums(hf.Operator):
    """Adds up the values of a region, and puts out the sums."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.sum = ctx.state.value("sum", default=0)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.sum.value += sum(batch.column("value").to_pylist())
        return pa.record_batch(
            {"region": batch.column("region")[:1], "value": [self.sum.value]}, schema=ROWS
        )


def opened(path: Path, *, checkpoint: str = "ckpt", out: str = "out", **more: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Sums(), schema=ROWS)
        .write_parquet(path / out)
        .open_local(path / checkpoint, **more)
    )


def run(query: hf.LocalQuery, *regions: int) -> None:
    rows = {"region": [f"r{n:04}" for n in regions], "value": [1] * len(regions)}
    query.run_batch([[pa.record_batch(rows, schema=ROWS)]])


def shared(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "ckpt" / "metadata").glob(f"*{BASE_SUFFIX}"))


def sums(query: hf.LocalQuery, *regions: int) -> list[int]:
    """The sums of regions, as an operator that goes on from the checkpoint has them."""
    found = []
    for number in regions:
        entry = query.latest.region(f"r{number:04}")
        assert entry is not None
        ((state,),) = (operator.states for operator in entry.operators)
        found.append(int(state.inline or b""))
    return found


def test_a_pipeline_writes_what_changed_and_goes_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = CheckpointFolders(tmp_path / "ckpt")
    with opened(tmp_path) as query:
        run(query, *range(COUNT))
        whole = folders.metadata_file(query.latest.id).status().st_size
        assert shared(tmp_path) == []
        for number in range(5):
            run(query, 1, number)
        (base,) = shared(tmp_path)
        assert query.latest.base_file == base
        assert folders.metadata_file(query.latest.id).status().st_size * 4 < whole
        assert sums(query, 0, 1, 2, 4, 9) == [2, 7, 2, 2, 1]
    left, newer = f"{base[:17]}{0:032x}{BASE_SUFFIX}", f"000f{base[4:]}"
    for name in (left, newer):
        (tmp_path / "ckpt" / "metadata" / name).write_bytes(b"by another driver")
    with opened(tmp_path) as query:
        # A driver that has taken over meanwhile may have written the newer one.
        assert shared(tmp_path) == [base, newer]
        run(query, 9)
        assert sums(query, 0, 1, 2, 4, 9) == [2, 7, 2, 2, 2]
        assert shared(tmp_path) == [base, newer]
        latest = query.latest
    status, lines, _ = command(capsys, "verify", tmp_path / "ckpt")
    assert status == 0, lines
    assert command(capsys, "show", tmp_path / "ckpt")[0] == 0
    with opened(tmp_path, checkpoint_id=latest.id - 1) as query:
        assert sums(query, 0, 1, 2, 4, 9) == [2, 7, 2, 2, 1]
        query.stop_with_savepoint(tmp_path / "saved")
    assert not list((tmp_path / "saved" / "metadata").glob(f"*{BASE_SUFFIX}"))
    origin = hf.restore(tmp_path / "ckpt")
    with opened(tmp_path, checkpoint="second", out="second-out", restore=origin) as query:
        assert sums(query, 0, 1, 2, 4, 9) == [2, 7, 2, 2, 1]


def test_regions_that_no_checkpoint_names_go_with_the_last_one_that_did(tmp_path: Path) -> None:
    with opened(tmp_path, num_retained=2) as query:
        run(query, *range(COUNT))
        run(query, 1)  # all others do without the files that they staged
        run(query, 1)
        (first,) = shared(tmp_path)
        run(query, *range(600))
        assert shared(tmp_path) == [first]
        run(query, 2)
        assert shared(tmp_path) == []
        run(query, 3)
        (second,) = shared(tmp_path)
        assert second != first
        assert sums(query, 1, 2, 3, 700) == [4, 3, 3, 1]


def test_missing_regions_are_damage_of_the_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path) as query:
        run(query, *range(COUNT))
        run(query, 1)
        run(query, 1)
    (base,) = shared(tmp_path)
    file = tmp_path / "ckpt" / "metadata" / base
    content = file.read_bytes()
    file.unlink()
    before = sorted((tmp_path / "ckpt").rglob("*"))
    with pytest.raises(hf.DamagedCheckpointError, match="its regions are missing") as raised:
        opened(tmp_path)
    assert raised.value.intact == raised.value.checkpoint - 1
    assert [path for path in sorted((tmp_path / "ckpt").rglob("*")) if path in before] == before
    file.write_bytes(content)
    with opened(tmp_path) as query:
        assert sums(query, 0, 1) == [1, 3]


class Total(hf.Operator):
    """Has another state than `Sums`."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.total = ctx.state.value("total", default=0)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class Arrays(Sums):
    """Adds up in an array that is not in the metadata."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.sums = ctx.state.array("sums", shape=(512,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.sums += sum(batch.column("value").to_pylist())
        return pa.record_batch(
            {"region": batch.column("region")[:1], "value": self.sums[511:]}, schema=ROWS
        )


def test_state_in_another_form_is_found_in_shared_regions(tmp_path: Path) -> None:
    with opened(tmp_path) as query:
        run(query, *range(COUNT))
        run(query, 1)
        run(query, 1)
    writer = (
        hf.regional(region_by="region")
        .apply(Total(), name="Sums", schema=ROWS)
        .write_parquet(tmp_path / "out")
    )
    with pytest.raises(hf.LayoutChangedError, match="state 'sum' of operator 'Sums'"):
        writer.open_local(tmp_path / "ckpt")
    with writer.open_local(tmp_path / "ckpt", drop_undeclared_state=True) as query:
        run(query, 1)
        for entry in query.latest.regions.values():
            assert [state.name for one in entry.operators for state in one.states] == ["total"]


def test_segments_of_idle_regions_outlive_starts_and_batches(tmp_path: Path) -> None:
    known = 2_100  # so many that managers do not hear of every checkpoint

    def opened() -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(Arrays(), schema=ROWS)
            .write_parquet(tmp_path / "out")
            .open_local(tmp_path / "ckpt")
        )

    for active in (range(known), range(10), range(5, 20), range(10, 12), range(known)):
        with opened() as query:
            for _ in range(2):
                run(query, *active)
    rows = pq.read_table(tmp_path / "out").group_by("region").aggregate([("value", "max")])
    found = dict(zip(*rows.to_pydict().values(), strict=True))
    few = {
        n: 4 + 2 * sum(n in some for some in (range(10), range(5, 20), range(10, 12)))
        for n in range(known)
    }
    assert found == {f"r{n:04}": count for n, count in few.items()}
