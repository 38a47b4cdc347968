"""Kills of a driver at every change of a file: each row is in the output or in the dead letters.

A library copies the folder of a query before each change. A query that starts from such an image is
one that was killed there. It starts with the same program, and with a repaired one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import preloadable
from support.spark.bad_rows import ROWS, bad_ids, feed
from support.spark.bad_rows_application import Application
from support.spark.process_faults import HERE

pytestmark = pytest.mark.timeout(3600)

BATCHES = range(3)
#: Changes before which each kind of file is in one of its states, by the path of the change.
MOMENTS = (
    r"offsets/1$",
    r"bad-rows/0/1$",
    r"_spark_metadata/1$",
    r"out/batch=1$",
    r"again/batch=1$",
    r"commits/1$",
    r"dead/.*/1\.parquet$",
    r"offsets/2$",
)
#: Spark refuses to start from hidden files that its first plan leaves.
REFUSED = r"offsets/0$"


def images(folder: Path, sink: str) -> Iterator[tuple[str, Path]]:
    """The path of each change, and the folder of the query before it."""
    library = preloadable(HERE / "watched_changes.c", folder)
    control, world = folder / "control", folder / "world"
    (control / "images").mkdir(parents=True)
    world.mkdir()
    feed(world / "in", BATCHES, bad=True)
    (control / "order").write_text(f"image 0 / {world}\n")
    variables = {"WATCHED_CHANGES": str(control)}
    arguments = ("--preload", str(library))
    with Application(folder / "watched", *arguments, variables=variables) as application:
        assert application.run(world, "cast", sink=sink)["error"] is None
    for image in sorted((control / "images").iterdir(), key=lambda one: int(one.name)):
        yield (image / "before").read_text().strip(), image / world.name


def wrong(found: dict[str, Any], change: str) -> list[int]:
    """The rows that are not in one place."""
    rows = Counter(row["id"] for row in found["rows"])
    rows.update(letter["row"]["id"] for letter in found["letters"])
    ids = {batch * 1000 + i for batch in BATCHES for i in range(ROWS)}
    if change == "first":
        letters = {letter["row"]["id"] for letter in found["letters"]}
        assert letters == set(bad_ids(BATCHES))
    return sorted(one for one in ids | set(rows) if rows[one] != (one in ids))


@pytest.mark.parametrize("sink", ["parquet", "foreach batch"])
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.full)], ids=["moments", "every change"]
)
def test_a_driver_is_killed(tmp_path: Path, sink: str, every: bool) -> None:
    tried, moments = 0, set(MOMENTS)
    places = list(images(tmp_path, sink))
    with Application(tmp_path / "application") as application:
        for place, image in places:
            found_at = {one for one in moments if re.search(one, place)}
            moments -= found_at
            if re.search(REFUSED, place) or not (every or found_at):
                continue
            for change in ("first", "repaired"):
                found = application.run(
                    tmp_path / "world", "cast", sink=sink, change=change, image=str(image)
                )
                assert found["error"] is None, (place, change, found["error"])
                assert wrong(found, change) == [], (place, change, json.dumps(found["letters"]))
                tried += 1
            if re.search(r"commits/1$", place):
                # A row that throws now may be in the sink. Spark's file sink knows that it is.
                folder = tmp_path / "world"
                more = {"sink": sink, "image": str(image)}
                found = application.run(folder, "cast", change="broken", **more)
                if sink != "parquet":
                    assert "CAST_INVALID_INPUT" in found["error"]
                    assert "They are not set aside" in found["log"]
                    found = application.run(folder, "cast", sink=sink)
                assert (found["error"], wrong(found, "broken")) == (None, [])
    assert tried >= 10, places
