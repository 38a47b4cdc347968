"""Cases that Spark itself lacks on a minor, with any provider."""

from __future__ import annotations

from dataclasses import dataclass

from support.spark.minors import INSTALLED


@dataclass(frozen=True)
class Gap:
    """Cases of the operator matrix that fail with Spark's own RocksDB provider as well.

    Attributes
    ----------
    cases
        Beginnings of the names of the cases.
    error
        Spark's message, as a regular expression.
    reason
        For the reader of the compatibility table.
    partitions_min
        The fewest partitions on which it fails.
    """

    minors: tuple[str, ...]
    cases: tuple[str, ...]
    error: str
    reason: str
    partitions_min: int = 1


GAPS = (
    Gap(
        minors=("4.0", "4.1"),
        cases=("join-inner-update", "join-leftsemi-update"),
        error="not supported in Update output mode, only in Append output mode",
        reason="Spark has joins of two streams only in append mode",
    ),
    Gap(
        minors=("4.0",),
        cases=("transformWithState-",),
        error="no attribute 'transformWithState'",
        reason="PySpark 4.0 has only `transformWithStateInPandas`",
    ),
    Gap(
        minors=("4.0",),
        cases=("limit-",),
        # Spelt like this.
        error="ChekpointInfo length: 1, numPartitions: ",
        reason="Spark 4.0 fails with checkpoint format v2 on more than one shuffle partition, "
        "on any provider",
        partitions_min=2,
    ),
)


def gap_of(case: str, partitions: int, minor: str = INSTALLED) -> Gap | None:
    """The gap of a minor, by default this PySpark's, for a case on some partitions."""
    found = [
        gap
        for gap in GAPS
        if minor in gap.minors and case.startswith(gap.cases) and partitions >= gap.partitions_min
    ]
    return found[0] if found else None
