"""Errors of regional pipelines."""

from __future__ import annotations


class RegionalQueryError(RuntimeError):
    """A regional pipeline ended because it could not go on.

    Everything that a completed checkpoint holds is intact; starting the pipeline again goes on from
    there.
    """


class RegionInTwoTasksError(RegionalQueryError):
    """Rows of one region arrived in two tasks of a batch.

    Parameters
    ----------
    region : str
        Name of the region.
    first, second : int
        Partitions of the tasks.
    """

    def __init__(self, region: str, first: int, second: int) -> None:
        super().__init__(
            f"rows of region {region!r} arrived in two tasks of one batch (partitions {first} and "
            f"{second}). A region must arrive in one task: choose region_by so that it does, or "
            "repartition by these columns before hf.regional(...), which connects all regions, so "
            "that checkpoints are global only"
        )
