"""State, and rows that wait, for another number of instances of an operator (R57, R73)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast._core import CheckpointMetadata, InFlight, RegionEntry
from holdfast.regions.api.options import PipelineOptions
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.routing import route_by
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout, StageLayout
from holdfast.regions.checkpoint.rerouting import Rerouting
from holdfast.regions.graph import (
    SOURCE,
    ChannelData,
    StageSpec,
    encode_channels,
    redistribute,
)
from holdfast.regions.state.kinds.encoding import decode_value
from holdfast.regions.state.segments import read_in_flight, read_operator
from support.regional.graph_cases import Seen, graph_of, outputs, run, snapshot_of
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import (
    COUNTED,
    KEYS,
    ROWS,
    Row,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r0", "r1"]
SEEN = pa.schema([("region", pa.string()), ("instance", pa.int64()), ("content", pa.string())])
WITH_INSTANCE = ROWS.append(pa.field("instance", pa.int64()))


class Keeping(hf.Operator):
    """Keeps row ids in states of several kinds, and puts out what it was opened with."""

    region_safe = False  # union and broadcast state is what regions agree on

    def __init__(self, *, with_array: bool = False) -> None:
        self.with_array = with_array

    def open(self, ctx: hf.OperatorContext) -> None:
        self.where = (ctx.region, ctx.instance)
        self.rows = ctx.state.list("rows")
        self.all = ctx.state.union("all")
        self.rule = ctx.state.broadcast("rule", {"limit": 1.5})
        if self.with_array:
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
    operator = Keeping(with_array=options.pop("with_array", False))
    return (
        hf.regional(region_by=options.pop("region_by", "region"))
        .apply(operator, schema=SEEN, name="keep", parallelism=parallelism, route_by=route)
        .write_parquet(path / output)
        .open_local(path / options.pop("checkpoint", "ckpt"), max_consecutive_failures=0, **options)
    )


def saved(path: Path, parallelism: int, **options: Any) -> hf.regions.Restore:
    query = keeping(path, parallelism, "old", **options)
    query.run_batch(partitions_of(rows_of(0, REGIONS, each=9), 1))
    query.stop_with_savepoint(path / "saved")
    return hf.restore(path / "saved")


def kept(query: hf.LocalQuery, region: str) -> dict[str, dict[str, Any]]:
    """Content of the states of a region in the latest checkpoint, by instance and name."""
    owners = RegionOwners("pipeline", region)
    return {
        entry.name: {
            state.name: decode_value(state) for state in read_operator(query.manager, owners, entry)
        }
        for entry in query.latest.regions[region].operators
    }


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1), (4, 5)])
def test_lists_are_divided_evenly_and_the_rest_goes_to_all(
    tmp_path: Path, before: int, after: int
) -> None:
    origin = saved(tmp_path, before)
    of_all = sorted(f"{row}:" + "x" * 200 for _, row, _ in rows_of(0, REGIONS, each=9))
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
                assert sorted(state["all"]) == of_all
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
    origin = saved(tmp_path, 2, with_array=True)
    with pytest.raises(
        hf.LayoutChangedError, match="operator 'keep' in region 'r0': array state 'sums'"
    ):
        keeping(tmp_path, 3, "new", checkpoint="next", restore=origin, with_array=True)
    assert not (tmp_path / "next").exists()
    keeping(tmp_path, 2, "new", checkpoint="next", restore=origin, with_array=True).close()


def test_other_routes_divide_state_too(tmp_path: Path) -> None:
    origin = saved(tmp_path, 2, with_array=True)
    with pytest.raises(hf.LayoutChangedError, match="array state 'sums'"):
        keeping(
            tmp_path, 2, "new", checkpoint="next", restore=origin, with_array=True, route_by="key"
        )


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
            pipeline.write_parquet(tmp_path / "new").open_local(
                folder, max_consecutive_failures=0, **options
            )


class Recounting(Troubled):
    """Counts in list state, so that any number of instances can go on with it."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.ids = ctx.state.list("ids")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        ids = batch.column("id").to_pylist()
        for row in ids:
            assert row not in self.ids.items
        self.ids.items += ids
        yield pa.RecordBatch.from_pydict(
            {"region": batch.column("region"), "id": ids, "seen": ids, "of_key": ids},
            schema=COUNTED,
        )


