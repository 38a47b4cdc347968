"""A parked partition is divided by keys, until the one waits that fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast._core import SegmentRef
from holdfast.queries.state import StateOfQuery
from support.spark.isolation import BAD, partition_of, written
from support.spark.isolation_runs import found, job, kill, markers, undisturbed, wait_for

#: Batches until few keys wait with the one that fails. The program is repaired but for this key.
BATCHES = 24
KEY = "worse"
PHASES = (range(BATCHES), range(BATCHES, BATCHES + 1))
BAD_PHASE, GOOD_PHASE = f"half:0-{BATCHES}", f"good:{BATCHES}-{BATCHES + 1}"

pytestmark = pytest.mark.timeout(900)


def share(marker: Mapping[str, Any]) -> float:
    """The share of the keys of a partition that wait."""
    shares = [
        sum(2.0 ** (1 - group.bit_length()) for group in one["waits"])
        for one in marker["parked"].values()
    ]
    return max(shares, default=0)


def inputs(checkpoint: Path, batch: int) -> set[SegmentRef]:
    """The rows that wait after a batch, by where they are stored."""
    ids = StateOfQuery(checkpoint).ids(batch)
    return {ref for _, _, id in ids for _, ref in id.pending}


def parts(folder: Path) -> list[int]:
    """Batches that processed a part of the keys of a parked partition."""
    found = markers(folder / "checkpoint")
    return [batch for batch in sorted(found) if 0 < share(found[batch]) < 1]


def test_fewer_and_fewer_keys_wait_with_the_one_that_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    found(folder, BAD_PHASE, "run:--json", "run:--rows json", seconds=600)
    whole = undisturbed(spark, tmp_path / "whole", PHASES, "counts")
    shown, rows = json.loads((folder / "commands.json").read_text())
    (one,) = json.loads("".join(shown))["parked"]
    assert one["keys"] < 0.2
    assert one["rows"] == len(rows)
    waiting = {json.loads(row)["key"] for row in rows}
    expected = written(tmp_path / "whole" / "output")
    partitions = partition_of(spark, {row[0] for rows in expected.values() for row in rows})
    own = [key for key, partition in partitions.items() if partition == partitions[KEY]]
    # Keys with almost the same hash wait with it for a while.
    assert KEY in waiting
    assert len(waiting) < len(own) / 2
    # The rows of the others come in the order of their batches, and are all there in the end.
    delivered = written(folder / "output")
    for key in set(own) - waiting:
        before = [row for batch in range(BATCHES) for row in expected[batch] if row[0] == key]
        came = [row for batch in range(BATCHES) for row in delivered[batch] if row[0] == key]
        assert sorted(came, key=lambda row: row[1]) == before, key
    # Between tries no row is stored again: at most input without rows is dropped.
    checkpoint = folder / "checkpoint"
    shares = {batch: share(one) for batch, one in markers(checkpoint).items()}
    divided = [batch for batch in parts(folder) if shares[batch] == shares.get(batch - 1)]
    stored = {batch: inputs(checkpoint, batch) for batch in shares}
    assert divided
    assert all(len(stored[batch] - stored[batch - 1]) == 1 for batch in divided)
    assert any(len(stored[batch] & stored[batch - 1]) > 1 for batch in divided)
    assert found(folder, GOOD_PHASE) == whole


@pytest.mark.full
@pytest.mark.parametrize("place", [0, -1])
def test_a_batch_that_runs_again_after_a_kill_delivers_the_same_part(
    place: int, spark: SparkSession, tmp_path: Path
) -> None:
    found(tmp_path / "first", BAD_PHASE, seconds=600)
    batch = parts(tmp_path / "first")[place]
    folder = tmp_path / "parked"
    process = job(folder, "--block", str(batch), BAD_PHASE)
    wait_for(folder / "blocked", folder, process)
    kill(process)
    assert not (folder / "checkpoint" / "commits" / str(batch)).exists()
    marker = folder / "checkpoint" / "isolation" / str(batch)
    assert 0 < share(json.loads(marker.read_text())) < 1
    # The program is repaired, and the sink has the rows of this part.
    is_ = found(folder, f"good:{BATCHES}-{BATCHES}", GOOD_PHASE, seconds=600)
    phases = [range(BATCHES), *PHASES[1:]]
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, "counts")


@pytest.mark.full
@pytest.mark.parametrize(
    ("query", "sink", "master"),
    [
        ("distinct", "v2", "local[2,4]"),
        ("distinct", "parquet", "local-cluster[2,1,1024]"),
        ("counts", "delta", "local[2,4]"),
        ("functions", "foreach", "local[2,4]"),
        ("transformed", "foreach", "local[2,4]"),
        ("jvm_functions", "foreach", "local[2,4]"),
        ("jvm_transformed", "foreach", "local-cluster[2,1,1024]"),
        ("slow", "foreach", "local[4,4]"),
    ],
)
def test_rows_of_divided_partitions_come_once(
    query: str, sink: str, master: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    arguments = ("--query", query, "--sink", sink, "--master", master)
    if query == "slow":
        # An attempt that takes long gets a twin.
        twins = {"": "true", ".multiplier": "1.1", ".quantile": "0.5", ".minTaskRuntime": "100ms"}
        arguments += tuple(f"--conf=spark.speculation{key}={value}" for key, value in twins.items())
    found(folder, *arguments, "--unread", "bad:0-16", seconds=600)
    assert parts(folder)
    phases = [range(16), range(16, 17), range(17, 18)]
    # A restart tries all keys, and goes on with the part that waited.
    is_ = found(folder, *arguments, "bad:16-17", "good:17-18", seconds=600)
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, query, sink)


@pytest.mark.full
def test_a_partition_is_parked_whole_if_a_key_fails_that_did_not_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    late = max(BAD["bad"])
    found(folder, f"late:0-{BATCHES}", seconds=600)
    shares = {batch: share(one) for batch, one in markers(folder / "checkpoint").items()}
    assert 0 < shares[late - 1] < shares[late] == 1
    # All keys of the partition get their rows, and the partition is divided again.
    assert 0 < shares[BATCHES - 1] < 1
    assert found(folder, GOOD_PHASE) == undisturbed(spark, tmp_path / "whole", PHASES, "counts")


@pytest.mark.full
@pytest.mark.parametrize("query", ["windows", "distinct_within"])
def test_an_operator_with_a_watermark_waits_whole(query: str, tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "--query", query, "--unread", "bad:0-10")
    assert markers(folder / "checkpoint")
    assert not parts(folder)
