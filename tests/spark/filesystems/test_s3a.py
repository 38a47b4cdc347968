"""Checkpoints on S3 through Hadoop's S3A, against a server of the S3 protocol on loopback.

``test_object_store.py`` and ``test_fencing.py`` run on it as well.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from support.spark.commands import run_commands
from support.spark.faults import LOCAL, World
from support.spark.java_side import (
    QUICK_START,
    check_conformance,
    classpath,
    tool,
)
from support.spark.jobs import run_job
from support.spark.object_stores import S3Server, Store
from support.spark.old_s3 import OldS3
from support.spark.queries import write_batch

pytestmark = pytest.mark.timeout(900)

MIB = 1 << 20
#: The smallest that S3 takes.
PART_BYTES = 5 * MIB
PARTS = {
    "fs.s3a.multipart.size": str(PART_BYTES),
    "fs.s3a.multipart.threshold": str(PART_BYTES),
}


def test_the_storage_conformance_suite_passes_on_s3a(helpers: Path, s3: S3Server) -> None:
    s3.bucket("conformance")
    settings = [f"{key}={value}" for key, value in s3.settings.items()]
    check_conformance(classpath(helpers, *s3.client), "s3a://conformance/suite", *settings)


def test_a_branch_shares_the_objects_of_its_parent(s3: S3Server, tmp_path: Path) -> None:
    store = s3.store("branches")
    run_job(
        "spark/branch_job.py",
        *("--checkpoint", store.uri),
        folder=tmp_path,
        settings=store.settings,
        more=store.environment,
    )


def run_java(
    s3: S3Server,
    program: str,
    *arguments: str,
    settings: Mapping[str, str],
    options: Sequence[str] = (),
) -> list[str]:
    """Runs a program of ``tests/spark/java`` with Hadoop's settings; returns what it printed."""
    path = classpath(s3.helpers, *s3.client)
    done = subprocess.run(
        [
            *[tool("java"), *QUICK_START, *options, "-cp", path],
            *[f"io.holdfast.spark.{program}", *arguments],
            *[f"{key}={value}" for key, value in settings.items()],
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()


def big_object(s3: S3Server, bucket: str, commits: int, end: str) -> dict[str, int]:
    """Runs ``BigObject.java``, with a bucket of its own; returns what it saw."""
    folder = s3.bucket(bucket)
    # Parts wait in files: that is the default, and what keeps them out of memory.
    settings = s3.settings | PARTS | {"fs.s3a.buffer.dir": str(s3.folder / "parts")}
    # All of the heap is taken at once, so that what grows later is not the heap.
    heap = ["-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch"]
    program = ["merged.BigObject", f"s3a://{bucket}/state", str(commits), end]
    lines = run_java(s3, *program, settings=settings, options=heap)
    seen = {name: int(number) for name, number in map(str.split, lines)}
    files = [path for path in folder.rglob("*") if path.is_file()]
    seen["server.objects"], seen["server.bytes"] = (
        len(files),
        sum(path.stat().st_size for path in files),
    )
    return seen


def test_memory_does_not_grow_with_an_object_that_goes_up_in_parts(s3: S3Server) -> None:
    seen = big_object(s3, "growing", commits=24, end="seal")
    assert seen["state_bytes"] == 96 * MIB, "more than the heap"
    full_parts = seen["state_bytes"] // PART_BYTES
    # While the object was being written: all full parts were up, and nothing could be seen. A busy
    # client may send a part twice.
    assert seen["object_put_request_completed.open"] >= full_parts
    assert (seen["pending_uploads.open"], seen["objects.open"]) == (1, 0)
    # After a third of the object everything that is taken once was taken: heap, threads, S3A's
    # client, and the buffers for one commit. The other 64 MiB took nothing that counts.
    assert seen["peak_bytes.late"] - seen["peak_bytes.early"] < 32 * MIB
    # And then it was one object, and all of its rows were right.
    assert seen["multipart_upload_part_put"] == full_parts + 1
    assert seen["multipart_upload_completed"] == 1
    assert (seen["pending_uploads"], seen["objects"]) == (0, 1)
    assert seen["object_bytes"] == seen["server.bytes"] > seen["state_bytes"]
    assert seen["rows"] == 4096


def test_a_writer_that_gives_up_leaves_neither_an_object_nor_a_pending_upload(
    s3: S3Server,
) -> None:
    seen = big_object(s3, "given-up", commits=6, end="abandon")
    # All four full parts were up. A busy client may send a part twice.
    assert seen["object_put_request_completed.open"] >= 24 * MIB // PART_BYTES == 4
    assert (seen["pending_uploads.open"], seen["objects.open"]) == (1, 0)
    assert seen["object_multipart_aborted.open"] == 0
    assert seen["object_multipart_aborted"] > 0
    assert seen["multipart_upload_completed"] == 0
    assert (seen["pending_uploads"], seen["objects"]) == (0, 0)
    assert seen["server.objects"] == 0, "of the parts, nothing is left on the server"


def taken_names(s3: S3Server, bucket: str, **more: str) -> dict[str, str]:
    """Runs ``TakenNames.java``, with a bucket of its own; returns what it saw."""
    folder = s3.bucket(bucket)
    location = f"s3a://{bucket}/checkpoint"
    lines = run_java(s3, "storage.TakenNames", location, settings=s3.settings | more)
    # What tried the store is gone.
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [f"checkpoint/{name}" for name in ("file", "offsets/0", "offsets/1")]
    return dict(line.split(" ") for line in lines)


def test_a_store_refuses_taken_names_without_being_asked_before(s3: S3Server) -> None:
    assert taken_names(s3, "taken") == {
        "file": "refused",
        "file.content": "first",
        "entry.exists": "false",
        "entry": "refused",
        "entry.content": "first",
    }


def test_a_store_that_would_replace_what_is_there_is_asked_before(
    helpers: Path, tmp_path: Path
) -> None:
    unsigned = {"s3proxy.authorization": "none"}
    with (
        closing(S3Server(tmp_path, helpers, properties=unsigned)) as server,
        closing(OldS3(server.settings["fs.s3a.endpoint"])) as old,
    ):
        seen = taken_names(server, "replacing", **{"fs.s3a.endpoint": old.endpoint})
    assert seen == {
        "file": "refused",
        "file.content": "first",
        "entry.exists": "true",
        "entry": "refused",
        "entry.content": "first",
    }


@pytest.mark.full
def test_a_restart_reads_objects_and_not_stores(s3: S3Server, tmp_path: Path) -> None:
    store = s3.store("restart")
    folder = tmp_path / "job"
    (folder / "input").mkdir(parents=True)
    stores, batches = 40, 5
    state = "spark.sql.streaming.stateStore."
    # Every batch stays an object of its own, with a changelog of each store.
    conf = store.settings | {
        "spark.sql.shuffle.partitions": str(stores),
        f"{state}maintenanceInterval": "1h",
        f"{state}minDeltasForSnapshot": "100",
    }

    def run() -> dict[str, Any]:
        printed = run_job(
            "spark/restart_job.py",
            *("--checkpoint", store.uri),
            folder=folder,
            settings=conf,
            more=store.environment,
        )
        seen: dict[str, Any] = json.loads(printed[-1])
        return seen

    rows = [{"key": key} for key in range(2000)]
    for batch in range(batches):
        write_batch(folder / "input", batch, rows)
    assert run()["rows"]["4"] == [2000, 2000 * batches]
    before = s3.requests()
    write_batch(folder / "input", batches, rows)
    seen = run()
    requests = s3.requests()
    requests.subtract(before)
    assert seen["rows"] == {str(batches): [2000, 2000 * (batches + 1)]}
    assert seen["loads"] == stores
    # Each store needs a changelog of each batch. Spark's own logs are read as well.
    assert requests["GetObject"] < batches * stores / 2, requests
    assert requests["HeadObject"] < batches * stores / 2, requests
    before = s3.requests()
    verify = ["verify", "--json", store.uri]
    (verified,) = run_commands(store.settings, store.environment, verify)
    requests = s3.requests()
    requests.subtract(before)
    verdicts = json.loads(verified)["batches"]
    assert [one["readable_segments"] for one in verdicts] == [
        stores * (batch + 1) for batch in range(batches + 1)
    ]
    assert requests["GetObject"] < batches * stores / 2, requests
    assert requests["HeadObject"] < batches * stores / 2, requests


def requests_of_batches(
    s3: S3Server, folder: Path, *, fewer: int, more: int, **conf: str
) -> Counter[str]:
    """What a small query asks for in so many more batches; each run has a bucket of its own."""
    state = "spark.sql.streaming.stateStore."
    # No merge reads changelogs.
    settings = {
        "spark.sql.shuffle.partitions": "2",
        f"{state}maintenanceInterval": "1h",
        f"{state}minDeltasForSnapshot": "100",
    }
    counted = []
    for batches in (fewer, more):
        store = s3.store(f"{folder.name.replace('_', '-')}-{batches}")
        job = folder / str(batches)
        (job / "input").mkdir(parents=True)
        for batch in range(batches):
            write_batch(job / "input", batch, [{"key": key} for key in range(100)])
        before = s3.requests()
        run_job(
            "spark/restart_job.py",
            *("--checkpoint", store.uri),
            folder=job,
            settings=store.settings | settings | conf,
            more=store.environment,
        )
        counted.append(s3.requests())
        counted[-1].subtract(before)
    counted[1].subtract(counted[0])
    return +counted[1]


@pytest.mark.full
def test_a_batch_costs_an_object_for_each_file_of_spark_and_one_for_state(
    s3: S3Server, tmp_path: Path
) -> None:
    requests = requests_of_batches(s3, tmp_path / "kept", fewer=2, more=8)
    # The logs of the source, offsets and commits. The list of markers shows whether another query
    # took over.
    assert requests == Counter(PutObject=4 * 6, ListObjectsV2=6)


@pytest.mark.full
def test_an_old_entry_costs_one_request(s3: S3Server, tmp_path: Path) -> None:
    retain = {"spark.sql.streaming.minBatchesToRetain": "2"}
    requests = requests_of_batches(s3, tmp_path / "purged", fewer=4, more=12, **retain)
    # Those of offsets/N and commits/N; Spark may not have come to the last ones when it ended. Each
    # batch is followed by a clean-up, which writes a catalog and deletes the last one.
    assert 3 * 6 <= requests["DeleteObject"] <= 3 * 10
    assert 5 * 6 <= requests["PutObject"] <= 5 * 10
    # It reads the oldest entry of the log, and no file of state.
    assert requests["HeadObject"] < 2 * 8
    # The markers, the log, leases, and each eighth time the files.
    assert requests["ListObjectsV2"] < 4 * 8


@pytest.mark.full
def test_a_restart_reads_a_catalog_and_a_damaged_one_costs_only_requests(
    s3: S3Server, tmp_path: Path
) -> None:
    # Nothing is deleted. Each batch has a clean-up behind it, and batch 8 one that lists.
    retain = {
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0.05",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    }
    reads, rows = {}, {}
    for damage in ("intact", "cut", "altered", "missing"):
        store = s3.store(f"catalog-{damage}")
        job = tmp_path / damage
        (job / "input").mkdir(parents=True)

        def run(first: int, end: int, job: Path = job, store: Store = store) -> str:
            for batch in range(first, end):
                write_batch(job / "input", batch, [{"key": key} for key in range(100)])
            *_, told = run_job(
                "spark/restart_job.py",
                *("--checkpoint", store.uri),
                folder=job,
                settings=store.settings | retain,
                more=store.environment,
            )
            return told

        run(0, 8)
        assert isinstance(store.folder, Path)
        # The run may end before a catalog that was replaced is deleted.
        catalogs = [*(store.folder / "state" / "holdfast" / "driver").glob("*.files")]
        assert catalogs
        for catalog in catalogs:
            content = catalog.read_bytes()
            if damage == "missing":
                catalog.unlink()
            elif damage == "cut":
                catalog.write_bytes(content[:-7])
            elif damage == "altered":
                catalog.write_bytes(bytes([*content[:-7], content[-7] ^ 1, *content[-6:]]))
        before = s3.requests()
        rows[damage] = json.loads(run(8, 12))["rows"]
        reads[damage] = s3.requests()["GetObject"] - before["GetObject"]
    assert rows["intact"]["11"] == [100, 1200]
    assert all(found == rows["intact"] for found in rows.values())
    # The footers of eight files. A run may end before the last one is in a catalog.
    assert all(reads[damage] >= reads["intact"] + 7 for damage in rows if damage != "intact"), reads


@pytest.mark.full
def test_a_batch_goes_up_in_parts_while_its_tasks_write_and_is_there_when_it_is_committed(
    s3: S3Server, tmp_path: Path
) -> None:
    store = s3.store("parts")
    folder = tmp_path / "job"
    (folder / "input").mkdir(parents=True)
    random = np.random.default_rng(1)
    # What cannot be compressed; the later batch has the greater payloads.
    keys = [24_000, 12_000]
    batches = [
        [{"key": key, "payload": bytes([batch]) + random.bytes(1023)} for key in range(keys[batch])]
        for batch in range(2)
    ]
    for number, rows in enumerate(batches):
        write_batch(folder / "input", number, rows)
    # S3A keeps back what does not fill a part.
    full_parts = [count * 1024 // PART_BYTES for count in keys]
    conf = store.settings | {f"spark.hadoop.{key}": value for key, value in PARTS.items()}
    conf["spark.hadoop.fs.s3a.buffer.dir"] = str(tmp_path / "parts")
    full_bytes = [str(parts * PART_BYTES) for parts in full_parts]
    arguments = ("--checkpoint", store.uri, "--full-bytes", *full_bytes)
    run_job(
        "spark/large_objects_job.py",
        *arguments,
        folder=folder,
        settings=conf,
        more=store.environment,
    )
    seen = json.loads((folder / "seen.json").read_text())

    # All tasks of batch 0 have ended, and all of its full parts are up: nothing can be seen.
    assert seen["tasks of 0 done"]["objects"] == []
    assert seen["tasks of 0 done"]["pending"] == 1
    # The commit hook ends it: by the time of batch 1 it is one object.
    (size,) = seen["tasks of 1 done"]["objects"]
    assert size > keys[0] * 1024 > 20 * MIB
    assert seen["tasks of 1 done"]["parts"] == full_parts[0] + 1
    assert seen["tasks of 1 done"]["completed"] == 1
    # Batch 1 has begun a second one, which no batch refers to when it fails.
    assert seen["tasks of 1 done"]["pending"] == 1
    assert seen["failed"]["objects"] == [size]
    # The end of the application leaves nothing pending: the next one knows an object as an orphan.
    assert seen["ended"]["pending"] == 0
    assert seen["ended"]["completed"] == 2

    table = pq.read_table(folder / "state.parquet").to_pylist()
    assert {row["key"]: row["payload"] for row in table} == {
        row["key"]: row["payload"] for row in batches[0]
    }
    assert len(table) == keys[0]


@pytest.mark.full
@pytest.mark.parametrize("object_world", ["s3a"], indirect=True)
def test_an_entry_whose_answer_is_lost_is_not_taken_for_another_applications(
    object_world: World,
) -> None:
    world = object_world
    world.feed(3)
    # The server creates commits/1 and then says nothing, so that the client asks again.
    world.arm("after-entry", nth=2)
    job = world.start(LOCAL, spark__hadoop__fs__s3a__connection__timeout="15s")
    job.wait_until_stopped_at("after-entry")
    job.wait_until_processed()
    world.go("after-entry")
    job.finish()
    world.assert_rows()