def test_rows_that_a_region_owes_reach_the_new_instances_once(
    tmp_path: Path, hooks: Hooks
) -> None:  # R57
    rows = [rows_of(number, [*REGIONS, "r2", "r3"]) for number in range(3)]

    def recounting(parallelism: int, checkpoint: str, **options: Any) -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(
                Recounting(hooks), schema=COUNTED, name="c", parallelism=parallelism, route_by="id"
            )
            .write_parquet(tmp_path / "out")
            .open_local(tmp_path / checkpoint, **options)
        )

    with recounting(1, "ckpt") as query:
        query.run_batch(partitions_of(rows[0], 2))
        hooks.fail_for("r1", range(1000, 2000))
        query.run_batch(partitions_of(rows[1], 2))
        assert set(query.latest.failed) == {"r1"}
    hooks.calm()
    with recounting(3, "next", restore=hf.restore(tmp_path / "ckpt")) as query:
        query.run_batch(partitions_of(rows[2], 2))
        assert query.latest.is_global
    found = [(region, row) for region, row, _, _ in output_of(tmp_path / "out")]
    assert found == sorted((region, row) for region, row, _, _ in expected(rows))


def layout_of(**parallelism: int) -> Layout:
    """Operators with these names, routed by the key where there are several instances."""
    stages = (
        StageLayout(name, count, ("key",) if count > 1 else ())
        for name, count in parallelism.items()
    )
    return Layout(("region",), tuple(stages))


def folder_with_rows_in(path: Path, channel: str, **parallelism: int) -> None:
    """A checkpoint folder in which one region has two rows that wait in a channel."""
    batches = partitions_of(rows_of(0, ["r0"], each=2), 1)[0]
    payload = encode_channels([ChannelData(channel, tuple(batches), "input")])
    folder_with(path, SOURCE if channel == SOURCE else "graph", payload, **parallelism)


def folder_with(path: Path, name: str, payload: bytes, **parallelism: int) -> None:
    data = InFlight(1, name, 2, len(payload), inline=payload)
    layout = layout_of(**parallelism or {"keep": 1})
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


# --- rows that wait between operators (R57) -----------------------------------------------------


class Stateless(Hooked):
    """Passes rows on one by one, in the order they come."""

    region_safe = True

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for number in range(batch.num_rows):
            yield self.passed_on(batch.slice(number, 1))

    def passed_on(self, row: pa.RecordBatch) -> pa.RecordBatch:
        return row


class Once(Stateless):
    """Never sees a row twice."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region, self.instance = ctx.region, ctx.instance
        self.ids = ctx.state.list("ids")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        ids = batch.column("id").to_pylist()
        assert not set(ids).intersection(self.ids.items)
        self.ids.items += ids
        return super().process(batch)


class Last(Once):
    """Adds which instance it was."""

    def passed_on(self, row: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [*row.columns, pa.array([self.instance])], schema=WITH_INSTANCE
        )


def two_stages(
    path: Path,
    parallelism: tuple[int, int],
    checkpoint: str,
    *,
    first: type[Stateless] = Once,
    route_by: str = "key",
    between: pa.Schema = ROWS,
    hooks: Hooks | None = None,
    **options: Any,
) -> hf.LocalQuery:
    """Two operators, in which rows wait if barriers overtake at once."""
    before, after = parallelism
    return (
        hf.regional(region_by="region")
        .apply(first(hooks), schema=between, name="first", parallelism=before, route_by="key")
        .apply(Last(hooks), schema=WITH_INSTANCE, name="last", parallelism=after, route_by=route_by)
        .write_parquet(path / "out")
        .open_local(path / checkpoint, **options)
    )


def waiting(query: hf.LocalQuery) -> dict[str, int]:
    """Number of rows that wait in each channel of region r0 in the latest checkpoint."""
    found: dict[str, int] = {}
    for data in query.latest.regions["r0"].in_flight:
        for entry in read_in_flight(query.manager, RegionOwners("pipeline", "r0"), data):
            rows = sum(batch.num_rows for batch in entry.batches)
            found[entry.channel] = found.get(entry.channel, 0) + rows
    return found


def rows_owed(checkpoint: CheckpointMetadata) -> dict[str, list[tuple[int, str, int]]]:
    return {
        region: [(data.created, data.channel, data.rows) for data in entry.in_flight]
        for region, entry in checkpoint.regions.items()
    }


def between(channels: Iterable[str]) -> list[str]:
    return [channel for channel in channels if channel.startswith("first.")]


def came_out(path: Path, *, after: int = 0) -> list[dict[str, Any]]:
    """Rows of each region in the order in which they came out, of checkpoints after this one."""
    # The names of the files begin with the checkpoint.
    files = sorted((path / "out").glob("*.parquet"))
    later = [file for file in files if int(file.name.split("-")[1]) > after]
    return [row for file in later for row in pq.read_table(file).to_pylist()]


def by_key(path: Path) -> dict[tuple[str, int], list[int]]:
    """Ids of each region and key, in the order in which they came out."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in came_out(path):
        found.setdefault((row["region"], row["key"]), []).append(row["id"])
    return found


