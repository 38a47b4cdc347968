"""State for another number of instances of an operator (R73)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import holdfast as hf
from pipelines import COUNTED, Troubled, expected, output_of, partitions_of, rows_of
from restorable import fail_for, no_trouble

REGIONS = ["r0", "r1"]
SEEN = pa.schema([("region", pa.string()), ("instance", pa.int64()), ("content", pa.string())])


class Keeping(hf.Operator):
    """Keeps row ids in states of several kinds, and puts out what it was opened with."""

    region_safe = False  # union and broadcast state is what regions agree on
    with_array: ClassVar[bool] = False

    def open(self, ctx: hf.OperatorContext) -> None:
        self.where = (ctx.region, ctx.instance)
        self.rows = ctx.state.list("rows")
        self.all = ctx.state.union("all")
        self.rule = ctx.state.broadcast("rule", {"limit": 1.5})
        if type(self).with_array:
            ctx.state.array("sums", shape=(4,))
        self.told = f"{sorted(self.rows.items)} {sorted(self.all.items)} {self.rule.value}"

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.rows.items += batch.column("id").to_pylist()
        self.all.items += [f"{row}:" + "x" * 200 for row in batch.column("id").to_pylist()]
        region, instance = self.where
        yield pa.RecordBatch.from_pydict(
            {"region": [region], "instance": [instance], "content": [self.told]}, schema=SEEN
        )


def keeping(path: Path, parallelism: int, output: str, **options: Any) -> hf.LocalQuery:
    route = options.pop("route_by", "id")
    return (
        hf.regional(region_by=options.pop("region_by", "region"))
        .apply(Keeping(), schema=SEEN, name="keep", parallelism=parallelism, route_by=route)
        .write_parquet(path / output)
        .open_local(path / options.pop("checkpoint", "ckpt"), regional=False, **options)
    )


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    no_trouble()
    Keeping.with_array = False
    yield
    no_trouble()
    Keeping.with_array = False


def saved(path: Path, parallelism: int, **options: Any) -> hf.regions.Restore:
    query = keeping(path, parallelism, "old", **options)
    query.run_batch(partitions_of(rows_of(0, REGIONS, each=9), 1))
    query.stop_with_savepoint(path / "saved")
    return hf.restore(path / "saved")


def kept(query: hf.LocalQuery, region: str) -> dict[str, dict[str, Any]]:
    """Content of the states of a region in the latest checkpoint, by instance and name."""
    from holdfast.regions.snapshot import RegionOwners, read_operator
    from holdfast.regions.state import _decode_value

    owners = RegionOwners("pipeline", region)
    return {
        entry.name: {
            state.name: _decode_value(state)
            for state in read_operator(query.manager, owners, entry)
        }
        for entry in query.latest.regions[region].operators
    }


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1), (4, 5)])
def test_lists_are_divided_evenly_and_the_rest_goes_to_all(
    tmp_path: Path, before: int, after: int
) -> None:
    origin = saved(tmp_path, before)
    with keeping(tmp_path, after, "new", checkpoint="next", restore=origin) as query:
        for region, first in (("r0", 0), ("r1", 1)):
            ids = [first + 10 * index for index in range(9)]
            states = kept(query, region)
            assert list(states) == (
                ["keep"] if after == 1 else [f"keep#{index}" for index in range(after)]
            )
            lists = [state["rows"] for state in states.values()]
            assert sorted(row for part in lists for row in part) == ids
            assert max(map(len, lists)) - min(map(len, lists)) <= 1
            for state in states.values():
                assert sorted(state["all"]) == sorted(f"{row}:" + "x" * 200 for row in ids)
                assert state["rule"] == {"limit": 1.5}


def test_the_new_instances_open_with_it_and_the_first_checkpoint_is_global(
    tmp_path: Path,
) -> None:  # R14
    origin = saved(tmp_path, 1)
    with keeping(tmp_path, 2, "new", checkpoint="next", restore=origin) as query:
        query.run_batch(partitions_of(rows_of(1, REGIONS, each=9), 1))
        assert query.latest.is_global
        assert query.latest.topology != b""
    with keeping(tmp_path, 2, "new", checkpoint="next") as query:
        assert sum(len(state["rows"]) for state in kept(query, "r0").values()) == 18


def test_what_has_finished_stays_finished_in_any_number_of_instances(
    tmp_path: Path,
) -> None:  # R60
    query = keeping(tmp_path, 1, "old")
    query.run_batch(partitions_of(rows_of(0, REGIONS, each=9), 1))
    query.end_of_data()
    query.stop_with_savepoint(tmp_path / "saved")
    origin = hf.restore(tmp_path / "saved")
    with keeping(tmp_path, 3, "new", checkpoint="next", restore=origin) as query:
        for entry in query.latest.regions.values():
            assert entry.finished
            assert [operator.finished for operator in entry.operators] == [True] * 3


def test_an_array_cannot_be_divided_and_is_named(tmp_path: Path) -> None:
    Keeping.with_array = True
    origin = saved(tmp_path, 2)
    with pytest.raises(
        hf.LayoutChangedError, match="operator 'keep' in region 'r0': array state 'sums'"
    ):
        keeping(tmp_path, 3, "new", checkpoint="next", restore=origin)
    assert not (tmp_path / "next").exists()
    keeping(tmp_path, 2, "new", checkpoint="next", restore=origin).close()


def test_other_routes_divide_state_too(tmp_path: Path) -> None:
    Keeping.with_array = True
    origin = saved(tmp_path, 2)
    with pytest.raises(hf.LayoutChangedError, match="array state 'sums'"):
        keeping(tmp_path, 2, "new", checkpoint="next", restore=origin, route_by="key")


def test_in_its_own_folder_a_pipeline_keeps_its_layout(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(hf.LayoutChangedError, match=r"'keep' changed.*restore=holdfast.restore"):
        keeping(tmp_path, 2, "old")
    with pytest.raises(hf.LayoutChangedError, match="named by 'region' and are named by 'key'"):
        keeping(tmp_path, 1, "old", region_by="key")
    with keeping(tmp_path, 1, "old") as query:
        assert len(kept(query, "r0")["keep"]["rows"]) == 9


def test_an_operator_that_is_gone_would_lose_its_state(tmp_path: Path) -> None:
    origin = saved(tmp_path, 1)
    pipeline = hf.regional(region_by="region").apply(Keeping(), schema=SEEN, name="renamed")
    for options in ({"checkpoint": "ckpt"}, {"checkpoint": "next", "restore": origin}):
        folder = tmp_path / str(options.pop("checkpoint"))
        with pytest.raises(hf.LayoutChangedError, match="state of operator 'keep'"):
            pipeline.write_parquet(tmp_path / "new").open_local(folder, regional=False, **options)


class Recounting(Troubled):
    """Counts in list state, so that any number of instances can go on with it."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.ids = ctx.state.list("ids")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ids = batch.column("id").to_pylist()
        if Troubled.trouble is not None:
            Troubled.trouble(self.region, ids)
        for row in ids:
            assert row not in self.ids.items
        self.ids.items += ids
        yield pa.RecordBatch.from_pydict(
            {"region": batch.column("region"), "id": ids, "seen": ids, "of_key": ids},
            schema=COUNTED,
        )


