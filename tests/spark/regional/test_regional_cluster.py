"""Regional pipelines on a standalone cluster: two workers, executors that go and come."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast._core import CheckpointMetadata
from support.regional.pipelines import Row, expected, output_of, rows_of
from support.spark.regional_input import write_rows
from support.spark.regional_job import REGIONS
from support.spark.regional_run import log_of, run_job
from support.spark.standalone import StandaloneCluster, has_mounts

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

BATCHES = 7


@pytest.fixture
def batches(tmp_path: Path) -> list[list[Row]]:
    rows = [rows_of(number, REGIONS, each=60) for number in range(BATCHES)]
    for number, batch in enumerate(rows):
        write_rows(tmp_path / "in", number, batch)
    return rows


def settings(**values: object) -> list[str]:
    """Arguments of the job; ``__`` in a name stands for a dot."""
    return [f"--set=spark.{key.replace('__', '.')}={value}" for key, value in values.items()]


def test_regions_run_on_both_executors_and_one_of_these_is_killed(
    cluster: StandaloneCluster, tmp_path: Path, batches: list[list[Row]]
) -> None:
    code = run_job(tmp_path, "--master", cluster.url, "--kill-executors", *settings(cores__max=2))
    assert code == 0, log_of(tmp_path)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"executor-2", "executor-5"}
    # Two at the start, and one for each that was killed.
    assert len(cluster.executors()) >= 4
    assert output_of(tmp_path / "out") == expected(batches)


def test_executors_are_given_back_and_asked_for_again_while_the_pipeline_runs(
    cluster: StandaloneCluster, tmp_path: Path, batches: list[list[Row]]
) -> None:
    # An executor without a task goes after a second, with the operators that its workers keep.
    dynamic = settings(
        dynamicAllocation__enabled="true",
        dynamicAllocation__shuffleTracking__enabled="true",
        dynamicAllocation__minExecutors=0,
        dynamicAllocation__initialExecutors=2,
        dynamicAllocation__maxExecutors=2,
        dynamicAllocation__executorIdleTimeout="1s",
        dynamicAllocation__schedulerBacklogTimeout="1s",
        executor__cores=1,
        scheduler__minRegisteredResourcesRatio="0.0",
    )
    code = run_job(tmp_path, "--master", cluster.url, "--pause", "3", *dynamic)
    assert code == 0, log_of(tmp_path)
    assert len(cluster.executors()) > 2, "some went and others came"
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.parametrize("folder", ["checkpoint", "output"])
def test_executors_that_do_not_see_a_folder_of_the_driver_write_nothing_there(
    tmp_path: Path, batches: list[list[Row]], folder: str
) -> None:
    if not has_mounts():
        pytest.skip("needs a user who may mount")
    (tmp_path / "cluster").mkdir()
    checkpoint, output = tmp_path / "checkpoint" / "of", tmp_path / "output" / "of"
    unseen = tmp_path / folder
    unseen.mkdir()
    cluster = StandaloneCluster(tmp_path / "cluster", workers=2, unseen=unseen)
    try:
        places = ["--checkpoint", str(checkpoint), "--output", str(output)]
        assert run_job(tmp_path, "--master", cluster.url, *places, *settings(cores__max=2)) == 1
    finally:
        cluster.close()
    said = log_of(tmp_path)
    assert f"does not see the driver's {folder} folder {unseen / 'of'}" in said
    assert "mounted on the driver and on all executors" in said
    assert output_of(output) == []
    (begun,) = (checkpoint / "metadata").iterdir()
    assert not CheckpointMetadata.read(begun).regions
