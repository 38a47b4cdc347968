"""Damaged physical files: the query fails with file, offset and owner and changes nothing, or goes
on from older segments and says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.spark.faults import LOCAL, World
from support.spark.queries import STATE, drain, settings, source, write_batch
from support.spark.state_files import Segment, commit_ids, lineage

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

#: Kind of a segment: what base images are written as.
RUN = 5


def cut(path: Path, segment: Segment) -> None:
    path.write_bytes(path.read_bytes()[: segment.offset + segment.len - 1])


def flip(path: Path, segment: Segment) -> None:
    data = bytearray(path.read_bytes())
    data[segment.offset + segment.len - 1] ^= 0x10
    path.write_bytes(data)


def flip_head(path: Path, segment: Segment) -> None:
    data = bytearray(path.read_bytes())
    data[segment.offset + 25] ^= 0x10
    path.write_bytes(data)


def remove(path: Path, segment: Segment) -> None:
    path.unlink()


def contents(checkpoint: Path) -> dict[Path, bytes]:
    """State files and commit log."""
    folders = [checkpoint / "state" / "holdfast", checkpoint / "commits"]
    files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    return {path: path.read_bytes() for path in files}


@pytest.fixture
def changelogs_in_files_of_their_own(spark: SparkSession) -> Iterator[None]:
    changed = {STATE + "minDeltasForSnapshot": "1000", STATE + "holdfast.maxFileBytes": "1"}
    with settings(spark, changed):
        yield


@pytest.mark.usefixtures("changelogs_in_files_of_their_own")
def test_damage_fails_the_query_with_its_place_and_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    rows: dict[int, list[tuple[Any, ...]]] = {}

    def run() -> None:
        counts = source(spark, folder).groupBy("key").count()
        drain(counts, checkpoint=checkpoint, mode="complete", into=rows)

    for batch in range(3):
        write_batch(folder, batch, [{"key": key} for key in range(40)])
    run()
    write_batch(folder, 3, [{"key": key} for key in range(40)])
    partitions = [lineage(checkpoint, stores[0]) for stores in commit_ids(checkpoint, 2)["0"]]
    damages: list[tuple[Callable[[Path, Segment], None], int, int]] = [
        (cut, 3, -1),
        (flip, 0, -1),
        (flip_head, 1, -1),
        (flip, 2, 0),
        (flip_head, 2, 1),
        (remove, 1, 0),
    ]
    for damage, partition, number in damages:
        segment = partitions[partition][number]
        path = segment.path(checkpoint)
        good = path.read_bytes()
        damage(path, segment)
        before = contents(checkpoint)
        with pytest.raises(StreamingQueryException) as failure:
            run()
        said = str(failure.value)
        label = f"{damage.__name__} of segment {number} of partition {partition}: {said}"
        # Of a file that is gone Spark's providers say that the version is not there.
        kind = "MissingStateException" if damage is remove else "DamagedStateException"
        assert kind in said, label
        assert str(path) in said, label
        assert f"partition {partition}" in said, label
        assert f"offset {segment.offset}" in said, label
        after = contents(checkpoint)
        assert {path: after.get(path) for path in before} == before, label
        path.write_bytes(good)
    # The id of partition 1 in the commit log, without the twin by which Hadoop's local file system
    # finds the damage itself.
    (checkpoint / "commits" / ".2.crc").unlink()
    entry = checkpoint / "commits" / "2"
    good = entry.read_bytes()
    store_id = commit_ids(checkpoint, 2)["0"][1][0]
    damaged = store_id[:20] + ("A" if store_id[20] != "A" else "B") + store_id[21:]
    entry.write_bytes(good.replace(store_id.encode(), damaged.encode()))
    before = contents(checkpoint)
    with pytest.raises(StreamingQueryException) as failure:
        run()
    said = str(failure.value)
    for part in ("DamagedStateException", "commits/2, operator 0, partition 1", damaged):
        assert part in said, said
    assert {path: contents(checkpoint).get(path) for path in before} == before
    entry.write_bytes(good)
    assert sorted(rows) == [0, 1, 2]
    run()
    assert rows[3] == [(key, 4) for key in sorted(range(40), key=lambda key: repr((key, 4)))]


def base_images(world: World, batch: int) -> list[tuple[int, Segment]]:
    """Partitions whose state starts with a base image, and the image."""
    found = []
    for partition, stores in enumerate(commit_ids(world.checkpoint, batch)["0"]):
        oldest = lineage(world.checkpoint, stores[0])[0]
        if (3, RUN) in oldest.head(world.checkpoint):
            found.append((partition, oldest))
    return found


def test_a_damaged_base_image_is_rebuilt_from_older_segments(world: World) -> None:
    retain = {"spark__sql__streaming__minBatchesToRetain": "100"}
    world.feed(5)
    world.arm("after-image")
    job = world.start(LOCAL, **retain)
    job.wait_until_stopped_at("after-image")
    world.go("after-image")
    # More batches, so that the images that are now written are built on.
    while not (images := base_images(world, max(world.retained()))):
        world.feed(4)
        job.wait_until_processed()
    job.finish()
    images = base_images(world, max(world.retained()))
    assert images
    partition, image = images[0]
    path = image.path(world.checkpoint)
    flip(path, image)

    world.feed(2)
    again = world.start(LOCAL, **retain)
    again.finish()
    world.assert_rows()
    warnings = [line for line in again.text().splitlines() if "worked around it" in line]
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert f"offset {image.offset} " in warnings[0]
    assert f"partition {partition}" in warnings[0]
    progress = map(json.loads, (world.folder / "progress.jsonl").read_text().splitlines())
    assert any(batch["customMetrics"]["holdfastRebuilds"] == 1 for batch in progress)
    # Nothing builds on the damaged image any more.
    newest = commit_ids(world.checkpoint, max(world.retained()))["0"][partition][0]
    assert image not in lineage(world.checkpoint, newest)
