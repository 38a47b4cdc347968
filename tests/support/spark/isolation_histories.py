"""Random histories of a query with isolation, whose foreachBatch function reshapes the batch.

Run as a program. Each history draws a query, its failing keys, actions over the batch, and
restarts. In the end the program is repaired, and each output must have the rows of an undisturbed
run, from any batch.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.isolation import ENDS_PARKED
from support.spark.queries import STATE, builder, settings, source, write_batch

BATCHES = 5
START = datetime(2026, 1, 1, tzinfo=UTC)
#: Batches of a few rows take longest to compile.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
}
Rows = Counter[tuple[Any, ...]]


class InterruptedSinkError(Exception):
    """The function stops between two actions, like the death of a driver."""


@dataclass(frozen=True)
class Data:
    """The input of a query, by batch, which a few histories share."""

    query: str
    seed: int

    def batches(self) -> list[list[dict[str, Any]]]:
        draw = random.Random(self.seed)  # noqa: S311
        found = []
        for batch in range(BATCHES + 1):
            at = START + timedelta(minutes=batch)
            keys = [str(draw.randrange(12)) for _ in range(draw.randrange(10, 40))]
            found.append(
                [{"key": key, "at": at + timedelta(seconds=i % 60)} for i, key in enumerate(keys)]
            )
        return found

    def frame(self, events: DataFrame) -> DataFrame:
        if self.query == "counts":
            return events.groupBy("key").count()
        if self.query == "windows":
            window = F.window("at", "1 minute").alias("w")
            counted = events.withWatermark("at", "1 minute").groupBy(window, "key").count()
            return counted.select("key", F.expr("count + 100 * minute(w.start) AS count"))
        first = events.dropDuplicates(["key"])
        return first.select("key", F.expr("CAST(minute(at) AS LONG) AS count"))

    @property
    def mode(self) -> str:
        return "update" if self.query == "counts" else "append"


#: A read of the batch that a failing expression can be part of.
Read = Callable[[DataFrame, Callable[[DataFrame], DataFrame]], DataFrame]
#: By name, a read of the batch, and the copies of each of its rows.
RESHAPED: dict[str, tuple[Read, int]] = {
    "as it is": (lambda batch, fails: fails(batch), 1),
    "coalesced to one": (lambda batch, fails: fails(batch).coalesce(1), 1),
    "coalesced before": (lambda batch, fails: fails(batch.coalesce(1)), 1),
    "coalesced to two": (lambda batch, fails: fails(batch).coalesce(2), 1),
    "shuffled": (lambda batch, fails: fails(batch.repartition(3)), 1),
    "failing below a shuffle": (lambda batch, fails: fails(batch).repartition(2), 1),
    "sorted": (lambda batch, fails: fails(batch).sort("key"), 1),
    "failing after a sort": (lambda batch, fails: fails(batch.sortWithinPartitions("count")), 1),
    "union, one fails": (lambda batch, fails: fails(batch).union(batch), 2),
    "union, the other fails": (lambda batch, fails: batch.union(fails(batch)), 2),
    "union of coalesced": (lambda batch, fails: fails(batch).coalesce(1).union(batch), 2),
    "with a table": (lambda batch, fails: fails(with_table(batch)), 1),
    "cached": (lambda batch, fails: fails(cached(batch)), 1),
    "cached with the failure": (lambda batch, fails: cached(fails(batch)), 1),
    # Four partitions make four tasks again.
    "union of halves": (lambda batch, fails: fails(batch.coalesce(2)).union(batch.coalesce(2)), 2),
    "union of halves, the other fails": (
        lambda batch, fails: batch.coalesce(2).union(fails(batch.coalesce(2))),
        2,
    ),
}
#: Reads of the batch that stop before its end.
STOPS: dict[str, Callable[[DataFrame], Any]] = {
    "isEmpty": lambda batch: batch.isEmpty(),
    "take": lambda batch: batch.take(2),
    "first": lambda batch: batch.first(),
    "limit": lambda batch: batch.limit(3).collect(),
    "all": lambda batch: batch.collect(),
    "count": lambda batch: batch.count(),
}


def with_table(batch: DataFrame) -> DataFrame:
    table = batch.sparkSession.range(12).select(F.col("id").cast("string").alias("key"))
    return batch.join(F.broadcast(table), "key").select("key", "count")


def cached(batch: DataFrame) -> DataFrame:
    frame = batch.persist()
    frame.count()
    return frame


@dataclass
class Action:
    """An action of the function in a batch, in one of its threads."""

    name: str
    read: str
    fails: bool
    passes: bool


PLAIN = Action("plain", "as it is", fails=False, passes=False)


@dataclass
class History:
    """A drawn history; `run` returns the differences."""

    seed: int
    data: Data
    partitions: int
    keys: tuple[str, ...]
    failing: range
    actions: list[Action]
    stops: list[str]
    threads: bool
    restarts: list[int]
    interrupted: dict[int, int]
    outputs: dict[str, dict[int, Rows]] = field(default_factory=dict)
    repaired: bool = False
    starts: int = 0

    @classmethod
    def draw(cls, seed: int) -> History:
        draw = random.Random(seed)  # noqa: S311
        data = Data(draw.choice(["counts", "counts", "windows", "distinct"]), draw.randrange(8))
        count = draw.choice([1, 1, 2, 2, 3])
        begin = draw.randrange(BATCHES)
        return cls(
            seed=seed,
            data=data,
            partitions=draw.choice([1, 2, 3, 4]),
            keys=tuple(str(draw.randrange(12)) for _ in range(draw.choice([1, 1, 2]))),
            failing=range(begin, draw.randrange(begin, BATCHES) + 1),
            actions=[
                Action(
                    name=f"{number}",
                    read=draw.choice(["as it is", "cached with the failure", *RESHAPED]),
                    fails=draw.random() < 0.7,
                    passes=draw.random() < 0.15,
                )
                for number in range(count)
            ],
            stops=[stop for stop in STOPS if draw.random() < 0.15],
            threads=draw.random() < 0.2,
            restarts=sorted(draw.sample(range(1, BATCHES), draw.choice([0, 1, 2]))),
            interrupted={
                draw.randrange(BATCHES): draw.randrange(count + 1)
                for _ in range(draw.choice([0, 0, 1]))
            },
        )

    def fails(self, frame: DataFrame) -> DataFrame:
        keys = "', '".join(self.keys)
        bad = f"key IN ('{keys}') AND NOT isnull(count)"
        return frame.select("key", F.expr(f"IF({bad}, raise_error('bad ' || key), count) AS count"))

    def write(self, batch: DataFrame, number: int) -> None:
        stopped = self.interrupted.get(number)
        fails = not self.repaired and number in self.failing
        for stop in self.stops:
            STOPS[stop](batch)
        errors: list[BaseException] = []

        def act(action: Action) -> None:
            try:
                self.act(action, batch, number, fails and action.fails)
            except BaseException as error:
                errors.append(error)

        for place, action in enumerate(self.actions):
            if stopped == place:
                del self.interrupted[number]
                raise InterruptedSinkError
            if not self.threads:
                self.act(action, batch, number, fails and action.fails)
        if self.threads:
            threads = [threading.Thread(target=act, args=(action,)) for action in self.actions]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if errors:
                raise errors[0]
        if stopped == len(self.actions):
            del self.interrupted[number]
            raise InterruptedSinkError

    def act(self, action: Action, batch: DataFrame, number: int, fails: bool) -> None:
        read, _ = RESHAPED[action.read]
        rows: Rows = Counter()
        parts = holdfast.passes(batch) if action.passes else [batch]
        for part in parts:
            frame = read(part, self.fails if fails else lambda frame: frame)
            rows.update(tuple(row) for row in frame.collect())
        self.outputs.setdefault(action.name, {})[number] = rows

    def run(self, spark: SparkSession, folder: Path, expected: Rows) -> list[str]:
        batches = self.data.batches()
        for end in [*self.restarts, BATCHES]:
            feed(folder, batches[:end])
            self.until_used_up(spark, folder)
        self.repaired = True
        feed(folder, batches)
        self.until_used_up(spark, folder)
        different = []
        for action in self.actions:
            rows: Rows = sum(self.outputs[action.name].values(), Counter())
            wanted = Counter({row: n * RESHAPED[action.read][1] for row, n in expected.items()})
            if rows != wanted:
                missing, more = dict(wanted - rows), dict(rows - wanted)
                different.append(f"output {action.name}: missing {missing}, more {more}")
        return different

    def until_used_up(self, spark: SparkSession, folder: Path) -> None:
        """Starts the query until it ends. A program that fails twice is repaired until then."""
        failures = 0
        while (error := self.start(spark, folder)) is not None:
            failures += "InterruptedSinkError" not in error
            assert failures < 4, error
            self.repaired = self.repaired or failures > 1
        self.repaired = False

    def start(self, spark: SparkSession, folder: Path) -> str | None:
        """Runs the query until its input is used up; returns its error."""
        self.starts += 1
        frame = self.data.frame(source(spark, folder / "input"))
        writer = frame.writeStream.outputMode(self.data.mode).foreachBatch(self.write)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        started = writer.trigger(availableNow=True).start()
        try:
            started.awaitTermination()
        except StreamingQueryException as error:
            return None if ENDS_PARKED in str(error) else str(error)
        finally:
            spark.catalog.clearCache()
        return None


def feed(folder: Path, batches: Sequence[list[dict[str, Any]]]) -> None:
    (folder / "input").mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(batches):
        if not (folder / "input" / f"batch-{number:05d}.parquet").exists():
            write_batch(folder / "input", number, rows)


def undisturbed(spark: SparkSession, folder: Path, data: Data) -> Rows:
    """The rows of the query without failures, and without isolation."""
    whole = History.draw(0)
    whole.data, whole.actions, whole.stops, whole.interrupted = data, [PLAIN], [], {}
    whole.repaired = True
    feed(folder, data.batches())
    with settings(spark, {STATE + "holdfast.isolateFailures": "false"}):
        whole.until_used_up(spark, folder)
    return sum(whole.outputs[PLAIN.name].values(), Counter())


def chosen(number: int, *actions: tuple[str, bool], stops: Sequence[str] = ()) -> History:
    """A history of counts on four partitions, with a key that fails in two batches."""
    history = History.draw(number)
    history.data, history.partitions = Data("counts", 0), 4
    history.keys, history.failing, history.stops = ("3",), range(1, 3), list(stops)
    history.actions = [
        Action(str(place), read, fails, passes=False) for place, (read, fails) in enumerate(actions)
    ]
    history.threads, history.restarts, history.interrupted = False, [], {}
    return history


#: By name, a function that lost rows once, or parked a healthy partition.
CHOSEN = {
    "a second action fails behind coalesce": chosen(
        1, ("coalesced to one", False), ("as it is", True)
    ),
    "one branch of a union fails": chosen(2, ("union, one fails", True)),
    "the other branch of a union fails": chosen(3, ("union, the other fails", True)),
    "coalesce alone": chosen(4, ("coalesced to one", True)),
    "coalesce below the failure": chosen(5, ("coalesced before", True)),
    "as many tasks as partitions": chosen(6, ("union of halves", True)),
    "isEmpty before the write": chosen(7, ("as it is", True), stops=["isEmpty"]),
    "take before the write": chosen(8, ("as it is", True), stops=["take", "first"]),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chosen", action="store_true", help="those that have a name")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--log", default="WARN")
    parser.add_argument("--found", type=Path, required=True, help="by history, what is different")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="histories-"))
    spark = holdfast.configure(
        builder("local[3,4]", root / "warehouse").config(map=QUICK),
        isolate_failures=True,
        isolation_max_ratio=0.7,
    ).getOrCreate()
    spark.sparkContext.setLogLevel(args.log)
    known: dict[Data, Rows] = {}
    found = {}
    seeds = range(args.first, args.first + args.count)
    drawn = {str(seed): History.draw(seed) for seed in seeds}
    for name, history in (CHOSEN if args.chosen else drawn).items():
        folder = root / name.replace(" ", "-")
        with settings(spark, {"spark.sql.shuffle.partitions": str(history.partitions)}):
            if history.data not in known:
                whole = root / f"whole-{len(known)}"
                known[history.data] = undisturbed(spark, whole, history.data)
            print(f"history {name} begins", flush=True)
            different = history.run(spark, folder, known[history.data])
        shutil.rmtree(folder)
        found[name] = {"different": different, "starts": history.starts}
        if different:
            history.outputs.clear()
            print(f"history {name}: {history}: {different}", flush=True)
    args.found.write_text(json.dumps(found))
    spark.stop()
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
