"""Cases that are measured with queries, and the targets of each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.rounds import Metric
from common.targets import Target

from spark.places import Place
from spark.queries import QUERIES, Query

OBJECTS = Metric(name="objects", title="objects per batch", decimals=1)
KIB = Metric(name="kib", title="KiB per batch")
COMMIT = Metric(name="commit_ms", title="commitTimeMs, summed")
UPDATES = Metric(name="updates_ms", title="allUpdatesTimeMs, summed")
CPU = Metric(name="cpu_s", title="CPU s per batch", decimals=2)
BATCH = Metric(name="batch_ms", title="batch time, ms")

#: Of clients, over the whole run: starting the query is in it, too.
OPERATIONS = Metric(name="operations", title="name-node operations per batch")

METRICS = (OBJECTS, KIB, OPERATIONS, COMMIT, UPDATES, CPU, BATCH)

_CHANGELOG = "rocksdb-changelog"
_DEFAULT = "spark"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query under one set of conditions.

    Attributes
    ----------
    rows, keys
        Rows per batch of all tables, and distinct keys of the whole input.
    batches_per_run
        How many times the usual number of batches a run has.
    """

    query: Query
    partitions: int
    targets: tuple[Target, ...]
    place: Place = Place.LOCAL
    rows: int = 200_000
    keys: int = 1_000_000
    batches_per_run: int = 1

    @property
    def name(self) -> str:
        """Names the case in tables and result files."""
        place = "" if self.place is Place.LOCAL else f"-{self.place.name.lower()}"
        return f"{self.query.name}-{self.partitions}{place}"


def _batch(at_most: float, to: str) -> Target:
    return Target(metric=BATCH, at_most=at_most, to=to)


def _many(query: Query) -> Case:
    join = query.name == "inner-join"
    return Case(
        query=query,
        partitions=200,
        targets=(
            Target(metric=OBJECTS, at_most=2),
            Target(metric=COMMIT, at_most=0.1, to=_CHANGELOG),
            _batch(0.4 if join else 0.5, _CHANGELOG),
            _batch(0.4 if join else 0.6, _DEFAULT),
        ),
    )


def _few(query: Query) -> Case:
    return Case(query=query, partitions=20, targets=(_batch(0.8, _CHANGELOG), _batch(1, _DEFAULT)))


def _elsewhere(query: Query, place: Place, at_most: float) -> Case:
    return Case(query=query, partitions=200, place=place, targets=(_batch(at_most, _CHANGELOG),))


def _tiny(query: Query) -> Case:
    # Nothing to merge, and hardly any work: what remains is the cost of being there.
    return Case(
        query=query,
        partitions=1,
        rows=200,
        keys=200,
        batches_per_run=5,
        targets=(_batch(1.05, _DEFAULT),),
    )


#: Partitions of the queries that show what a partition costs.
PARTITIONS = (20, 50, 100, 200, 400, 800)

#: The cases of each suite of queries.
SUITES: Mapping[str, tuple[Case, ...]] = {
    "many": tuple(_many(query) for query in QUERIES.values()),
    "few": tuple(_few(query) for query in QUERIES.values()),
    "hdfs": tuple(_elsewhere(query, Place.HDFS, 0.6) for query in QUERIES.values()),
    "delayed": tuple(_elsewhere(query, Place.DELAYED, 0.2) for query in QUERIES.values()),
    "partitions": tuple(
        Case(query=QUERIES["groupby-count"], partitions=count, targets=()) for count in PARTITIONS
    ),
    "tiny": (_tiny(QUERIES["groupby-count"]),),
}
