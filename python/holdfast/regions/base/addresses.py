"""The bound on the addresses of a process, which Spark sets for its Python workers."""

from __future__ import annotations

import resource


def address_bytes_max() -> int | None:
    """Return ``spark.executor.pyspark.memory``, if it bounds addresses; stacks count in full."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
