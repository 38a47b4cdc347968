"""Limits of the memory that state takes, as each provider has them."""

from __future__ import annotations

from holdfast._options import OPTIONS, STORE

#: Those whose memory can be limited; Spark's default keeps all state on the heap.
LIMITED = ("rocksdb-changelog", "rocksdb", "holdfast")


def memory_limit(provider: str, memory_mib: int) -> dict[str, str]:
    """Return settings: Holdfast's target, the whole of RocksDB's caches and write buffers."""
    if provider == "holdfast":
        return {OPTIONS["target_memory_bytes"].key: f"{memory_mib}m"}
    return {
        f"{STORE}.rocksdb.boundedMemoryUsage": "true",
        f"{STORE}.rocksdb.maxMemoryUsageMB": str(memory_mib),
    }
