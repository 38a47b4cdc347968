"""What `write_kafka` refuses before it asks a broker, and how rows become records."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast._core import Staged
from holdfast.regions.sinks.kafka_marker import Marker
from holdfast.regions.sinks.kafka_options import FIXED
from holdfast.regions.sinks.kafka_records import RecordColumns
from holdfast.regions.sinks.layout import output_id
from holdfast.regions.sinks.owner import OutputOwner

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Through(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def writer(schema: Any = None, **options: Any) -> Any:
    fields = schema if schema is not None else pa.schema([("value", pa.string())])
    settings = {"bootstrap_servers": "127.0.0.1:9", "transactional_id": "mine", **options}
    pipeline = hf.regional(region_by="region").apply(Through(), schema=fields)
    return pipeline.write_kafka(settings.pop("topic", "out"), **settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a b"}, r"topic='a b' is not allowed"),
        ({"topic": ""}, r"topic='' is not allowed"),
        ({"transactional_id": ""}, r"transactional_id='' is not allowed"),
        ({"bootstrap_servers": None}, r"bootstrap_servers=None is not allowed"),
        ({"unsettled": "maybe"}, r"unsettled='maybe' is not allowed: expected one of fail, again"),
        ({"options": {"transaction.timeout.ms": "1 h"}}, "expected a number of milliseconds"),
        ({"options": {"kafka.acks": "1"}}, r"without Spark's prefix: 'acks'"),
        ({"options": {"sasl.jaas.config": "x"}}, r"librdkafka has sasl\.username and sasl\.pass"),
        ({"options": {"ssl.truststore.location": "x"}}, r"librdkafka has ssl\.ca\.location"),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        writer(**options)


@pytest.mark.parametrize("name", FIXED)
def test_settings_that_exactly_once_depends_on_cannot_be_given(name: str) -> None:
    with pytest.raises(ValueError, match="write_kafka sets it itself"):
        writer(options={name: "anything"})


def test_no_value_of_an_option_is_in_a_message(tmp_path: Path) -> None:
    secret = {"sasl.jaas.config": "password='hunter2'"}
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config") as raised:
        writer(options=secret)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ValueError, match="No such configuration property") as raised:
        writer(options={"sasl.passwort": "hunter2"}).open_local(tmp_path / "ckpt")
    assert "hunter2" not in str(raised.value)
    assert not (tmp_path / "ckpt").exists()


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "confluent_kafka":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-spark\[kafka\]'"):
        writer()


@pytest.mark.parametrize(
    ("fields", "columns", "message"),
    [
        ({"v": pa.string()}, {}, "value='value' of write_kafka is not among the columns .*: v"),
        ({"value": pa.int64()}, {}, "'value' has the type int64, and as the value .* binary or st"),
        ({"value": pa.string(), "k": pa.int32()}, {"key": "k"}, "'k' has the type int32, .* key"),
        ({"value": pa.string(), "p": pa.int64()}, {"partition": "p"}, "'p' has the type int64"),
        ({"value": pa.string(), "h": pa.string()}, {"headers": "h"}, "must have list<struct<key"),
        ({"value": pa.string(), "more": pa.string()}, {}, "columns more would not be in any recor"),
        ({"value": pa.string()}, {"key": "value"}, "names a column twice: value, value"),
    ],
)
def test_columns_that_are_no_records_are_refused_at_the_start(
    fields: dict[str, Any], columns: dict[str, str], message: str, tmp_path: Path
) -> None:
    refused = writer(pa.schema(list(fields.items())), **columns)
    with pytest.raises(ValueError, match=message):
        refused.open_local(tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


def test_a_broker_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.regions.sinks.kafka_client.START_S", 0.5)
    with pytest.raises(ConnectionError, match=r"cannot reach Kafka at 127\.0\.0\.1:9, .*_TRANSP"):
        writer().open_local(tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


def test_rows_become_records() -> None:
    rows = pa.record_batch(
        {
            "v": pa.array([b"\xff", None, b""], pa.binary()),
            "k": pa.array(["a", "b", None], pa.large_string()),
            "h": pa.array(
                [[{"key": "x", "value": b"1"}, {"key": "x", "value": None}], [], None], HEADERS
            ),
            "p": pa.array([1, None, 0], pa.int32()),
        }
    )
    columns = RecordColumns("v", key="k", headers="h", partition="p")
    columns.require_fit(rows.schema)
    assert list(columns.of(rows)) == [
        {"value": b"\xff", "key": "a", "headers": [("x", b"1"), ("x", None)], "partition": 1},
        {"value": None, "key": "b"},
        {"value": b"", "key": None, "partition": 0},
    ]
    assert list(RecordColumns("k").of(rows)) == [
        {"value": value, "key": None} for value in ("a", "b", None)
    ]


def test_a_marker_reads_back_and_is_never_too_long() -> None:
    marker = Marker(
        OutputOwner("0" * 32, "flights", "/ckpt"), after=3, checkpoint=7, output="0" * 64
    )
    assert Marker.decode(marker.encode(), "group") == marker
    long = Marker(OutputOwner("0" * 32, "\N{ROCKET}" * 256, "/" + "\N{ROCKET}" * 2000), after=2**63)
    assert len(long.encode().encode()) <= 4096
    assert Marker.decode(long.encode(), "group").owner.id == long.owner.id


@pytest.mark.parametrize("text", ["", "{}", "7", '{"version":0}', '{"version":1,"owner":{}}'])
def test_an_offset_of_others_is_no_marker(text: str) -> None:
    with pytest.raises(ValueError, match="the consumer group 'theirs' has offsets that Holdfast"):
        Marker.decode(text, "theirs")


def test_each_output_has_an_id_of_its_own() -> None:
    one, other = Staged("a.0123", "a", 1, 1), Staged("b.4567", "b", 1, 1)
    assert output_id(3, [one, other]) == output_id(3, [other, one])
    assert len({output_id(3, [one]), output_id(4, [one]), output_id(3, [one, other])}) == 3