def undisturbed(batches: Iterable[Sequence[Row]]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for rows in batches:
        for region, row, key in rows:
            found.setdefault((region, key), []).append(row)
    return found


def instance_of(key: int, parallelism: int) -> int:
    return zlib.crc32(str(key).encode()) % parallelism


def run_over_a_rescale(
    path: Path, before: tuple[int, int], after: tuple[int, int], *, each: int
) -> list[str]:
    """Run with rows that wait inside, go on in another layout, and check all that comes out.

    Returns the channels in which rows waited when the layout changed.
    """
    batches = [rows_of(number, REGIONS, each=each) for number in range(3)]
    overtaking = {"aligned_timeout": timedelta(0)}
    with two_stages(path, before, "ckpt", **overtaking) as query:
        query.run_batch(partitions_of(batches[0], 1))
        channels, old = waiting(query), query.latest
    origin = hf.restore(path / "ckpt")
    with two_stages(path, after, "next", restore=origin, **overtaking) as query:
        assert sum(waiting(query).values()) == sum(channels.values())
        assert rows_owed(query.latest) == rows_owed(old)
        # Rows go on waiting, over a restart.
        query.run_batch(partitions_of(batches[1], 1))
    with two_stages(path, after, "next") as query:
        query.run_batch(partitions_of(batches[2], 1))
        assert waiting(query) == {}
        for region in REGIONS:
            ids = [row for rows in batches for at, row, _ in rows if at == region]
            assert ids_seen(query, region, "first") == ids_seen(query, region, "last") == ids
    assert by_key(path) == undisturbed(batches)
    for row in came_out(path, after=old.id):
        assert row["instance"] == instance_of(row["key"], after[1])
    return list(channels)


def ids_seen(query: hf.LocalQuery, region: str, operator: str) -> list[int]:
    states = kept(query, region).items()
    return sorted(
        row for name, state in states if name.startswith(operator) for row in state["ids"]
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1, 1), (3, 3)),
        ((3, 3), (1, 1)),
        ((2, 2), (5, 5)),
        ((1, 3), (1, 2)),
        ((3, 1), (2, 1)),
        ((2, 1), (1, 4)),
    ],
)
def test_rows_that_wait_between_operators_go_where_the_new_routes_say(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int]
) -> None:
    # So many that they cannot be through before the barrier overtakes.
    assert between(run_over_a_rescale(tmp_path, before, after, each=90))


SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(SIZES, SIZES, st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_in_any_two_layouts_the_output_is_that_of_an_undisturbed_run(
    before: tuple[int, int], after: tuple[int, int], capacity_batches: int
) -> None:
    tasks = PipelineOptions.tasks
    changed = patch.object(
        PipelineOptions,
        "tasks",
        lambda self, **given: replace(tasks(self, **given), capacity_batches=capacity_batches),
    )
    with TemporaryDirectory() as folder, changed:
        run_over_a_rescale(Path(folder), before, after, each=25)


def rows_with_key(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch({"id": ids, "key": [number % KEYS for number in ids]})


THREE_STAGES = st.tuples(*[st.integers(1, 5)] * 3)
# Rows to feed; 0: steps.
WORK = st.lists(st.sampled_from([3, 0, 0, 7, 0]), max_size=20)


@given(st.lists(st.tuples(THREE_STAGES, WORK), min_size=2, max_size=4), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_wherever_rows_wait_over_however_many_layouts_each_key_keeps_its_order(
    layouts: list[tuple[tuple[int, ...], list[int]]], capacity: int
) -> None:
    fed = 0
    found: list[int] = []
    old: Layout | None = None
    in_flight: tuple[ChannelData, ...] = ()
    for attempt, (sizes, work) in enumerate(layouts, start=1):
        layout = layout_of(**dict(zip("abc", sizes, strict=True)))
        instances = {stage.name: [Seen() for _ in stage.instances] for stage in layout.stages}
        graph = graph_of(
            *(
                StageSpec(stage.name, instances[stage.name], route_by(stage.route_by or ["key"]))
                for stage in layout.stages
            ),
            capacity=capacity,
            timeout_ms=0,
        )
        graph.restore(redistribute(in_flight, Rerouting(old or layout, layout, "r0")))
        for count in [*work, 5]:
            if count and graph.room():
                graph.feed(rows_with_key(fed, count))
                fed += count
            graph.step(0)
        if attempt == len(layouts):
            run(graph)
        graph.barrier(attempt, 0, 0)
        in_flight, old = snapshot_of(graph).in_flight, layout
        found += outputs(graph)
        for several in instances.values():
            for number, instance in enumerate(several):
                assert {instance_of(row % KEYS, len(several)) for row in instance.seen} <= {number}
    assert sorted(found) == list(range(fed))
    for key in range(KEYS):
        assert [row for row in found if row % KEYS == key] == list(range(key, fed, KEYS))


def test_rows_of_a_failed_region_follow_those_that_waited_before(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(number, REGIONS, each=90) for number in range(3)]
    with two_stages(tmp_path, (2, 2), "ckpt", hooks=hooks, aligned_timeout=timedelta(0)) as query:
        query.run_batch(partitions_of(batches[0], 1))
        hooks.fail_for("r0", range(10_000))
        query.run_batch(partitions_of(batches[1], 1))
        assert set(query.latest.failed) == {"r0"}
        channels = waiting(query)
        assert between(channels)
        assert channels[SOURCE] >= 90
    hooks.calm()
    with two_stages(
        tmp_path, (5, 3), "next", hooks=hooks, restore=hf.restore(tmp_path / "ckpt")
    ) as query:
        query.run_batch(partitions_of(batches[2], 1))
    assert by_key(tmp_path) == undisturbed(batches)


def test_an_operator_without_state_is_rescaled_with_the_rows_it_put_out(tmp_path: Path) -> None:
    rows = rows_of(0, REGIONS, each=90)
    overtaking = {"first": Stateless, "aligned_timeout": timedelta(0)}
    with two_stages(tmp_path, (3, 1), "ckpt", **overtaking) as query:
        query.run_batch(partitions_of(rows, 1))
        assert between(waiting(query))
    origin = hf.restore(tmp_path / "ckpt")
    with two_stages(tmp_path, (2, 1), "next", first=Stateless, restore=origin) as query:
        query.finish()
    assert by_key(tmp_path) == undisturbed([rows])


def test_rows_that_wait_follow_another_route(tmp_path: Path) -> None:
    rows = rows_of(0, REGIONS, each=90)
    with two_stages(tmp_path, (1, 3), "ckpt", aligned_timeout=timedelta(0)) as query:
        query.run_batch(partitions_of(rows, 1))
        assert between(waiting(query))
        before = query.latest
    origin = hf.restore(tmp_path / "ckpt")
    with two_stages(tmp_path, (1, 3), "next", route_by="id", restore=origin) as query:
        query.finish()
    found = {of: sorted(ids) for of, ids in by_key(tmp_path).items()}
    assert found == undisturbed([rows]), "rows of one key go different ways"
    for row in came_out(tmp_path, after=before.id):
        assert row["instance"] == instance_of(row["id"], 3)


def test_rows_that_cannot_follow_another_route_are_named(tmp_path: Path) -> None:
    with two_stages(tmp_path, (1, 3), "ckpt", aligned_timeout=timedelta(0)) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS, each=90), 1))
    origin = hf.restore(tmp_path / "ckpt")
    wider = ROWS.append(pa.field("nothing", pa.int64()))
    with pytest.raises(
        hf.LayoutChangedError,
        match=r"'r0' has rows that wait in first\.0->last\.0, which cannot be routed to the 2 "
        "instances of operator 'last': .*'nothing'",
    ):
        two_stages(tmp_path, (1, 2), "next", route_by="nothing", between=wider, restore=origin)
    assert not (tmp_path / "next").exists()


def opened(path: Path, names: str, checkpoint: str, **options: Any) -> hf.LocalQuery:
    """A pipeline of operators with these names, one after the other."""
    pipeline = hf.regional(region_by="region")
    for name in names.split():
        pipeline = pipeline.apply(Once(), schema=ROWS, name=name)
    return pipeline.write_parquet(path / "out").open_local(path / checkpoint, **options)


