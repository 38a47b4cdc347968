"""A query whose checkpoint has tags and branches, on any file system.

Run as a program, it takes a branch from its beginning to its end. With ``--count`` it only counts
the rows of ``input`` by key, until they are used up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast
from holdfast.files.mounted import MountedPath
from holdfast.files.paths import AnyPath, any_folder
from holdfast.queries import branches, leases
from support.spark.cases import CASES
from support.spark.operator_inputs import events
from support.spark.queries import (
    STATE,
    Batches,
    builder,
    configured,
    drain,
    settings,
    source,
    write_batch,
)

#: Each batch has files of its own and is followed by a clean-up.
CLEANING = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE + "holdfast.maxFileBytes": "1",
}
BATCHES = 100


class Running:
    """A query over the files of its streams, whose checkpoint may be a branch of another one."""

    def __init__(
        self, spark: SparkSession, name: str, folder: Path, checkpoint: str | None = None
    ) -> None:
        self.spark, self.case, self.folder = spark, CASES[name], folder
        streams = enumerate(self.case.streams)
        self.rows = {stream: events(n, batches=BATCHES) for n, stream in streams}
        self.checkpoint: AnyPath = any_folder(checkpoint or folder / "checkpoint")
        self.written = 0
        for stream in self.rows:
            (folder / stream).mkdir(parents=True)

    @property
    def local(self) -> MountedPath:
        """The checkpoint of a query on local disks."""
        assert isinstance(self.checkpoint, MountedPath)
        return self.checkpoint

    def write(self, batches: int) -> None:
        for number in range(self.written, self.written + batches):
            for stream, rows in self.rows.items():
                write_batch(self.folder / stream, number, rows[number])
        self.written += batches

    def run(self, checkpoint: AnyPath | Path | None = None) -> Batches:
        """Returns the rows of the batches that this run made."""
        made: Batches = {}
        frames = {stream: source(self.spark, self.folder / stream) for stream in self.rows}
        with settings(self.spark, {**CLEANING, **self.case.settings}):
            where = str(checkpoint or self.checkpoint)
            drain(self.case.query(frames), checkpoint=where, mode=self.case.mode, into=made)
        return made

    def go_on(self, batches: int) -> Batches:
        self.write(batches)
        return self.run()

    def go_on_until(self, holds: Callable[[], bool], what: str) -> None:
        """Runs batches with clean-ups behind them, until maintenance has written base images."""
        with settings(self.spark, {STATE + "minDeltasForSnapshot": "1"}):
            while not holds():
                assert self.written < BATCHES, what
                self.go_on(1)


def detach(folder: AnyPath) -> None:
    parent = branches.read_parent(folder)
    assert parent is not None
    files = branches.needed_files(folder, parent)
    assert [*branches.detach(folder, parent, files)] == [*files.values()]


def use_a_branch(query: Running, new: str) -> None:
    """Compares the rows of a branch with those of its parent, until it has no parent any more."""
    branch = any_folder(new)
    query.go_on(3)
    leases.tag(query.checkpoint, "before", None)
    assert holdfast.branch(str(query.checkpoint), new, tag="before") == 2
    query.write(2)
    theirs, ours = query.run(branch), query.run()
    assert min(theirs) == 3
    assert theirs == ours
    # The parent cleans up what only the branch needs.
    leases.drop(query.checkpoint, "before")
    ours = query.go_on(3)
    assert query.run(branch) == ours
    detach(branch)
    assert not leases.find_leases(query.checkpoint)
    query.checkpoint.remove_tree()
    query.write(1)
    assert query.run(branch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--count", action="store_true")
    args: Any = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if args.count:
        counted = source(spark, args.folder / "input").groupBy("key").count()
        drain(counted, checkpoint=args.checkpoint, mode="update", into={})
    else:
        query = Running(spark, "aggregation-update", args.folder / "query", args.checkpoint)
        use_a_branch(query, f"{args.checkpoint}-branch")
    spark.stop()


if __name__ == "__main__":
    main()
