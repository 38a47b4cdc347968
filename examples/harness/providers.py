"""The state store providers that are compared, and a Spark session on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "org.apache.spark.sql.execution.streaming.state"
_CLASS = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

#: Configuration of Spark's own providers; "spark" is its default, the HDFS-backed one.
#: Holdfast's comes from ``holdfast.configure``.
SPARK_PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "spark": {_CLASS: f"{_STATE}.HDFSBackedStateStoreProvider"},
    "rocksdb": {_CLASS: f"{_STATE}.RocksDBStateStoreProvider", _CHANGELOG: "false"},
    "rocksdb-changelog": {_CLASS: f"{_STATE}.RocksDBStateStoreProvider", _CHANGELOG: "true"},
}

PROVIDERS = (*SPARK_PROVIDERS, "holdfast")

TITLES: Mapping[str, str] = {
    "spark": "Spark default",
    "rocksdb": "RocksDB",
    "rocksdb-changelog": "RocksDB, changelog",
    "holdfast": "Holdfast",
}


def start_session(
    *,
    provider: str,
    partitions: int,
    cores: int = 2,
    driver_memory: str = "2g",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process with one of the providers.

    Parameters
    ----------
    provider
        One of `PROVIDERS`.
    partitions
        Shuffle partitions, which is the number of state stores of an aggregation.
    cores
        Task slots of ``local[cores]``.
    driver_memory
        Heap of the JVM in Spark's notation.
    extra
        Further configuration.

    Raises
    ------
    ValueError
        If the provider is unknown.
    """
    if provider not in PROVIDERS:
        raise ValueError(f"expected a provider among {', '.join(PROVIDERS)}, found {provider!r}")
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        **SPARK_PROVIDERS.get(provider, {}),
        **(extra or {}),
    }
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.master(f"local[{cores}]").appName(f"holdfast demo on {provider}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if provider == "holdfast":
        import holdfast

        builder = holdfast.configure(builder)
    return builder.getOrCreate()
