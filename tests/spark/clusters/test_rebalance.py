"""State goes to executors that come, and away from those that go."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.spark.executors_job import PARTITIONS
from support.spark.regional_run import log_of, run_job
from support.spark.standalone import StandaloneCluster

pytestmark = pytest.mark.spark

MIB = 1 << 20

#: A move is a partition, the executor that has it, and the one that it goes to.
Move = tuple[int, str, str]


class Balance:
    """The plugin's decision."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._driver = self._jvm.io.holdfast.spark.driver

    def moves(
        self, parts: Collection[tuple[int, str, int]], executors: Collection[str], most: int = 64
    ) -> list[Move]:
        held, alive = self._jvm.java.util.ArrayList(), self._jvm.java.util.HashSet()
        for part in parts:
            held.add(getattr(self._driver, "Balance$Part")(*part))
        for executor in executors:
            alive.add(executor)
        found = self._driver.Balance.moves(held, alive, most)
        return [
            (move.part().partition(), move.part().executor(), move.to()) for move in list(found)
        ]


@pytest.fixture
def balance(spark: SparkSession) -> Balance:
    return Balance(spark)


def parts(executor: str, *sizes: int, first: int = 0) -> list[tuple[int, str, int]]:
    return [(first + number, executor, size * MIB) for number, size in enumerate(sizes)]


def test_an_executor_that_came_gets_its_share(balance: Balance) -> None:
    moves = balance.moves(parts("a", *[8] * 10), "ab")
    assert moves == [(number, "a", "b") for number in range(5)]
    assert len(balance.moves(parts("a", *[8] * 10), "abcde")) == 8
    # One among many, where no other has much more than the mean.
    held = [part for name in "abcdefgh" for part in parts(name, *[8] * 9)]
    assert {to for _, _, to in balance.moves(held, "abcdefghi")} == {"i"}
    assert len(balance.moves(held, "abcdefghi")) == 8


def test_bytes_count_and_not_partitions(balance: Balance) -> None:
    moves = balance.moves(parts("a", 90, 10, 10, 10, 10, 10, 10, 10, 10, 10), "ab")
    assert moves == [(0, "a", "b")]


def test_partitions_without_much_state_count_by_their_number(balance: Balance) -> None:
    assert len(balance.moves([(number, "a", number) for number in range(10)], "ab")) == 5


def test_nothing_moves_where_state_is_about_even(balance: Balance) -> None:
    assert balance.moves(parts("a", 10, 10, 10) + parts("b", 10, 10, 13), "ab") == []
    assert balance.moves(parts("a", 10, 10) + parts("b", 10, first=2), "ab") == []
    assert balance.moves(parts("a", 100), "ab") == []
    assert balance.moves([], "ab") == []


def test_no_more_move_than_may_and_the_next_time_the_rest(balance: Balance) -> None:
    held = parts("a", *[8] * 10)
    places = {number: executor for number, executor, _ in held}
    rounds = []
    while moves := balance.moves([(*part, 8 * MIB) for part in places.items()], "ab", 2):
        rounds.append(len(moves))
        places.update({number: to for number, _, to in moves})
    assert rounds == [2, 2]
    assert sorted(places.values()) == ["a"] * 6 + ["b"] * 4, "as even as a move is worth"


def test_state_leaves_executors_that_are_about_to_go(balance: Balance) -> None:
    held = parts("gone", 8, 8, 16, 8) + parts("a", 8, first=10) + parts("b", 8, 8, first=11)
    moves = balance.moves(held, "ab")
    assert moves == [(2, "gone", "a"), (0, "gone", "b"), (1, "gone", "a"), (3, "gone", "b")]
    assert balance.moves(held, "ab", 2) == moves[:2]
    assert balance.moves(parts("gone", 8), "a") == [(0, "gone", "a")]


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
