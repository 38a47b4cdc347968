"""A store that is asked too often answers 503 SlowDown: a query waits, and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.spark.jobs import run_job
from support.spark.object_stores import S3Server
from support.spark.queries import write_batch
from support.spark.s3_answers import SlowStore

pytestmark = pytest.mark.timeout(600)

BATCHES = 3
KEYS = 100


def run_query(s3: S3Server, slow: SlowStore, folder: Path) -> None:
    """Count by key, with all requests through the slow store, and check the rows."""
    store = s3.store(folder.name.replace("_", "-"))
    (folder / "input").mkdir(parents=True)
    for batch in range(BATCHES):
        write_batch(folder / "input", batch, [{"key": key} for key in range(KEYS)])
    endpoint = {"spark.hadoop.fs.s3a.endpoint": slow.endpoint}
    printed = run_job(
        "spark/restart_job.py",
        *("--checkpoint", store.uri),
        folder=folder,
        settings=store.settings | endpoint | {"spark.sql.shuffle.partitions": "2"},
        more=store.environment,
    )
    expected = {str(batch): [KEYS, KEYS * (batch + 1)] for batch in range(BATCHES)}
    assert json.loads(printed[-1])["rows"] == expected


def test_each_request_may_be_answered_with_slow_down_several_times(
    s3: S3Server, tmp_path: Path
) -> None:
    with SlowStore(s3, times=2) as slow:
        run_query(s3, slow, tmp_path / "times")
    # Each entry and each object of state was asked for again, and so was each list.
    for kind in ("state", "plan", "commit"):
        assert slow.answered[kind] >= 2 * BATCHES, kind
    assert slow.answered["list"] > 0


@pytest.mark.full
def test_a_query_waits_while_a_store_answers_slow_down_for_a_minute(
    s3: S3Server, tmp_path: Path
) -> None:
    with SlowStore(s3, seconds=60) as slow:
        run_query(s3, slow, tmp_path / "minute")
    assert slow.answered["state"] > 1
