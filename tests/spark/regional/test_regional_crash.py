"""kill -9 of driver and executors in any step of a batch: rows equal an undisturbed run."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.files.folders import CheckpointFolders
from support.regional.pipelines import Row, expected, output_of, rows_of
from support.spark.java_side import skipped_without_jars
from support.spark.kafka_broker import KafkaBroker
from support.spark.regional_input import write_rows
from support.spark.regional_job import (
    DEATHS_OF_OTHERS,
    DRAINING,
    POINTS,
    REGIONS,
    batches_of,
)
from support.spark.regional_run import log_of, run_job

# Several Spark applications in a row: for when the machine is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def check_rows(folder: Path, batches: Sequence[Sequence[Row]]) -> None:
    """No reader sees a row that is doubled or wrong, and every checkpoint can be read."""
    rows = output_of(folder / "out")
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(expected(batches))
    for number in checkpoint_ids(folder / "ckpt"):
        assert Verification(folder / "ckpt").verify(number, lambda done, of: None).damage == ()


def check_files(folder: Path) -> None:
    """Nothing is left over of any dead process."""
    (latest,) = checkpoint_ids(folder / "ckpt")
    entries = CheckpointFolders(folder / "ckpt").read(latest).regions.values()
    needed = {ref.file for entry in entries for _, _, ref in entry.refs()}
    # A file with the number 0 is a manager's claim, and empty.
    found = {path.name for path in (folder / "ckpt" / "segments").iterdir()}
    assert {name for name in found if not name.endswith("-00000000.hf")} == needed
    assert list((folder / "out" / "_holdfast").rglob("*.parquet")) == []


@pytest.mark.parametrize(
    "points",
    [
        # test_regional_remote.py and test_pipeline_crash.py kill in front of "second-link".
        ("done",),
        pytest.param(POINTS, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
    ids=["some", "all"],
)
def test_driver_killed_at_one_point_after_the_other(
    tmp_path: Path, points: Sequence[str]
) -> None:  # R74, R81
    count = batches_of(len(points))
    batches = [rows_of(number, REGIONS, each=60) for number in range(count)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    deaths = [*zip(points, range(len(points)), strict=True), (points[-1], DRAINING)]
    for point, at in deaths:
        code = run_job(tmp_path, "--master", "local[2]", "--kill", point, "--at", str(at))
        assert code == -signal.SIGKILL, f"{point} in batch {at}: {log_of(tmp_path)}"
        check_rows(tmp_path, batches)
    assert run_job(tmp_path, "--master", "local[1]") == 0, log_of(tmp_path)
    assert output_of(tmp_path / "out") == expected(batches)
    check_files(tmp_path)


@pytest.mark.full
def test_executors_killed_in_the_middle_of_batches(tmp_path: Path) -> None:
    batches = [rows_of(number, REGIONS, each=60) for number in range(7)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    arguments = ["--master", "local-cluster[2,1,1024]", "--kill-executors"]
    assert run_job(tmp_path, *arguments) == 0, log_of(tmp_path)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"executor-2", "executor-5"}
    assert output_of(tmp_path / "out") == expected(batches)
    # Without a restart: what the dead executors left goes while the query runs.
    check_files(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["executor", "worker"])
def test_one_process_killed_at_one_point_after_the_other(
    tmp_path: Path, kind: str
) -> None:  # R74, R81
    count = batches_of(len(DEATHS_OF_OTHERS))
    batches = [rows_of(number, REGIONS, each=60) for number in range(count)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    code = run_job(tmp_path, "--master", "local-cluster[2,1,1024]", "--kill-one", kind)
    assert code == 0, log_of(tmp_path)
    marks = {mark.name for mark in (tmp_path / "marks").iterdir()}
    assert marks >= {f"{kind}-{batch}-{point}" for batch, point in DEATHS_OF_OTHERS.items()}
    assert output_of(tmp_path / "out") == expected(batches)
    # The last one dies in the last attempt, before the driver can know of it: what it leaves goes
    # with the next start.
    assert run_job(tmp_path, "--master", "local[1]") == 0, log_of(tmp_path)
    assert output_of(tmp_path / "out") == expected(batches)
    check_files(tmp_path)


@pytest.mark.full
def test_a_kafka_topic_is_read_once_whatever_fails(tmp_path: Path, helpers: Path) -> None:
    batches = [rows_of(number, REGIONS, each=60) for number in range(4)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    with skipped_without_jars():
        broker = KafkaBroker(tmp_path, helpers, partitions=len(REGIONS))
    job = ["--master", "local[2]", "--kafka", broker.servers]
    job += ["--rows-per-batch", str(len(batches[0]))]
    code = run_job(tmp_path, *job, "--kill", "metadata", "--at", "1", more=broker.environment)
    assert code == -signal.SIGKILL, log_of(tmp_path)
    check_rows(tmp_path, batches)
    assert run_job(tmp_path, *job, more=broker.environment) == 0, log_of(tmp_path)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"1", "3"}, "regions failed"
    assert output_of(tmp_path / "out") == expected(batches)
    check_files(tmp_path)
    broker.close()
