"""Checkpoints on an object store: no append, no rename, no overwrite, visible only when closed.

``ObjectsFileSystem`` behaves like one; ``test_s3a.py`` runs the storage suite over the S3 protocol.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from java_side import check_conformance, classpath, compile_helpers, jars, skipped_without_jars
from test_crash import BATCHES, CLUSTER, LOCAL, Job, expected, feed, final_rows


@dataclass(frozen=True)
class Store:
    """A job's folder, with its checkpoint in the object store."""

    folder: Path
    classes: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def job(self, *, master: str, block: str = "none", at: int = 2) -> Job:
        arguments = ["--checkpoint", f"objects:{self.checkpoint}"]
        for setting in (
            f"spark.driver.extraClassPath={self.classes}",
            f"spark.executor.extraClassPath={self.classes}",
            "spark.hadoop.fs.objects.impl=ObjectsFileSystem",
        ):
            arguments += ["--conf", setting]
        return Job(self.folder, master=master, block=block, at=at, arguments=arguments)

    def objects(self) -> list[str]:
        folder = self.checkpoint / "state" / "holdfast"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with skipped_without_jars():
        return compile_helpers(tmp_path_factory.mktemp("classes"), *jars("hdfs"))


@pytest.fixture
def store(tmp_path: Path, classes: Path) -> Iterator[Store]:
    (tmp_path / "input").mkdir()
    feed(tmp_path, range(BATCHES))
    yield Store(tmp_path, classes)
    for job in Job.started:
        if job.process.poll() is None:
            job.kill()
    Job.started.clear()


def test_the_storage_conformance_suite_passes(classes: Path, tmp_path: Path) -> None:
    setting = "fs.objects.impl=ObjectsFileSystem"
    check_conformance(classpath(classes), f"objects:{tmp_path}", setting)


def test_an_executor_seals_one_object_per_batch(store: Store) -> None:
    store.job(master=LOCAL).finish()
    assert final_rows(store.folder) == expected()
    assert len(store.objects()) == BATCHES


def test_a_driver_killed_in_the_middle_of_a_batch(store: Store) -> None:
    job = store.job(master=LOCAL, block="before-commit")
    job.wait_until_blocked()
    # All tasks of batch 2 have ended, and nothing of what they wrote can be seen.
    assert len(store.objects()) == 2
    job.kill()
    assert not (store.checkpoint / "commits" / "2").exists()
    store.job(master=LOCAL).finish()
    assert final_rows(store.folder) == expected()
    assert len(store.objects()) == BATCHES


def test_an_executor_lost_before_it_seals_fails_the_batch_and_a_restart_replays_it(
    store: Store,
) -> None:
    job = store.job(master=CLUSTER, block="before-commit-once")
    job.wait_until_blocked()
    executors = job.executors()
    assert len(executors) == 2
    before = store.objects()
    # Both executors hold partitions of batch 2 that they have not sealed; one of them dies.
    os.kill(executors[0], signal.SIGKILL)
    (store.folder / "control" / "go").touch()
    assert job.wait() != 0
    said = (store.folder / "log.txt").read_text(errors="replace")
    assert re.search(r"The batch was not committed: state file objects:/.*\.hf could not be", said)
    assert "its executor was lost before the file was complete" in said
    assert "restart the query, and Spark replays the batch" in said
    assert not (store.checkpoint / "commits" / "2").exists()
    # The other executor may have sealed its part before the batch failed.
    assert len(store.objects()) <= len(before) + 1
    store.job(master=CLUSTER).finish()
    assert final_rows(store.folder) == expected()
