"""The operator matrix: after every batch, Holdfast has given the rows that RocksDB gives.

A cell is an operator in an output mode, a number of partitions, and whether the query is restarted
half-way. What a cell costs is its partitions, above all on RocksDB: about 100 ms of task time per
partition, store and batch, so 20 s for one batch of a join on 200. Python's transformWithState
costs as much on any provider. Rows do not depend on the number of partitions, so RocksDB runs each
case on one, and Holdfast is compared with that run; on 200 there are fewer batches. ``make test``
runs one of each way of keeping state with a restart, on 5 partitions or on 1. The other cells are
marked ``full``; ``make test-matrix`` runs all, which takes about an hour on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.spark.cases import CASES
from support.spark.gaps import gap_of
from support.spark.minors import IS_NEWEST, is_older_than
from support.spark.operator_cases import REMOVED
from support.spark.operator_inputs import (
    BATCHES,
    dwindling,
    dwindling_anew,
    dwindling_slowly,
    events,
)
from support.spark.queries import (
    EVICTING,
    NAMED,
    Batches,
    require_served_by,
    run,
    select_provider,
    settings,
)
from support.spark.state_files import commit_ids, delta_runs

Stream = Callable[[int], list[list[dict[str, Any]]]]

# Enough for what every run has: the matrix has 1, 20 and 200.
FEW = 5

# Micro-batches with data, by number of partitions.
BATCHES_ON = {1: BATCHES, FEW: BATCHES, 20: BATCHES, 200: BATCHES // 2}

#: Cases of which these minors do not count the rows that the join removes, on any provider.
REMOVED_NOT_COUNTED = {"join-full-append"} if is_older_than("4.3") else set()

# One for each way of keeping state in plain stores: one value per key, scans by prefix, four stores
# per partition.
SAMPLE = {
    "windows-append",
    "sessions-append",
    "join-full-append",
}

# One for each way of Spark's operators to use the stores of many partitions.
EVERYDAY = SAMPLE | {
    "aggregation-update",
    "dropDuplicates-append",
    "flatMapGroupsWithState-event-time-append",
}

# With those above, one for each way of keeping state that Spark's own suites do not cover: on one
# partition, which takes the least time. Lists come with what is read from runs, see COLD.
QUICK = {
    "applyInPandasWithState-update",
    "transformWithState-event-timers-update",
    "transformWithStateInPandas-map-update",
    "transformWithStateOnJvm-update",
}

# One for each of Spark's operators, on the older minors: two batches, a restart, two more.
OPERATORS = EVERYDAY | {
    "applyInPandasWithState-update",
    "dropDuplicatesWithinWatermark-append",
    "limit-append",
    "mapGroupsWithState-event-time-update",
    "transformWithState-event-timers-update",
    "transformWithStateOnJvm-update",
    "transformWithStateInPandas-map-update",
}

SHORT = 4

EVERYDAY_ON: dict[int, set[str]] = {1: QUICK, FEW: EVERYDAY, 20: set(), 200: set()}


def run_case(
    spark: SparkSession,
    name: str,
    *,
    provider: str,
    partitions: int,
    batches: int,
    restart: bool,
    folder: Path,
    more: Mapping[str, str] | None = None,
    progress: list[dict[str, Any]] | None = None,
    stream: Stream | None = None,
    rest_s: float = 0,
) -> Batches:
    def rows_of(number: int) -> list[list[dict[str, Any]]]:
        return stream(number) if stream else events(number, batches=batches)

    case = CASES[name]
    wanted = {"spark.sql.shuffle.partitions": str(partitions), **case.settings, **(more or {})}
    progress = [] if progress is None else progress
    select_provider(spark, provider)
    try:
        with settings(spark, wanted):
            rows = run(
                spark,
                inputs={name: rows_of(number) for number, name in enumerate(case.streams)},
                query=case.query,
                mode=case.mode,
                folder=folder,
                parts=2 if restart else 1,
                progress=progress,
                rest_s=rest_s,
            )
    finally:
        select_provider(spark, "holdfast")
    # Otherwise both runs of a cell might be served by the same one, and agree.
    require_served_by(provider, folder / "checkpoint")
    if batches == BATCHES and not stream:
        require_interest(name, rows, progress)
    return rows


def require_interest(name: str, rows: Batches, progress: list[dict[str, Any]]) -> None:
    """What the case is there for has happened."""
    case = CASES[name]
    for what, shown in case.shows.items():
        assert any(shown(row) for batch in rows.values() for row in batch), what
    operators = [operator for batch in progress for operator in batch["stateOperators"]]
    for number in case.counts:
        if number == REMOVED and name in REMOVED_NOT_COUNTED:
            continue
        counted = [o.get(number, o["customMetrics"].get(number, 0)) for o in operators]
        assert sum(counted) > 0, number


class Reference:
    """Rows that RocksDB gives, computed once for each case."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.known: dict[tuple[str, int, bool], Batches] = {}

    def rows(
        self, name: str, *, batches: int, restart: bool, stream: Stream | None = None
    ) -> Batches:
        key = (name, batches, restart)
        if key not in self.known:
            self.known[key] = run_case(
                self.spark,
                name,
                provider="rocksdb",
                partitions=1,
                batches=batches,
                restart=restart,
                folder=self.folder / f"{name}-{batches}-{restart}",
                stream=stream,
            )
        return self.known[key]