def rows_inside(path: Path, channel: str) -> hf.regions.Restore:
    """A checkpoint of operators a, b and c with rows that wait in a channel."""
    folder_with_rows_in(path / "ckpt", channel, a=1, b=1, c=1)
    return hf.restore(path / "ckpt")


@pytest.mark.parametrize(
    ("channel", "names", "problem"),
    [
        (
            "a.0->b.0",
            "a x b c",
            "now operator 'b' comes after operator 'x', not after operator 'a'",
        ),
        ("a.0->b.0", "b a c", "now operator 'b' comes after the source, not after operator 'a'"),
        ("a.0->b.0", "a c b", "now operator 'b' comes after operator 'c', not after operator 'a'"),
        ("a.0->b.0", "c a b", "now operator 'c' comes before them"),
        ("b.0->c.0", "b c a", "now operator 'a' comes after them"),
        (
            "source->a.0",
            "x a b c",
            "now operator 'a' comes after operator 'x', not after the source",
        ),
        ("a.0->b.0", "a c", "the checkpoint has state of operator 'b'"),
        ("a.0->b.0", "b c", "the checkpoint has state of operator 'a'"),
    ],
)
def test_rows_between_operators_need_the_same_ones_behind_and_before_them(
    tmp_path: Path, channel: str, names: str, problem: str
) -> None:
    origin = rows_inside(tmp_path, channel)
    with pytest.raises(hf.LayoutChangedError, match=problem):
        opened(tmp_path, names, "next", restore=origin)
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize("names", ["a b c x", "x a b c", "a b x c"])
def test_operators_elsewhere_do_not_matter_to_rows_that_wait(tmp_path: Path, names: str) -> None:
    origin = rows_inside(tmp_path, "a.0->b.0")
    with opened(tmp_path, names, "next", restore=origin) as query:
        query.finish()
        seen = {name: state["ids"] for name, state in kept(query, "r0").items()}
    assert (seen["a"], seen["b"], seen["c"]) == ([], [0, 10], [0, 10])


def test_in_its_own_folder_rows_between_operators_keep_their_graph(tmp_path: Path) -> None:
    rows_inside(tmp_path, "a.0->b.0")
    with pytest.raises(hf.LayoutChangedError, match="'r0' has rows that wait between operators"):
        opened(tmp_path, "a b c x", "ckpt")
    opened(tmp_path, "a b c", "ckpt").close()


def test_rows_that_were_routed_to_the_first_operator_are_routed_anew(tmp_path: Path) -> None:
    folder_with_rows_in(tmp_path / "ckpt", "source->keep.0")
    origin = hf.restore(tmp_path / "ckpt")
    with keeping(tmp_path, 3, "new", checkpoint="next", restore=origin) as query:
        assert sum(waiting(query).values()) == 2
        query.run_batch(())
        found = {name: state["rows"] for name, state in kept(query, "r0").items()}
    for row in (0, 10):
        assert row in found[f"keep#{instance_of(row, 3)}"]
    assert sum(map(len, found.values())) == 2


@pytest.mark.parametrize("channel", ["source->keep.1", "keep.0->more.0", "nonsense"])
def test_rows_in_a_channel_that_the_checkpoint_cannot_have_are_bad_data(
    tmp_path: Path, channel: str
) -> None:
    folder_with_rows_in(tmp_path / "ckpt", channel)
    origin = hf.restore(tmp_path / "ckpt")
    with pytest.raises(
        ValueError, match=f"'r0' has rows that wait in '{channel}': expected one of source, source-"
    ):
        keeping(tmp_path, 2, "new", checkpoint="next", restore=origin)
    assert not (tmp_path / "next").exists()


def test_rows_that_cannot_be_read_are_bad_data(tmp_path: Path) -> None:
    folder_with(tmp_path / "ckpt", "graph", b"HFIF and so on")
    origin = hf.restore(tmp_path / "ckpt")
    with pytest.raises(ValueError, match="region 'r0', checkpoint 1: in-flight data"):
        keeping(tmp_path, 2, "new", checkpoint="next", restore=origin)
    assert not (tmp_path / "next").exists()


def test_rows_in_front_of_the_operators_fit_every_graph(tmp_path: Path) -> None:
    folder_with_rows_in(tmp_path / "ckpt", "source")
    origin = hf.restore(tmp_path / "ckpt")
    with keeping(tmp_path, 2, "new", checkpoint="next", restore=origin) as query:
        query.run_batch(())
        assert sum(len(state["rows"]) for state in kept(query, "r0").values()) == 2
