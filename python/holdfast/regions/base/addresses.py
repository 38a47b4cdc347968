"""The bound on the addresses of a process, which Spark sets for its Python workers."""

from __future__ import annotations

import resource


def address_bytes_max() -> int | None:
    """Return the bytes of addresses that this process may have; None without a bound."""
    # ``spark.executor.pyspark.memory`` counts addresses, so a thread's stack counts in full.
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
