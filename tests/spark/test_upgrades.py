"""A query that one Spark minor began goes on on a newer one, and not on an older one.

The older minors are those of ``requirements/spark``, each in processes of its own. Their PySpark is
not there on every machine, so all of this is ``full``; ``make test-versions`` runs it as well.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast._jars import SPARK_MINORS
from support import environment, program
from support.spark.operator_inputs import BATCHES
from support.spark.other_spark import environment_of
from support.spark.state_files import snapshot

NEWEST = SPARK_MINORS[-1]

#: One for each way of keeping state. Not limit, which Spark 4.0 fails on two partitions.
CASES = (
    "aggregation-update",
    "aggregation-complete",
    "windows-append",
    "sessions-append",
    "dropDuplicates-append",
    "dropDuplicatesWithinWatermark-append",
    "join-full-append",
    "join-then-windows-append",
)


def job(
    minor: str, folder: Path, first: int, last: int, cases: Sequence[str] = CASES
) -> subprocess.CompletedProcess[str]:
    """Some batches of some cases, on a minor."""
    own = environment()
    return subprocess.run(
        [
            sys.executable,
            program("spark/upgrade_job.py"),
            str(folder),
            str(first),
            str(last),
            *cases,
        ],
        env=own if minor == NEWEST else environment_of(minor, own),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def batches(
    minor: str, folder: Path, first: int, last: int, cases: Sequence[str] = CASES
) -> dict[str, dict[str, list[str]]]:
    """Rows of some batches, by case and batch."""
    done = job(minor, folder, first, last, cases)
    assert done.returncode == 0, done.stderr[-4000:]
    return {case: json.loads((folder / case / f"rows-{first}.json").read_text()) for case in cases}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """Rows of a run on the newest minor alone, restarted where the others change the minor."""
    folder = tmp_path_factory.mktemp("undisturbed")
    begun = batches(NEWEST, folder, 0, BATCHES // 2)
    ended = batches(NEWEST, folder, BATCHES // 2, BATCHES)
    return {case: begun[case] | ended[case] for case in CASES}


@pytest.mark.full
@pytest.mark.parametrize(("older", "newer"), list(itertools.combinations(SPARK_MINORS, 2)))
def test_a_query_begun_on_an_older_minor_continues_on_a_newer_one(
    older: str, newer: str, undisturbed: dict[str, dict[str, list[str]]], tmp_path: Path
) -> None:
    begun = batches(older, tmp_path, 0, BATCHES // 2)
    ended = batches(newer, tmp_path, BATCHES // 2, BATCHES)
    for case in CASES:
        assert begun[case].keys().isdisjoint(ended[case])
        assert begun[case] | ended[case] == undisturbed[case], case


@pytest.mark.full
@pytest.mark.parametrize(("newer", "older"), [(NEWEST, "4.2"), (NEWEST, "4.0"), ("4.2", "4.1")])
def test_a_query_is_not_continued_by_an_older_minor(
    newer: str, older: str, undisturbed: dict[str, dict[str, list[str]]], tmp_path: Path
) -> None:
    case = "join-then-windows-append"
    checkpoint = tmp_path / case / "checkpoint"
    begun = batches(newer, tmp_path, 0, BATCHES // 2, [case])
    before = snapshot(checkpoint)
    refused = job(older, tmp_path, BATCHES // 2, BATCHES, [case])
    assert refused.returncode != 0
    assert f"{checkpoint} was written by Spark {newer}." in refused.stderr
    assert f"this application runs Spark {older}." in refused.stderr
    assert snapshot(checkpoint) == before
    ended = batches(newer, tmp_path, BATCHES // 2, BATCHES, [case])
    assert begun[case] | ended[case] == undisturbed[case]
