"""What one sees of parked partitions, and rows that are skipped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support import environment
from support.spark.commands import with_settings
from support.spark.isolation import BAD, BAD_KEYS, partition_of, rows_of
from support.spark.isolation_runs import found, undisturbed, without_bad
from support.spark.object_stores import stand_in

#: Metrics of the progress that only a query with parked partitions has.
METRICS = [f"holdfastParked{name}" for name in ("Bytes", "Partitions", "Rows", "Since")]


def test_a_query_catches_up_without_the_rows_that_were_skipped(
    helpers: Path, spark: SparkSession, tmp_path: Path
) -> None:
    folder, letters = tmp_path / "parked", tmp_path / "letters"
    # A file of an object store is there when it is complete: what a task parks, after its batch.
    store = stand_in(helpers, folder / "checkpoint")
    (partition,) = set(partition_of(spark, set(BAD)).values())
    skip = f'skip --partition {partition} --where "{BAD_KEYS}" --dead-letter {letters}'
    is_ = found(
        folder,
        *("--checkpoint", store.uri),
        *("bad:0-5", "see", "run:--json", "run:--rows json"),
        *(f"run:{skip}", f"run:{skip} --yes", "run:--json", "bad:5-6"),
        variables=with_settings(store.settings, store.environment),
    )
    whole = undisturbed(spark, tmp_path / "whole", [range(5), range(5, 6)], "counts")
    assert is_ == without_bad(whole)

    before, rows, dry, _, after = json.loads((folder / "commands.json").read_text())
    (parked,) = json.loads("".join(before))["parked"]
    assert (parked["name"], parked["partition"], parked["since_batch"]) == (
        "stateStoreSave",
        partition,
        2,
    )
    assert [one["batch"] for one in parked["inputs"]] == [2, 3, 4]
    # Tries are in batches 2 and 3.
    assert parked["tries"] == 2
    assert parked["error"] == (
        '[CAST_INVALID_INPUT] The value \'bad\' of the type "STRING" cannot be cast to "INT"'
        " because it is malformed. (CAST(key AS INT))"
    )
    shown = [json.loads(row) for row in rows]
    assert len(shown) == parked["rows"]
    counted = {(row["_batch"], row["key"]): row["count"] for row in shown}
    places = partition_of(spark, {row["key"] for batch in range(5) for row in rows_of(batch)})
    expected: dict[tuple[int, str], int] = {}
    for batch in range(2, 5):
        for row in rows_of(batch):
            if places[row["key"]] == partition:
                expected[batch, row["key"]] = expected.get((batch, row["key"]), 0) + 1
    assert counted == expected

    assert [line.split() for line in dry] == [
        ["batch", "rows", "matching"],
        *[
            [
                str(one["batch"]),
                str(one["rows"]),
                str(sum(one["batch"] in of for of in BAD.values())),
            ]
            for one in parked["inputs"]
        ],
    ]
    (file,) = letters.iterdir()
    dead = pq.read_table(file).to_pylist()
    assert sorted((row["_batch"], row["key"], row["count"]) for row in dead) == [
        (2, "bad", 2),
        (3, "worse", 2),
        (4, "bad", 2),
    ]
    assert all(row["_error"] == parked["error"] for row in dead)
    (left,) = json.loads("".join(after))["parked"]
    assert left["rows"] == parked["rows"] - 3
    said = (folder / "log.txt").read_text()
    assert re.search(
        rf"ERROR QueryRun: Partition {partition} of stateStoreSave \(operator 0\) is parked in"
        r" batch 2 after 2 failures of its task\. The batch completes without its rows\. .* the"
        r" next try is in batch 3, .* holdfast parked \S+/checkpoint\."
        r" The last failure: \[CAST_INVALID_INPUT\] .* \(CAST\(key AS INT\)\)",
        said,
    )
    assert_progress(folder, places, partition)
    metrics, page = json.loads((folder / "pages.json").read_text())
    gauges = dict(re.findall(r"_HoldfastPlugin_(parked\w+)_Value\{.*\} (\S+)", metrics))
    assert gauges["parkedPartitions"] == "1"
    assert gauges["parkedRows"] == str(parked["rows"])
    assert gauges["parkedBytes"] == str(parked["bytes"])
    assert 0 < int(gauges["parkedMs"]) < 600_000
    assert re.search(rf"parked partitions.*{parked['rows']} rows wait, since batch 2", page, re.S)


def assert_progress(folder: Path, places: dict[str, int], parked: int) -> None:
    """The progress tells of parked partitions while there are some, and of all keys."""
    progress = json.loads((folder / "progress.json").read_text())
    operators = {one["batchId"]: one["stateOperators"][0] for one in progress}
    for batch in range(6):
        metrics = operators[batch]["customMetrics"]
        own = {name: metrics[name] for name in metrics if name.startswith("holdfastParked")}
        waits = 2 <= batch < 5
        if waits:
            assert sorted(own) == METRICS
            assert (own["holdfastParkedPartitions"], own["holdfastParkedSince"]) == (1, 2)
            assert own["holdfastParkedBytes"] > own["holdfastParkedRows"] > 0
        else:
            assert own == {}
        keys = {
            row["key"]
            for earlier in range(batch + 1)
            for row in rows_of(earlier)
            if row["key"] not in BAD
            and not (waits and earlier > 1 and places[row["key"]] == parked)
        }
        assert operators[batch]["numRowsTotal"] == len(keys), batch


@pytest.mark.full
def test_a_healthy_query_has_the_progress_that_it_has_without_isolation(tmp_path: Path) -> None:
    names = []
    for phase in ("good:0-2", "good/off:0-2"):
        found(tmp_path / str(len(names)), phase)
        progress = json.loads((tmp_path / str(len(names)) / "progress.json").read_text())
        names.append([_names(one) for one in progress])
    assert names[0] == names[1]


def _names(value: Any) -> Any:
    """The names in a document, without its values."""
    if isinstance(value, dict):
        return {name: _names(inner) for name, inner in value.items()}
    return [_names(inner) for inner in value] if isinstance(value, list) else None


@pytest.mark.full
def test_readers_of_the_state_are_warned(tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "--log", "WARN", "bad:0-5")
    (parked,) = json.loads(holdfast(folder / "checkpoint", "--json"))["parked"]
    assert re.search(
        rf"The state of operator 0, partition {parked['partition']}, store default lacks rows since"
        r" batch 2: the partition is parked, and rows of 3 batches wait\.",
        (folder / "log.txt").read_text(),
    )


def holdfast(*arguments: object) -> bytes:
    command = [sys.executable, "-m", "holdfast", "parked", *map(str, arguments)]
    return subprocess.run(command, env=environment(), check=True, capture_output=True).stdout


@pytest.mark.full
@pytest.mark.parametrize("query", ["joined", "distinct", "windows", "functions", "transformed"])
def test_rows_of_every_operator_are_written_in_every_format(query: str, tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "--query", query, "bad:0-6")
    checkpoint = folder / "checkpoint"
    parked = json.loads(holdfast(checkpoint, "--json"))["parked"]
    lines = holdfast(checkpoint, "--rows", "json").splitlines()
    rows = pa.ipc.open_stream(holdfast(checkpoint, "--rows", "arrow")).read_all()
    assert pq.read_table(pa.BufferReader(holdfast(checkpoint, "--rows", "parquet"))) == rows
    assert len(lines) == rows.num_rows == sum(one["rows"] for one in parked)
    sides = {"left", "right"} if query == "joined" else set()
    assert set(rows.to_pydict().get("_side", ())) == sides
    # A batch without rows for a partition is parked, too.
    assert set(rows["_partition"].to_pylist()) <= {one["partition"] for one in parked}
    if query not in ("joined", "windows"):
        # These fail when a bad row leaves the state, which it came into before.
        assert set(BAD) & set(rows["key"].to_pylist())
    if query == "functions":
        said = r"ValueError: (bad|worse) \(.*isolation\.py, line \d+\)"
        assert all(re.fullmatch(said, one["error"]) for one in parked)


@pytest.mark.full
@pytest.mark.parametrize("query", ["distinct", "transformed"])
def test_every_operator_catches_up_without_skipped_rows(
    query: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder, letters = tmp_path / "parked", tmp_path / "letters"
    found(folder, "--query", query, "bad:0-6")
    for one in json.loads(holdfast(folder / "checkpoint", "--json"))["parked"]:
        skip = (
            "skip",
            "--partition",
            one["partition"],
            "--where",
            BAD_KEYS,
            "--dead-letter",
            letters,
        )
        holdfast(folder / "checkpoint", *skip, "--yes")
    is_ = found(folder, "--query", query, "bad:6-7")
    whole = undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], query)
    assert is_["rows"] == [row for row in whole["rows"] if row[0] not in BAD]


@pytest.mark.full
def test_wrong_expressions_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "bad:0-6")
    (parked,) = json.loads(holdfast(folder / "checkpoint", "--json"))["parked"]
    for where, said in (
        ("nothing = 1", "UNRESOLVED_COLUMN"),
        ("CAST(key AS INT) = 1", "CAST_INVALID"),
        ("key = 'a';", "PARSE_SYNTAX_ERROR"),
    ):
        skip = ("skip", "--partition", parked["partition"], "--where", where)
        with pytest.raises(subprocess.CalledProcessError) as failed:
            holdfast(folder / "checkpoint", *skip, "--dead-letter", tmp_path / "letters")
        assert failed.value.returncode == 2
        assert said in failed.value.stderr.decode()
        assert len(failed.value.stderr.splitlines()) == 1
