"""Array states of many chunks, and pipelines, with every array module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.regions.state.arrays.chunks import MIB, Layout
from support.regional.array_checkpoints import ArrayCheckpoints
from support.regional.array_modules import on_host


def random_bytes(xp: Any, size: int, seed: int = 1) -> Any:
    return xp.asarray(np.random.default_rng(seed).integers(0, 256, size, np.uint8))


@pytest.mark.parametrize("size", [0, 1, 4096, MIB, MIB + 1, 20 * MIB + 13])
def test_an_array_comes_back_as_it_was_at_its_snapshot(tmp_path: Path, xp: Any, size: int) -> None:
    with ArrayCheckpoints(tmp_path, shape=(size,), layout=Layout(), xp=xp) as world:
        world.array[...] = random_bytes(xp, size)
        content = world.host().copy()
        world.attempt()
        world.restart()
        assert type(world.array) is xp.ndarray
        assert np.array_equal(world.host(), content)


@pytest.mark.parametrize("shape", [(), (3, 5), (700, 601)])
@pytest.mark.parametrize("dtype", ["?", "i1", "f2", "f4", "f8", "c16"])
def test_types_and_shapes_come_back(
    tmp_path: Path, xp: Any, shape: tuple[int, ...], dtype: str
) -> None:
    with ArrayCheckpoints(tmp_path, shape=shape, dtype=dtype, layout=Layout(), xp=xp) as world:
        content = np.random.default_rng(3).integers(0, 100, shape).astype(dtype)
        world.restore_content(content)
        world.attempt()
        world.restart()
        assert world.host().dtype == content.dtype
        assert np.array_equal(world.host(), content)


def test_only_chunks_that_changed_are_written(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(40 * MIB + 9,), layout=Layout(), xp=xp) as world:
        world.array[...] = random_bytes(xp, 40 * MIB + 9)
        world.attempt()
        assert world.appended_bytes == 40 * MIB + 9
        world.array[5 * MIB] += 1
        world.array[-1] += 1
        world.attempt()
        assert world.appended_bytes == 41 * MIB + 18
        assert np.array_equal(world.stored(world.retained[-1]), world.host())


def test_after_a_failure_the_array_is_that_of_the_last_checkpoint(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(9 * MIB,), layout=Layout(), xp=xp) as world:
        world.array[...] = random_bytes(xp, 9 * MIB)
        world.attempt()
        content = world.host().copy()
        world.array[: 2 * MIB] = 0
        world.attempt("fell back")
        assert np.array_equal(world.host(), content)
        written = world.appended_bytes
        world.array[3] += 1
        world.attempt()
        assert world.appended_bytes - written == MIB
        assert np.array_equal(world.stored(world.retained[-1]), world.host())


def test_a_snapshot_waits_for_work_that_was_queued_before_it(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(2 * MIB,), dtype="f8", layout=Layout(), xp=xp) as world:
        for _ in range(50):
            world.array += 1
        world.attempt()
        assert np.array_equal(world.stored(world.retained[-1]), np.full(2 * MIB, 50.0))


class Sums(hf.Operator):
    """Counts by key, in an array large enough to be cut in chunks.

    A region fails after it changed the array, while a file of its name is there.
    """

    region_safe = True

    def __init__(self, troubles: Path) -> None:
        self.troubles = troubles

    def open(self, ctx: hf.OperatorContext) -> None:
        self.xp = ctx.xp
        self.sums = ctx.state.array("sums", shape=(300_000,), dtype="float64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = self.xp.asarray(batch.column("key").to_numpy())
        self.xp.add.at(self.sums, keys, 1.0)
        region = batch.column("region")[0].as_py()
        if (self.troubles / region).exists():
            raise RuntimeError(f"{region} is in trouble")
        sums = self.sums[keys]
        yield batch.append_column("sum", pa.array(on_host(sums)))


ROWS = pa.schema([("region", pa.string()), ("key", pa.int64())])


def test_a_region_that_fails_goes_on_from_its_last_state_also_after_a_restart(
    tmp_path: Path, xp: Any
) -> None:
    troubles = tmp_path / "troubles"
    troubles.mkdir()
    rows = pa.record_batch({"region": ["a", "a", "b"], "key": [7, 299_999, 299_999]}, schema=ROWS)

    def opened() -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(Sums(troubles), schema=ROWS.append(pa.field("sum", pa.float64())))
            .write_parquet(tmp_path / "out")
            .open_local(tmp_path / "ckpt", gpu=xp is not np)
        )

    with opened() as query:
        query.run_batch([[rows]], batch_id=0)
        origin = query.latest.id
        (troubles / "b").touch()
        query.run_batch([[rows]], batch_id=1)
        assert query.latest.failed == {"b": origin}
    with opened() as query:
        query.run_batch([[rows]], batch_id=2)
        assert query.latest.failed == {"b": origin}
        (troubles / "b").unlink()
        query.run_batch([[rows]], batch_id=3)
        assert query.latest.is_global
    published = sorted(
        (row["region"], row["key"], row["sum"])
        for file in (tmp_path / "out").glob("*.parquet")
        for row in pq.read_table(file).to_pylist()
    )
    counts = [1.0, 2.0, 3.0, 4.0]
    assert published == [
        *(("a", 7, count) for count in counts),
        *(("a", 299_999, count) for count in counts),
        *(("b", 299_999, count) for count in counts),
    ]
