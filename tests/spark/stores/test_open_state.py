"""`holdfast.open_state` reads the rows that Spark's state reader reads, without Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import S3FileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support import commands
from support.spark.cases import CASES
from support.spark.gaps import gap_of
from support.spark.minors import is_older_than
from support.spark.moved_queries import Query
from support.spark.object_stores import S3Server
from support.spark.operator_cases import Frames, count_and_sum
from support.spark.operator_inputs import DWINDLING, dwindling, events
from support.spark.queries import (
    CHECKSUMS,
    EVICTING,
    drain,
    run,
    select_provider,
    settings,
    source,
    write_batch,
)
from support.spark.state_changes import apply, content, differences, expected
from support.spark.state_format_cases import FORMAT_CASES, JOIN_FORMATS
from support.spark.state_rows import flat, of_spark, sorted_rows
from support.spark.typed_rows import VALUES

#: One for each form of stores and keys.
EVERYDAY = (
    "aggregation-update",
    "sessions-append",
    "join-left-append",
    "transformWithStateOnJvm-update",
)
BATCHES = 3

#: Rows of batches whose first one becomes a base image.
COUNTS = DWINDLING[:5]


def readable(name: str) -> Any:
    full = [] if name in EVERYDAY else [pytest.mark.full]
    return pytest.param(name, marks=full)


def names_of(path: Path, operator: int) -> list[str]:
    """The names that an error lists."""
    with pytest.raises(ValueError, match="expected one of") as raised:
        holdfast.open_state(path, operator=operator, store="none")
    names: list[str] = literal_eval(str(raised.value).rpartition("expected one of ")[2])
    return names


@pytest.mark.parametrize("name", [*map(readable, CASES)])
def test_rows_are_those_of_sparks_reader(name: str, spark: SparkSession, tmp_path: Path) -> None:
    if (gap := gap_of(name, partitions=4)) is not None:
        pytest.skip(gap.reason)
    case = CASES[name]
    inputs = {stream: events(n, batches=BATCHES) for n, stream in enumerate(case.streams)}
    with settings(spark, case.settings):
        run(spark, inputs=inputs, query=case.query, mode=case.mode, folder=tmp_path)
        path = tmp_path / "checkpoint"
        batches = [0, BATCHES - 1] if name in EVERYDAY else sorted(map(int, logged(path)))
        operators = sorted(
            int(one.name) for one in (path / "state").iterdir() if one.name.isdigit()
        )
        found = 0
        for operator in operators:
            for store in names_of(path, operator):
                if store == "join":
                    found += compare_join(spark, path, operator, batches)
                    continue
                compare(path, batches, operator=operator, store=store)
                for batch in batches:
                    expected = of_spark(spark, path, operator, batch, store).toArrow()
                    where: dict[str, Any] = {"operator": operator, "batch": batch, "store": store}
                    with holdfast.open_state(path, **where) as state:
                        table = state.to_arrow()
                        assert state.batch_id == batch
                        look_up(state, table)
                        scan_by_prefix(state, table)
                        if store.startswith("$"):
                            # Spark's reader leaves their empty values out.
                            table = table.drop("__dummy__")
                        assert sorted_rows(table) == sorted_rows(expected), where
                        found += len(table)
    assert found


def compare_join(spark: SparkSession, path: Path, operator: int, batches: Sequence[int]) -> int:
    """Rows of both sides are those of Spark's reader, which does not say if they have matched."""
    found = 0
    for batch in batches:
        expected: list[list[Any]] = []
        for side in ("left", "right"):
            where = {"operatorId": operator, "batchId": batch, "joinSide": side}
            rows = spark.read.format("statestore").options(**where).load(str(path))
            columns = ["key.*", F.lit(side).alias("side"), "value.*"]
            expected += sorted_rows(rows.select(*columns).toArrow())
        with holdfast.open_state(path, operator=operator, batch=batch) as state:
            assert state.key_names[-1] == "side"
            table = state.to_arrow()
            assert len(state) == len(table)
            with pytest.raises(NotImplementedError, match="cannot be looked up by keys"):
                state.get(table.select(state.key_names))
            for operation in (lambda: state.diff(state), lambda: next(state.watch())):
                with pytest.raises(NotImplementedError, match=r"cannot be (compared|watched)"):
                    operation()
        rows = [{**row, row["side"]: dict(row[row["side"]])} for row in table.to_pylist()]
        for row in rows:
            assert isinstance(row[row["side"]].pop("matched"), bool)
            assert row.pop({"left": "right", "right": "left"}[row["side"]]) is None
        assert sorted((list(flat(row)) for row in rows), key=repr) == sorted(expected, key=repr)
        found += len(rows)
    return found


