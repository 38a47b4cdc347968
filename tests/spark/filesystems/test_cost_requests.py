"""``holdfast cost`` against the requests that a server of the S3 protocol counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.commands import run
from support.spark.commands import run_commands
from support.spark.jobs import run_job
from support.spark.object_stores import S3Server, Store

pytestmark = pytest.mark.timeout(600)

STATE = "spark.sql.streaming.stateStore."
PARTITIONS = 3
#: Kinds of requests on the server, by the kind that has a price.
KINDS = {
    "put": ("PutObject", "CopyObject", "ListObjectsV2"),
    "get": ("GetObject", "HeadObject"),
    "delete": ("DeleteObject", "DeleteObjects"),
}
#: Progress does not tell that each file has a checksum.
WITH_CHECKSUMS = ("rocksdb-2", "changelog-2")


def predicted(capsys: pytest.CaptureFixture[str], path: Path) -> list[Any]:
    """What the command says of each query of a path, now and with Holdfast."""
    status, lines, err = run(capsys, "cost", "--json", "--executors", 1, path)
    assert status == 0, err
    return [query["ways"] for query in json.loads("\n".join(lines))["queries"]]


def run_queries(
    s3: S3Server, store: Store, folder: Path, query: str, variants: Sequence[str], *, events: Path
) -> list[str]:
    """Run a query on each provider; returns what the job printed."""
    events.mkdir()
    conf = {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        f"{STATE}maintenanceInterval": "1h",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    return run_job(
        "spark/cost_job.py",
        *("--root", store.uri, "--metrics-port", str(s3.metrics_port), "--query", query),
        *("--variants", *variants),
        folder=folder,
        settings=store.settings | conf,
        more=store.environment,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("query", "variants"),
    [
        ("aggregation", ("changelog", "holdfast")),
        ("aggregation", ("hdfs", "rocksdb", *WITH_CHECKSUMS)),
        ("join", ("hdfs", "rocksdb", "changelog", "holdfast")),
    ],
)
def test_predicted_requests_are_within_a_tenth_of_those_that_a_server_counts(
    s3: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    query: str,
    variants: tuple[str, ...],
) -> None:
    store = s3.store(f"{query}-{variants[0]}")
    events = tmp_path / "events"
    lines = run_queries(s3, store, tmp_path, query, variants, events=events)
    counted = {}
    for seen in map(json.loads, lines):
        requests = seen["requests"]
        counted[seen["variant"]] = {
            kind: sum(requests.pop(name, 0) for name in names) / seen["batches"]
            for kind, names in KINDS.items()
        }
        assert requests == {}, "all kinds are known"
    assert list(counted) == [*variants]
    (log,) = events.iterdir()
    logged = predicted(capsys, log)
    for (variant, found), of_log in zip(counted.items(), logged, strict=True):
        folder = Path(store.folder / variant)
        (of_folder,) = predicted(capsys, folder)
        assert of_folder["now"]["requests"] == pytest.approx(found, rel=0.1), variant
        if variant not in WITH_CHECKSUMS:
            (of_progress,) = predicted(capsys, tmp_path / variant / "progress.jsonl")
            assert of_progress["now"]["requests"] == pytest.approx(found, rel=0.1), variant
            assert of_log == of_progress
        if "holdfast" in counted and variant != "holdfast":
            requests = of_folder["with Holdfast"]["requests"]
            assert requests == pytest.approx(counted["holdfast"], rel=0.1), variant


@pytest.mark.full
def test_a_checkpoint_is_read_by_its_uri_as_by_its_path(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = s3.store("by-uri")
    variants = ("rocksdb", "holdfast")
    run_queries(s3, store, tmp_path, "aggregation", variants, events=tmp_path / "events")
    for variant in variants:
        command = ("cost", "--json", "--executors", "1", f"{store.uri}/{variant}")
        (printed,) = run_commands(store.settings, store.environment, command)
        by_uri = [query["ways"] for query in json.loads(printed)["queries"]]
        assert by_uri == predicted(capsys, Path(store.folder / variant))
