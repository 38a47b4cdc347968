"""A query that one Spark minor began goes on on a newer one, and not on an older one.

The older minors are those of ``requirements/spark``, each in processes of its own. Their PySpark is
not there on every machine, so all of this is ``full``; ``make test-versions`` runs it as well.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast._jars import SPARK_MINORS
from support import environment, program
from support.spark.gaps import gap_of
from support.spark.minors import NEWEST
from support.spark.operator_inputs import BATCHES
from support.spark.other_spark import environment_of
from support.spark.state_files import snapshot
from support.spark.upgrade_job import PARTITIONS

JOB_SECONDS = 1200

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
    "applyInPandasWithState-event-time-update",
    "flatMapGroupsWithState-event-time-append",
    "mapGroupsWithState-event-time-update",
    "transformWithStateOnJvm-update",
    "transformWithStateInPandas-value-update",
    "transformWithStateInPandas-list-append",
    "transformWithStateInPandas-map-update",
    "transformWithStateInPandas-event-timers-append",
    "transformWithStateInPandas-ttl-update",
    "transformWithState-list-update",
    "transformWithState-event-timers-update",
)


def cases_on(minor: str) -> list[str]:
    """Those that PySpark has on a minor."""
    return [case for case in CASES if gap_of(case, PARTITIONS, minor) is None]


def job(
    minor: str, folder: Path, first: int, last: int, cases: Sequence[str] = CASES
) -> subprocess.CompletedProcess[str]:
    """Some batches of some cases, on a minor."""
    return subprocess.run(
        [
            sys.executable,
            program("spark/upgrade_job.py"),
            str(folder),
            str(first),
            str(last),
            *cases,
        ],
        env=environment_of(minor, environment()),
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
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


class Begun:
    """Queries that were begun on each older minor, once for all newer ones.

    Parameters
    ----------
    folder
        Where they run: a source remembers the paths of its files, so all go on in one place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, dict[str, dict[str, list[str]]]] = {}

    def on(self, minor: str) -> tuple[Path, dict[str, dict[str, list[str]]]]:
        """The folder as the minor left it, and the rows by case and batch."""
        place, kept = self.folder / minor, self.folder / f"{minor}-kept"
        if minor in self.rows:
            shutil.rmtree(place)
            shutil.copytree(kept, place)
        else:
            self.rows[minor] = batches(minor, place, 0, BATCHES // 2, cases_on(minor))
            shutil.copytree(place, kept)
        return place, self.rows[minor]


@pytest.fixture(scope="module")
def begun_on(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    return Begun(tmp_path_factory.mktemp("begun"))


@pytest.mark.full
@pytest.mark.timeout(2 * JOB_SECONDS)
@pytest.mark.parametrize(("older", "newer"), list(itertools.combinations(SPARK_MINORS, 2)))
def test_a_query_begun_on_an_older_minor_continues_on_a_newer_one(
    older: str, newer: str, begun_on: Begun, undisturbed: dict[str, dict[str, list[str]]]
) -> None:
    folder, begun = begun_on.on(older)
    cases = cases_on(older)
    ended = batches(newer, folder, BATCHES // 2, BATCHES, cases)
    for case in cases:
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
