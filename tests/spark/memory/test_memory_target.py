"""From how much native memory on an executor's state leaves it, by what the executor has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.spark.java_fields import field_of

pytestmark = pytest.mark.spark

MIB = 1 << 20
GIB = 1 << 30

#: A target that is never reached.
NONE = (1 << 63) - 1

#: A machine of 64 GiB, all of which the JVM may use, and a heap of 4 GiB.
MACHINE = (4 * GIB, 64 * GIB, 64 * GIB)


def facts(spark: SparkSession, conf: Mapping[str, str], process: tuple[int, int, int]) -> Any:
    """What an executor knows that has these settings, heap, limit and machine."""
    jvm: Any = spark._jvm
    given = jvm.org.apache.spark.SparkConf(False)
    for key, value in conf.items():
        given.set(key, value)
    return jvm.io.holdfast.spark.executor.MemoryFacts.of(given, *process)


def target(
    spark: SparkSession,
    *,
    limit: int = 0,
    wanted: int | None = None,
    conf: Mapping[str, str] | None = None,
    process: tuple[int, int, int] = MACHINE,
) -> Any:
    jvm: Any = spark._jvm
    optional = jvm.java.util.OptionalLong
    chosen = optional.empty() if wanted is None else optional.of(wanted)
    known = facts(spark, conf or {}, process)
    return jvm.io.holdfast.spark.executor.MemoryTarget.of(limit, chosen, known)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://127.0.0.1:6443"])
@pytest.mark.parametrize(
    ("conf", "overhead_mib"),
    [
        ({}, 384),
        ({"spark.executor.memory": "2g"}, 384),
        ({"spark.executor.memory": "8g"}, 819),
        ({"spark.executor.memory": "8g", "spark.executor.minMemoryOverhead": "1g"}, 1024),
        ({"spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.25"}, 2048),
        ({"spark.executor.memory": "8g", "spark.kubernetes.memoryOverheadFactor": "0.4"}, 3276),
        (
            {
                "spark.executor.memory": "8g",
                "spark.kubernetes.memoryOverheadFactor": "0.4",
                "spark.executor.memoryOverheadFactor": "0.25",
            },
            2048,
        ),
        # Spark reads a number alone as MiB.
        ({"spark.executor.memoryOverhead": "3000"}, 3000),
        ({"spark.executor.memoryOverhead": "3g", "spark.executor.memoryOverheadFactor": "1"}, 3072),
    ],
)
def test_in_a_container_of_spark_it_is_half_of_the_overhead(
    spark: SparkSession, master: str, conf: dict[str, str], overhead_mib: int
) -> None:
    # Whatever the process sees of its container: YARN need not limit it.
    for limit in (6 * GIB, 64 * GIB):
        found = target(
            spark, conf={**conf, "spark.master": master}, process=(4 * GIB, limit, 64 * GIB)
        )
        assert found.bytes() == overhead_mib * MIB // 2
        assert f"half of the memory overhead, {overhead_mib} MiB" in found.origin()
        assert not found.isChosen()


@pytest.mark.parametrize("master", ["local[*]", "local-cluster[2,1,1024]", "spark://127.0.0.1:1"])
def test_in_another_container_it_is_half_of_what_the_heap_leaves(
    spark: SparkSession, master: str
) -> None:
    # An overhead is nothing that these masters give.
    conf = {"spark.master": master, "spark.executor.memoryOverhead": "40g"}
    found = target(spark, conf=conf, process=(4 * GIB, 10 * GIB, 64 * GIB))
    assert found.bytes() == 3 * GIB
    assert "half of what the heap leaves of the container, 6144 MiB" in found.origin()
    shared = {
        **conf,
        "spark.executor.pyspark.memory": "1g",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "1g",
    }
    found = target(spark, conf=shared, process=(4 * GIB, 10 * GIB, 64 * GIB))
    assert found.bytes() == 2 * GIB


def test_on_a_machine_without_a_limit_it_is_a_quarter_of_what_the_heap_leaves(
    spark: SparkSession,
) -> None:
    found = target(spark, conf={"spark.master": "local[4]"})
    assert found.bytes() == 15 * GIB
    assert "a quarter of what the heap leaves of the machine, 61440 MiB" in found.origin()


@pytest.mark.parametrize(
    ("conf", "process"),
    [
        ({"spark.master": "local"}, (2 * GIB, 2 * GIB, 64 * GIB)),
        ({"spark.master": "local"}, (4 * GIB, 2 * GIB, 2 * GIB)),
        ({"spark.master": "yarn", "spark.executor.memoryOverhead": "100m"}, MACHINE),
    ],
)
def test_small_jobs_have_room_wherever_they_run(
    spark: SparkSession, conf: dict[str, str], process: tuple[int, int, int]
) -> None:
    found = target(spark, conf=conf, process=process)
    assert found.bytes() == 128 * MIB
    assert found.origin().startswith("the least")


def test_what_settings_say_comes_first(spark: SparkSession) -> None:
    for conf in ({"spark.master": "yarn"}, {"spark.master": "local"}):
        given = target(spark, wanted=5 * MIB, limit=GIB, conf=conf)
        assert (given.bytes(), given.isChosen()) == (5 * MIB, True)
        limited = target(spark, limit=GIB, conf=conf)
        # The core takes three quarters of the limit.
        assert (limited.bytes(), limited.isChosen()) == (0, True)
        assert "three quarters of maxMemoryBytes, 1024 MiB" in limited.origin()
        for limit in (0, GIB):
            off = target(spark, wanted=0, limit=limit, conf=conf)
            assert (off.bytes(), off.isChosen()) == (NONE, False)


def test_the_setting_may_be_a_size_or_auto_or_0(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    key = "spark.sql.streaming.stateStore.holdfast.targetMemoryBytes"

    def read(values: dict[str, str]) -> str:
        conf = jvm.io.holdfast.spark.HoldfastConf(values)
        return str(field_of(spark, "io.holdfast.spark.HoldfastConf", "targetMemoryBytes", conf))

    assert read({}) == read({key: "auto"}) == read({key: " AUTO "}) == "OptionalLong.empty"
    assert read({key: "0"}) == "OptionalLong[0]"
    assert read({key: "2k"}) == "OptionalLong[2048]"


def test_this_process_knows_its_machine_and_its_heap(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    known = jvm.io.holdfast.spark.executor.MemoryFacts.here(context.sc().conf())
    assert known.heapBytes() == jvm.java.lang.Runtime.getRuntime().maxMemory()
    assert GIB // 2 < known.limitBytes() <= known.machineBytes()
    assert not known.isContainerOfSpark()