def logged(path: Path) -> list[str]:
    return [one.name for one in (path / "commits").iterdir() if one.name.isdecimal()]


@pytest.mark.full
@pytest.mark.parametrize("version", JOIN_FORMATS[2:])
def test_a_join_that_moved_here_keeps_its_format(
    version: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, f"join-{version}", "rocksdb", tmp_path, cases=FORMAT_CASES)
    query.begin()
    query.adopt()
    query.go_on()
    path = query.checkpoint
    if version == "3":
        assert compare_join(spark, path, 0, [max(map(int, logged(path)))])
        for store in names_of(path, 0)[1:]:
            with holdfast.open_state(path, store=store) as state:
                look_up(state, state.to_arrow())
    else:
        with pytest.raises(NotImplementedError, match="left-keyWithTsToValues cannot be read"):
            holdfast.open_state(path)


def compare(path: Path, batches: Sequence[int], **where: Any) -> None:
    """Differences are those of all rows, and watched changes lead from one batch to the other."""
    with (
        holdfast.open_state(path, batch=batches[0], **where) as before,
        holdfast.open_state(path, batch=batches[-1], **where) as after,
    ):
        keys = len(before.key_names)
        old, new = (content(state.to_arrow(), keys) for state in (before, after))
        assert differences(before.diff(after), keys) == expected(old, new), where
        assert differences(after.diff(before), keys) == expected(new, old), where
        for batch, changes in before.watch(until=lambda: True):
            apply(old, changes, keys)
            if batch == after.batch_id:
                break
        assert old == new, where


def look_up(state: holdfast.OpenedState, table: pa.Table) -> None:
    """Each key finds its row: so its partition and its bytes are known."""
    keys = table.select(state.key_names)
    try:
        again = state.get(keys)
    except NotImplementedError:
        assert len(state) <= len(table)  # a list
        return
    # A NaN equals none.
    assert repr(again.to_pylist()) == repr(table.to_pylist())
    assert len(state) == len(table)


def scan_by_prefix(state: holdfast.OpenedState, table: pa.Table) -> None:
    """Sessions, entries of maps, and timers are found by the first column of their keys."""
    first = state.key_names[0]
    if not {"sessionStartTime", "userKey", "expiryTimestampMs"} & {*state.key_names}:
        with pytest.raises(ValueError, match="cannot be scanned by a prefix"):
            state.scan({first: None})
    elif len(table):
        value = table[first][0].as_py()
        found = state.scan({first: value}).read_all().to_pylist()
        assert found == [row for row in table.to_pylist() if row[first] == value]