def test_rows_that_a_region_owes_reach_the_new_instances_once(tmp_path: Path) -> None:  # R57
    rows = [rows_of(number, [*REGIONS, "r2", "r3"]) for number in range(3)]

    def recounting(parallelism: int, checkpoint: str, **options: Any) -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(Recounting(), schema=COUNTED, name="c", parallelism=parallelism, route_by="id")
            .write_parquet(tmp_path / "out")
            .open_local(tmp_path / checkpoint, **options)
        )

    with recounting(1, "ckpt") as query:
        query.run_batch(partitions_of(rows[0], 2))
        fail_for("r1", range(1000, 2000))
        query.run_batch(partitions_of(rows[1], 2))
        assert set(query.latest.failed) == {"r1"}
    no_trouble()
    with recounting(3, "next", restore=hf.restore(tmp_path / "ckpt")) as query:
        query.run_batch(partitions_of(rows[2], 2))
        assert query.latest.is_global
    found = [(region, row) for region, row, _, _ in output_of(tmp_path / "out")]
    assert found == sorted((region, row) for region, row, _, _ in expected(rows))


def folder_with_rows_in(path: Path, channel: str) -> None:
    """A checkpoint folder in which one region has rows that wait in a channel."""
    from holdfast._core import CheckpointMetadata, InFlight, RegionEntry
    from holdfast.regions.graph import SOURCE, ChannelData, encode_channels
    from holdfast.regions.layout import LAYOUT_PROPERTY, Layout, StageLayout

    batches = partitions_of(rows_of(0, ["r0"], each=2), 1)[0]
    payload = encode_channels([ChannelData(channel, tuple(batches), "input")])
    name = SOURCE if channel == SOURCE else "graph"
    data = InFlight(1, name, 2, len(payload), inline=payload)
    layout = Layout(("region",), (StageLayout("keep", 1, ()),))
    (path / "metadata").mkdir(parents=True)
    CheckpointMetadata(
        1,
        0,
        "checkpoint",
        0,
        layout.fingerprint,
        [RegionEntry("r0", origin=1, in_flight=[data])],
        properties={"pipeline": "pipeline", LAYOUT_PROPERTY: layout.to_json()},
    ).write(path / "metadata")


def test_rows_between_operators_need_the_graph_they_are_in(tmp_path: Path) -> None:
    folder_with_rows_in(tmp_path / "ckpt", "source->keep.0")
    origin = hf.restore(tmp_path / "ckpt")
    with pytest.raises(hf.LayoutChangedError, match=r"wait in source->keep\.0.*savepoint"):
        keeping(tmp_path, 2, "new", checkpoint="next", restore=origin)
    keeping(tmp_path, 1, "new", checkpoint="next", restore=origin).close()
    two = (
        hf.regional(region_by="region")
        .apply(Keeping(), schema=SEEN, name="keep")
        .apply(Keeping(), schema=SEEN, name="more")
        .write_parquet(tmp_path / "new")
    )
    with pytest.raises(hf.LayoutChangedError, match="'r0' has rows that wait between operators"):
        two.open_local(tmp_path / "ckpt", regional=False)


def test_rows_in_front_of_the_operators_fit_every_graph(tmp_path: Path) -> None:
    folder_with_rows_in(tmp_path / "ckpt", "source")
    origin = hf.restore(tmp_path / "ckpt")
    with keeping(tmp_path, 2, "new", checkpoint="next", restore=origin) as query:
        query.run_batch(())
        assert sum(len(state["rows"]) for state in kept(query, "r0").values()) == 2
