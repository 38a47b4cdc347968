"""Spark's row checksums: every value carries one, and a wrong one is refused wherever it is read.

That state with checksums reads as RocksDB's does is in test_state_readers.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from support.spark.operator_cases import Frames, count_and_sum, joined
from support.spark.operator_inputs import events
from support.spark.processors import History
from support.spark.queries import (
    CHECKSUMS,
    STATE,
    VERIFIED,
    canonical,
    drain,
    run,
    settings,
    source,
    write_batch,
)
from support.spark.transform_with_state_cases import transformed

REFUSAL = "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"


def lists(frames: Frames) -> DataFrame:
    return transformed(frames["events"], History, pandas=False, mode="update")


# How to make the state, its output mode, and how the statestore reader is told what to read.
QUERIES: dict[str, tuple[Callable[[Frames], DataFrame], str, dict[str, str]]] = {
    "aggregation": (count_and_sum, "update", {}),
    "aggregation-complete": (count_and_sum, "complete", {}),
    "join": (lambda frames: joined(frames, "fullouter"), "append", {"joinSide": "left"}),
    "list": (lists, "update", {"stateVarName": "values"}),
}


BATCHES = 3


def go_on(spark: SparkSession, name: str, folder: Path, batches: range) -> None:
    """Gives a query some batches, in one partition."""
    query, mode, _ = QUERIES[name]
    streams = ("events", "others") if name == "join" else ("events",)
    for n, stream in enumerate(streams):
        (folder / stream).mkdir(exist_ok=True)
        for batch in batches:
            write_batch(folder / stream, batch, events(n, batches=BATCHES + 1)[batch])
    frames = {stream: source(spark, folder / stream) for stream in streams}
    with settings(spark, {"spark.sql.shuffle.partitions": "1"}):
        drain(query(frames), checkpoint=folder / "checkpoint", mode=mode, into={})


def claim_checksums(checkpoint: Path) -> None:
    """Makes the offset log say that values have checksums: what is in front of them is none."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        version, metadata, *rest = path.read_text().split("\n")
        changed = json.loads(metadata)
        assert changed["conf"][STATE + "rowChecksum.enabled"] == "false"
        changed["conf"][STATE + "rowChecksum.enabled"] = "true"
        path.write_text("\n".join([version, json.dumps(changed), *rest]))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def require_refusal(action: Callable[[], Any]) -> None:
    """It fails in Spark's words, which name the store and both checksums."""
    with pytest.raises(Exception, match=REFUSAL) as error:
        action()
    text = str(error.value)
    assert re.search(r"stateStore=StateStoreId\[ operatorId=0, partitionId=0, storeName=", text)
    found = re.search(r"Expected checksum: (-?\d+), Computed checksum: (-?\d+)", text)
    assert found
    assert found[1] != found[2]


@pytest.mark.parametrize(
    "name", ["aggregation", *(pytest.param(n, marks=pytest.mark.full) for n in list(QUERIES)[1:])]
)
def test_a_wrong_checksum_in_the_state_is_refused_by_readers_and_by_the_query(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    go_on(spark, name, tmp_path, range(BATCHES))
    checkpoint = tmp_path / "checkpoint"
    last = len(list((checkpoint / "commits").glob("[0-9]*"))) - 1

    def read(**options: Any) -> list[Any]:
        reader = spark.read.format("statestore").options(**QUERIES[name][2], **options)
        return reader.load(str(checkpoint)).collect()

    ways: list[dict[str, Any]] = [{}, {"snapshotStartBatchId": 0, "snapshotPartitionId": 0}]
    if name != "join":
        ways.append({"readChangeFeed": True, "changeStartBatchId": 0})
    with settings(spark, VERIFIED):
        assert all(read(**options) for options in ways), "nothing is refused without checksums"
        claim_checksums(checkpoint)
        for options in ways:
            require_refusal(lambda options=options: read(**options))
        require_refusal(lambda: go_on(spark, name, tmp_path, range(BATCHES, BATCHES + 1)))
    assert not (checkpoint / "commits" / str(last + 1)).exists()


def test_a_row_with_one_altered_byte_is_refused(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    checksums = jvm.java.lang.Class.forName("io.holdfast.spark.store.RowChecksums", True, loader)
    # Not public: only stores use it.
    methods = {method.getName(): method for method in checksums.getDeclaredMethods()}
    for method in methods.values():
        method.setAccessible(True)

    def call(name: str, target: Any, *arguments: Any) -> Any:
        array = spark._sc._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for place, argument in enumerate(arguments):
            array[place] = argument
        return methods[name].invoke(target, array)

    of_state = jvm.org.apache.spark.sql.execution.streaming.state
    store = of_state.StateStoreId("nowhere", 3, 5, "some-store")
    with settings(spark, CHECKSUMS):
        conf = of_state.StateStoreConf.apply(spark._jsparkSession.sessionState().conf())
    rows = call("of", None, store, conf)
    key, value = b"a key", b"its value"
    sealed = call("seal", rows, key, value)
    assert len(sealed) == 4 + len(value)
    assert call("open", rows, key, sealed) == value

    def altered(content: bytes) -> list[bytes]:
        return [
            content[:n] + bytes([content[n] ^ 1]) + content[n + 1 :] for n in range(len(content))
        ]

    for wrong_key, wrong_value in [
        *((k, sealed) for k in altered(key)),
        *((key, v) for v in altered(sealed)),
    ]:
        with pytest.raises(Py4JJavaError) as error:
            call("open", rows, wrong_key, wrong_value)
        assert REFUSAL in str(error.value)
        assert "some-store" in str(error.value)


def test_rows_do_not_depend_on_checksums_and_every_value_has_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [[{"key": key, "value": key * batch} for key in range(50)] for batch in range(4)]
    runs, states, written = {}, {}, dict.fromkeys(("false", "true"), 0)
    for enabled in ("false", "true"):
        folder = tmp_path / enabled
        progress: list[dict[str, Any]] = []
        with settings(spark, {**VERIFIED, STATE + "rowChecksum.enabled": enabled}):
            runs[enabled] = run(
                spark,
                inputs={"events": rows},
                query=lambda frames: frames["events"].groupBy("key").sum("value"),
                mode="update",
                folder=folder,
                progress=progress,
            )
            state = spark.read.format("statestore").load(str(folder / "checkpoint"))
            states[enabled] = canonical(state.collect())
        for batch in progress:
            for operator in batch["stateOperators"]:
                written[enabled] += operator["customMetrics"]["holdfastWrittenBytes"]
    assert len(states["true"]) == 50
    assert runs["true"] == runs["false"]
    assert states["true"] == states["false"]
    assert written["true"] > written["false"]
