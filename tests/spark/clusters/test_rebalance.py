"""State goes to executors that come, and away from those that go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.spark.executors_job import PARTITIONS
from support.spark.regional_run import log_of, run_job
from support.spark.standalone import StandaloneCluster

pytestmark = pytest.mark.spark


def check(folder: Path) -> None:
    """Asserts that a run of the job is right."""
    report = json.loads((folder / "report.json").read_text())
    assert report["equal"], "the rows of an undisturbed run"
    assert report["rows"] > 0
    for phase in report["phases"]:
        count = phase["executors"]
        # Two batches later new executors run half of their fair share at least.
        tasks = report["tasks"][str(phase["first"] + 2)]
        assert len(tasks) == count
        assert min(tasks.values()) >= 0.45 * PARTITIONS / count, report
        tasks = report["tasks"][str(phase["last"])]
        assert sum(tasks.values()) == PARTITIONS
        assert min(tasks.values()) >= PARTITIONS // count - 1, report
        # The places before gave back the memory of what moved.
        stores = {name: held for name, held in phase["stores"].items() if held}
        each = sum(stores.values()) // PARTITIONS
        assert stores == {name: number * each for name, number in tasks.items()}, report


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", [pytest.param("counts", marks=pytest.mark.versions), "joined"])
def test_state_follows_the_executors_of_a_running_query(tmp_path: Path, query: str) -> None:
    arguments = ["--master", "local-cluster[4,1,1024]", "--query", query]
    code = run_job(tmp_path, *arguments, job="spark/executors_job.py")
    assert code == 0, log_of(tmp_path)
    print((tmp_path / "log.txt").read_text())
    check(tmp_path)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_state_follows_the_executors_of_a_standalone_cluster(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    cluster = StandaloneCluster(tmp_path / "cluster", workers=4)
    try:
        code = run_job(tmp_path, "--master", cluster.url, job="spark/executors_job.py")
    finally:
        cluster.close()
    assert code == 0, log_of(tmp_path)
    check(tmp_path)