@pytest.fixture(scope="module")
def totals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of sums whose store is in runs, under changelogs."""
    folder = tmp_path_factory.mktemp("totals")
    with settings(spark, EVICTING):
        run(
            spark,
            inputs={"events": dwindling(counts=COUNTS)},
            query=count_and_sum,
            mode="update",
            folder=folder,
            rest_s=0.6,
        )
    return folder / "checkpoint"


def test_keys_are_looked_up_in_their_order(totals: Path) -> None:
    with holdfast.open_state(totals) as state:
        assert state.key_names == ["key"]
        rows = {row["key"]: row for row in state.to_arrow().to_pylist()}
        assert len(rows) == len(state) > COUNTS[0] // 2
        keys = ["k70", "none", None, "k7", "k70"]
        absent = {"key": "none", "count": None, "sum": None}
        found = state.get({"key": keys})
        assert found.schema == state.schema
        assert found.to_pylist() == [rows.get(key, absent) for key in keys]
        assert state.get({"key": []}).num_rows == 0
        assert state.get(pa.table({"key": keys}).slice(1, 3)).to_pylist() == found.to_pylist()[1:4]


def test_other_libraries_take_it_as_a_stream(totals: Path) -> None:
    with holdfast.open_state(totals) as state:
        table = state.to_arrow()
        assert pa.RecordBatchReader.from_stream(state).read_all().equals(table)
        assert sum(batch.num_rows for batch in state.scan()) == len(state)
        assert polars.DataFrame(state).to_arrow().to_pylist() == table.to_pylist()
        sql = 'select "count" % 3 as part, sum("sum") as total from state group by 1 order by 1'
        assert duckdb.sql("select * from state").to_arrow_table().to_pylist() == table.to_pylist()
        context = datafusion.SessionContext()
        context.from_arrow(state, name="state")
        answers = [
            duckdb.sql(sql).to_arrow_table(),
            polars.SQLContext(state=polars.DataFrame(state)).execute(sql).collect().to_arrow(),
            context.sql(sql).to_arrow_table(),
        ]
    rows = [[{k: int(v) for k, v in row.items()} for row in one.to_pylist()] for one in answers]
    assert rows[0] == rows[1] == rows[2]
    assert [row["part"] for row in rows[0]] == [0, 1, 2]
    assert sum(row["total"] for row in rows[0]) == sum(table["sum"].to_pylist())


def test_a_scanner_has_chosen_columns_of_a_range_of_keys(totals: Path) -> None:
    is_asked = (pc.field("key") >= "k1") & (pc.field("key") < "k3")
    with holdfast.open_state(totals) as state:
        keys = [key for key in state.to_arrow()["key"].to_pylist() if key is not None]
        expected = sorted(key for key in keys if "k1" <= key < "k3")
        found = state.scanner(["key"], is_asked).to_table()
        sums = duckdb.from_arrow(state.scanner(filter=is_asked)).order("key").fetchall()
    assert 0 < len(expected) < len(keys)
    assert found.column_names == ["key"]
    assert sorted(found["key"].to_pylist()) == [key for key, *_ in sums] == expected


def test_it_is_read_from_an_object_store(totals: Path, s3: S3Server) -> None:
    shutil.copytree(totals, s3.bucket("state") / "of-query", ignore=shutil.ignore_patterns(".*"))
    where = s3.settings["fs.s3a.endpoint"].removeprefix("http://")
    user, secret = (s3.settings[f"fs.s3a.{which}.key"] for which in ("access", "secret"))
    options = {"access_key": user, "secret_key": secret, "region": "us-east-1", "scheme": "http"}
    files = S3FileSystem(endpoint_override=where, **options)
    with holdfast.open_state(totals) as here:
        table = here.to_arrow()
    with holdfast.open_state("state/of-query", filesystem=files) as there:
        before = s3.requests()
        assert there.get(table.slice(5, 1).select(there.key_names)).equals(table.slice(5, 1))
        assert (s3.requests() - before)["GetObject"] <= 3
        assert there.get(table.select(there.key_names)).equals(table)
        assert there.to_arrow().equals(table)
    uri = f"s3a://{user}:{secret}@state/of-query?endpoint_override={where}&scheme=http"
    with holdfast.open_state(uri) as there:
        assert there.to_arrow().equals(table)
    with pytest.raises(FileNotFoundError, match="expected the checkpoint folder"):
        holdfast.open_state("state/none", filesystem=files)
    for file in (s3.folder / "buckets" / "state" / "of-query" / "state" / "holdfast").glob("*.hf"):
        file.unlink()
    with (
        holdfast.open_state("state/of-query", filesystem=files) as there,
        pytest.raises(FileNotFoundError, match=r"\.hf"),
    ):
        there.to_arrow()


def test_the_command_prints_rows_and_answers(
    totals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open_state(totals) as state:
        table = state.to_arrow()
    status, out, err = commands.run(capsys, "state", totals)
    assert (status, out[0].split(), len(out)) == (0, state.schema.names, 51)
    assert "the first 50 rows" in err
    status, out, err = commands.run(capsys, "state", totals, "--json")
    assert [json.loads(line) for line in out] == table.to_pylist()
    status, out, err = commands.run(capsys, "state", totals, "--where", "key = 'k70'")
    (row,) = (row for row in table.to_pylist() if row["key"] == "k70")
    assert out[1].split() == ["k70", str(row["count"]), str(row["sum"])]
    sql = "select count(*) as rows, max(sum) as most from state"
    status, out, err = commands.run(capsys, "state", totals, "--sql", sql, "--json")
    assert [json.loads(one) for one in out] == [
        {"rows": len(table), "most": max(table["sum"].to_pylist())}
    ]
    file = tmp_path / "rows.parquet"
    assert commands.run(capsys, "state", totals, "--parquet", file)[0] == 0
    assert pq.read_table(file).equals(table)
    status, out, err = commands.run(capsys, "state", totals, "--parquet", file)
    assert (status, out) == (1, [])
    assert "exists" in err
    for wrong in ("no such column = 1", "key =", "cast(key as int) = 1"):
        status, out, err = commands.run(capsys, "state", totals, "--where", wrong)
        assert (status, out) == (2, [])
        assert f"holdfast: {wrong}: " in err
    assert commands.run(capsys, "state", totals, "--store", "left")[0] == 2


def test_it_needs_no_spark_and_changes_nothing(totals: Path, tmp_path: Path) -> None:
    def files() -> dict[Path, int]:
        # The reader has a lease while it is open, and its folder stays.
        return {file: file.stat().st_mtime_ns for file in copy.rglob("*") if file.is_file()}

    # Maintenance of the ended query may still write.
    copy = shutil.copytree(totals, tmp_path / "copy")
    before = files()
    program = (
        "import sys, holdfast\n"
        "with holdfast.open_state(sys.argv[1]) as state:\n"
        "    print(len(state), sum(state.to_arrow()['count'].to_pylist()))\n"
        "assert not {'pyspark', 'py4j'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(copy)], capture_output=True, text=True, check=True
    )
    with holdfast.open_state(totals) as state:
        assert done.stdout.split() == [str(len(state)), str(sum(COUNTS))]
    assert files() == before


def test_errors_name_what_there_is(totals: Path, tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(FileNotFoundError, match="expected the checkpoint folder"):
        holdfast.open_state(tmp_path)
    with pytest.raises(ValueError, match="other://bucket/checkpoint"):
        holdfast.open_state("other://bucket/checkpoint")
    with pytest.raises(FileNotFoundError, match="expected batch 99 in the commit log, found 0 to"):
        holdfast.open_state(totals, batch=99)
    with pytest.raises(ValueError, match=r"operator 3: expected one of \[0\]"):
        holdfast.open_state(totals, operator=3)
    with pytest.raises(ValueError, match=r"store 'left': expected one of \['default'\]"):
        holdfast.open_state(totals, store="left")
    state = holdfast.open_state(totals)
    with pytest.raises(
        ValueError, match=r"columns of the key: expected \['key'\], found \['sum'\]"
    ):
        state.get({"sum": [1]})
    with pytest.raises(ValueError, match="cannot be scanned by a prefix"):
        state.scan({})
    state.close()
    with pytest.raises(ValueError, match="closed"):
        len(state)
    select_provider(spark, "rocksdb")
    try:
        inputs = {"events": events(batches=1)}
        run(
            spark, inputs=inputs, query=count_and_sum, mode="update", folder=tmp_path / "r", parts=1
        )
    finally:
        select_provider(spark, "holdfast")
    with pytest.raises(NotImplementedError, match=r"expected state of Holdfast, found .*RocksDB"):
        holdfast.open_state(tmp_path / "r" / "checkpoint")
    assert not (tmp_path / "r" / "checkpoint" / "state" / "holdfast").exists()


def test_a_batch_that_the_query_cleaned_up_says_so(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    folder.mkdir()
    write_batch(folder, 0, events(batches=1)[0])
    frame = count_and_sum({"events": source(spark, folder)})
    drain(frame, checkpoint=checkpoint, mode="update", into={})
    state = holdfast.open_state(checkpoint)
    assert len(state)
    for file in (checkpoint / "state" / "holdfast").glob("*.hf"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"\.hf"):
        state.to_arrow()
    (checkpoint / "commits" / "0").unlink()
    with pytest.raises(FileNotFoundError, match="no longer retains batch 0: open a newer one"):
        state.to_arrow()


def run_one_batch(
    spark: SparkSession, query: Callable[[Frames], DataFrame], mode: str, folder: Path
) -> None:
    """Runs a query whose rows Python does not take."""
    (folder / "events").mkdir()
    write_batch(folder / "events", 0, events(batches=1)[0])
    rows = query({"events": source(spark, folder / "events")}).writeStream.outputMode(mode)
    rows = rows.option("checkpointLocation", str(folder / "checkpoint")).format("noop")
    rows.trigger(availableNow=True).start().awaitTermination()


def values(frames: Frames) -> DataFrame:
    firsts = [F.first(F.expr(sql)).alias(name) for name, (sql, *_) in typed().items()]
    return frames["events"].groupBy("key").agg(*firsts)


def typed() -> dict[str, tuple[str, Any, Any]]:
    """Time of day is a type from Spark 4.1 on."""
    return {k: v for k, v in VALUES.items() if k != "time" or not is_older_than("4.1")}


#: PyArrow has intervals of months, days and nanoseconds only.
INTERVALS = {
    "months": pa.MonthDayNano([37, 0, 0]),
    "interval": pa.MonthDayNano([14, 4, 7_500_000_000]),
    "fields": {"a.b": VALUES["at"][2], "m": [pa.MonthDayNano([36, 0, 0])]},
}


def test_every_type_of_a_value_is_one_of_arrow(spark: SparkSession, tmp_path: Path) -> None:
    more = {"spark.sql.timeType.enabled": "true"}
    with settings(spark, more):
        run_one_batch(spark, values, "update", tmp_path)
    with holdfast.open_state(tmp_path / "checkpoint") as state:
        table = state.to_arrow()
    row = table.slice(0, 1)
    found = [column[0].as_py() for column in row.columns[1::2]]
    expected = [INTERVALS.get(name, value) for name, (_, _, value) in typed().items()]
    numbers = [str(value) if isinstance(value, float) else value for value in found]
    assert numbers == [str(value) if isinstance(value, float) else value for value in expected]


#: Expressions of columns that a key may have.
KEYS = {
    "flag": "value > 0",
    "tiny": "cast(value % 100 as tinyint)",
    "small": "cast(value as smallint)",
    "number": "cast(value as int)",
    "float": "cast(value % 3 as float) * 0",
    "double": "if(value % 7 = 0, double('NaN'), -value / 3)",
    "money": "cast(value as decimal(10,2))",
    "large": "cast(value as decimal(38,10)) * 12345678901234567890",
    "text": "if(value % 5 = 0, null, concat('ü', key))",
    "bytes": "cast(key as binary)",
    "day": "cast(time as date)",
    "at": "time",
    "local": "cast(time as timestamp_ntz)",
    "length": "make_dt_interval(0, 0, 0, value)",
    "inner": "named_struct('a', value, 'b', named_struct('c', if(value % 2 = 0, null, key)))",
}


def keys(frames: Frames) -> DataFrame:
    columns = [F.expr(sql).alias(name) for name, sql in KEYS.items()]
    return frames["events"].select(*columns).dropDuplicates()


def test_keys_of_every_type_are_found(spark: SparkSession, tmp_path: Path) -> None:
    run_one_batch(spark, keys, "append", tmp_path)
    with holdfast.open_state(tmp_path / "checkpoint") as state:
        table = state.to_arrow()
        look_up(state, table)
        assert len(table) > 100
        # Spark 4.0 puts them in an order of its own.
        assert sorted(state.key_names) == sorted(KEYS)


@pytest.mark.skipif(is_older_than("4.2"), reason="Row checksums are in Spark 4.2 and newer")
def test_checksums_of_rows_are_verified(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, CHECKSUMS):
        inputs = {"events": events(batches=1)}
        run(spark, inputs=inputs, query=count_and_sum, mode="update", folder=tmp_path, parts=1)
    with holdfast.open_state(tmp_path / "checkpoint") as state:
        table = state.to_arrow()
        assert sum(table["count"].to_pylist()) == len(events(batches=1)[0])
        look_up(state, table)