@pytest.fixture(scope="module")
def reference(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(spark, tmp_path_factory.mktemp("reference"))


def cells() -> Iterator[object]:
    for name in CASES:
        for restart in (True, False):
            for partitions, batches in BATCHES_ON.items():
                if partitions == FEW and not (restart and name in EVERYDAY):
                    continue
                marks = []
                if restart and partitions in (1, 20):
                    marks.append(pytest.mark.versions)
                if not (IS_NEWEST and restart and name in EVERYDAY_ON[partitions]):
                    marks.append(pytest.mark.full)
                yield pytest.param(
                    name,
                    partitions,
                    batches,
                    restart,
                    marks=marks,
                    id=f"{name}-{partitions}-{'restarted' if restart else 'in-one-go'}",
                )
        # See `make test-versions-quick`.
        if not IS_NEWEST and name in OPERATORS:
            yield pytest.param(name, 1, SHORT, True, id=f"{name}-1-short")


@pytest.mark.parametrize(("name", "partitions", "batches", "restart"), list(cells()))
def test_rows_equal_those_of_rocksdb_after_every_batch(
    name: str,
    partitions: int,
    batches: int,
    restart: bool,
    spark: SparkSession,
    reference: Reference,
    tmp_path: Path,
) -> None:
    if gap := gap_of(name, partitions):
        with pytest.raises(Exception, match=gap.error):
            run_case(
                spark,
                name,
                provider="rocksdb",
                partitions=partitions,
                batches=batches,
                restart=restart,
                folder=tmp_path,
            )
        pytest.skip(gap.reason)
    expected = reference.rows(name, batches=batches, restart=restart)
    rows = run_case(
        spark,
        name,
        provider="holdfast",
        partitions=partitions,
        batches=batches,
        restart=restart,
        folder=tmp_path,
    )
    assert len(expected) >= batches
    assert sum(map(len, expected.values())) > 0
    assert rows == expected


@pytest.mark.full
@pytest.mark.skipif(is_older_than("4.2"), reason="Spark 4.2 has named sources")
@pytest.mark.parametrize("name", CASES)
def test_rows_equal_those_of_rocksdb_where_sources_have_names(
    name: str, spark: SparkSession, reference: Reference, tmp_path: Path
) -> None:
    if gap := gap_of(name, 1):
        pytest.skip(gap.reason)
    rows = run_case(
        spark,
        name,
        provider="holdfast",
        partitions=1,
        batches=SHORT,
        restart=True,
        folder=tmp_path,
        more=NAMED,
    )
    assert rows == reference.rows(name, batches=SHORT, restart=True)
    plan = (tmp_path / "checkpoint" / "offsets" / "0").read_text().split("\n")
    assert plan[0] == "v2"
    assert {line.split(":")[0] for line in plan[2:]} == set(CASES[name].streams)


#: By how many versions stay in memory: where none does, maintenance comes with every batch, and the
#: next one is opened over what it wrote.
IN_MEMORY = {
    "loaded": {"spark.sql.streaming.maxBatchesToRetainInMemory": "0"},
    "evicted": {},
}

#: One value per key, a scan in the order of event times, lists and timers in column families.
COLD = {"windows-append", "join-full-append", "transformWithState-list-update"}

GROUP_STATE = ("applyInPandasWithState", "flatMapGroupsWithState")
TRANSFORM = ("transformWithState", "transformWithStateInPandas")

#: Whose keys are written by every batch, so that changelogs have them.
ALWAYS_WARM = {
    *("aggregation-update", "limit-append"),
    *(f"{api}-{mode}" for api in GROUP_STATE for mode in ("update", "append")),
}


def cold_cells() -> Iterator[object]:
    for name in CASES:
        for kept in IN_MEMORY:
            in_ci = IS_NEWEST and name in COLD and kept == "loaded"
            yield pytest.param(
                name, kept, id=f"{name}-{kept}", marks=[] if in_ci else [pytest.mark.full]
            )


@pytest.mark.parametrize(("name", "kept"), list(cold_cells()))
def test_rows_equal_those_of_rocksdb_where_keys_are_not_in_memory(
    name: str, kept: str, spark: SparkSession, reference: Reference, tmp_path: Path
) -> None:
    if gap := gap_of(name, 1):
        pytest.skip(gap.reason)
    expected = reference.rows(name, batches=BATCHES, restart=True)
    progress: list[dict[str, Any]] = []
    rows = run_case(
        spark,
        name,
        provider="holdfast",
        partitions=1,
        batches=BATCHES,
        restart=True,
        folder=tmp_path,
        more={**EVICTING, **IN_MEMORY[kept]},
        progress=progress,
    )
    assert rows == expected
    operators = [operator for batch in progress for operator in batch["stateOperators"]]
    reads = sum(operator["customMetrics"]["holdfastColdReads"] for operator in operators)
    if kept == "loaded" and name not in ALWAYS_WARM:
        assert reads > 0


#: Groups that time out some minutes of event time after their last rows.
SLOWLY = {name for name in CASES if "State-event-time-" in name}

#: Which change nothing for a key that is there.
ANEW = {f"dropDuplicatesWithinWatermark-{mode}" for mode in ("append", "update")}

#: Whose later batches change nothing, or nearly all that there is: the end of every group that they
#: have no row for, or timers, of which the clock has a part.
NEVER_STACKED = {
    "limit-append",
    *(f"{api}-processing-time-update" for api in GROUP_STATE),
    *(f"{api}-processing-timers-update" for api in TRANSFORM),
}

#: Maintenance passes in between, one of which merges and one of which makes the run durable.
MAINTAINED_S = 1.2


def stacked_cells() -> Iterator[object]:
    for name in CASES:
        in_ci = IS_NEWEST and name == "windows-append"
        yield pytest.param(name, id=name, marks=[] if in_ci else [pytest.mark.full])


@pytest.mark.parametrize("name", list(stacked_cells()))
def test_rows_equal_those_of_rocksdb_where_keys_are_in_several_runs(
    name: str, spark: SparkSession, reference: Reference, tmp_path: Path
) -> None:
    """As above, over delta runs above each other: a key may be in any of them, and gone in one."""
    if gap := gap_of(name, 1):
        pytest.skip(gap.reason)
    quickly = dwindling_anew if name in ANEW else dwindling
    stream = dwindling_slowly if name in SLOWLY else quickly
    batches = len(stream())
    expected = reference.rows(name, batches=batches, restart=True, stream=stream)
    progress: list[dict[str, Any]] = []
    rows = run_case(
        spark,
        name,
        provider="holdfast",
        partitions=1,
        batches=batches,
        restart=True,
        folder=tmp_path,
        more={**EVICTING, **IN_MEMORY["loaded"]},
        progress=progress,
        stream=stream,
        rest_s=MAINTAINED_S,
    )
    assert rows == expected
    operators = [operator for batch in progress for operator in batch["stateOperators"]]
    # A limit keeps how many rows it had.
    if name != "limit-append":
        assert sum(operator["customMetrics"]["holdfastColdReads"] for operator in operators) > 0
    checkpoint = tmp_path / "checkpoint"
    stacks = [
        delta_runs(store_id)
        for entry in (checkpoint / "commits").glob("[0-9]*")
        for partitions in commit_ids(checkpoint, int(entry.name)).values()
        for stores in partitions
        for store_id in stores
    ]
    if name not in NEVER_STACKED:
        assert max(stacks) > 1, stacks
