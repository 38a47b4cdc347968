"""In-flight data as the payload of a segment (R56)."""

from __future__ import annotations

import decimal
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import NewerFormatError
from holdfast.regions.graph import ChannelData, decode_channels, encode_channels
from support.regional.graph_cases import channel_data, rows

FIXTURE = Path(__file__).parents[2] / "fixtures" / "in-flight-v1" / "in-flight.bin"


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"v1"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        assert (storage_type, serialized) == (pa.float64(), b"v1")
        return cls()


def some_data() -> list[ChannelData]:
    return [
        channel_data("source->stats.0", rows(1, 2), rows(3)),
        channel_data(
            "stats.0->join.0",
            pa.record_batch({"name": ["a", None, "ü"], "list": [[1], [], None]}),
            kind="output",
        ),
    ]


def same(left: tuple[ChannelData, ...], right: list[ChannelData]) -> bool:
    """Equal in everything, metadata of the schemas included."""
    return list(left) == right and all(
        a.schema.equals(b.schema, check_metadata=True)
        for x, y in zip(left, right, strict=True)
        for a, b in zip(x.batches, y.batches, strict=True)
    )


def test_in_flight_data_is_read_back_as_it_was() -> None:
    data = some_data()
    found = decode_channels(encode_channels(data))
    assert same(found, data)
    for entry in found:
        for batch in entry.batches:
            batch.validate(full=True)


def test_nothing_in_flight_is_read_back_as_nothing() -> None:
    assert decode_channels(encode_channels([])) == ()
    empty = [channel_data("source->a.0")]
    assert same(decode_channels(encode_channels(empty)), empty)


def test_entries_of_one_channel_stay_apart() -> None:
    data = [
        channel_data("source->a.0", rows(1)),
        channel_data("source->a.0", rows(2)),
        channel_data("source->a.0", rows(3), kind="output"),
    ]
    assert same(decode_channels(encode_channels(data)), data)


def test_batches_of_several_schemas_may_share_a_channel() -> None:
    narrow = pa.record_batch({"id": pa.array([1], pa.int32())})
    noted = rows(7).replace_schema_metadata({"note": "x"})
    data = [channel_data("source->a.0", rows(1), narrow, narrow, rows(2), noted)]
    assert same(decode_channels(encode_channels(data)), data)


def test_slices_dictionaries_and_nested_types_survive() -> None:
    first = pa.array(["x", "y", None, "x"]).dictionary_encode()
    second = pa.array(["z", "x"]).dictionary_encode()
    schema = pa.schema(
        [pa.field("key", first.type, nullable=True, metadata={"unit": "none"})], metadata={"a": "b"}
    )
    nested = pa.record_batch(
        {
            "struct": pa.array([{"a": 1, "b": [None, "x"]}, None]),
            "decimal": pa.array([decimal.Decimal("1.20"), None]),
            "time": pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
            "binary": pa.array([b"\x00", None], pa.large_binary()),
        }
    )
    data = [
        channel_data(
            "source->a.0",
            pa.record_batch([first], schema=schema),
            pa.record_batch([second], schema=schema),
        ),
        channel_data("a.0->b.0", nested, rows(*range(100)).slice(40, 3), kind="output"),
    ]
    found = decode_channels(encode_channels(data))
    assert same(found, data)
    assert len(encode_channels([data[1]])) < 4000, "a slice takes more than its own rows"


def test_extension_types_survive() -> None:
    pa.register_extension_type(Celsius())
    try:
        column = pa.ExtensionArray.from_storage(Celsius(), pa.array([21.5, None]))
        data = [channel_data("source->a.0", pa.record_batch({"temperature": column}))]
        found = decode_channels(encode_channels(data))
        assert same(found, data)
        assert isinstance(found[0].batches[0].column("temperature").type, Celsius)
    finally:
        pa.unregister_extension_type("tests.celsius")


def test_a_payload_cut_anywhere_is_refused() -> None:
    payload = encode_channels(some_data())
    for length in range(len(payload)):
        with pytest.raises(ValueError, match="in-flight data is cut: expected"):
            decode_channels(payload[:length])


def test_bytes_behind_a_payload_are_refused() -> None:
    with pytest.raises(ValueError, match="1 bytes are left over"):
        decode_channels(encode_channels(some_data()) + b"\x00")


def test_foreign_and_newer_payloads_are_refused() -> None:
    payload = encode_channels(some_data())
    with pytest.raises(ValueError, match="expected magic b'HFIF', found b'PAR1'"):
        decode_channels(b"PAR1" + payload[4:])
    with pytest.raises(NewerFormatError, match="up to version 1, found 2: a newer Holdfast wrote"):
        decode_channels(payload[:4] + struct.pack("<I", 2) + payload[8:])
    with pytest.raises(ValueError, match="expected kind 0 or 1, found 2"):
        decode_channels(payload[:12] + b"\x02" + payload[13:])


def test_lengths_beyond_the_payload_take_no_memory() -> None:
    payload = encode_channels([channel_data("c", rows(1))])
    entries = payload[:8] + struct.pack("<I", 2**32 - 1) + payload[12:]
    runs = payload[:18] + struct.pack("<IQ", 1, 2**63) + payload[30:]
    for damaged in (entries, runs):
        with pytest.raises(ValueError, match="in-flight data is cut"):
            decode_channels(damaged)


def test_decoded_batches_refer_to_the_payload() -> None:
    payload = pa.py_buffer(encode_channels([channel_data("c", rows(*range(1000)))]))
    before = pa.total_allocated_bytes()
    (entry,) = decode_channels(payload)
    assert entry.nbytes == 8000
    assert pa.total_allocated_bytes() - before < 8000


def test_the_payload_of_version_1_stays_readable() -> None:
    assert same(decode_channels(FIXTURE.read_bytes()), some_data())


COLUMN = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=5).map(
        lambda values: pa.array(values, pa.int64())
    ),
    st.lists(st.one_of(st.none(), st.text()), max_size=5).map(
        lambda values: pa.array(values, pa.string())
    ),
    st.lists(st.one_of(st.none(), st.text()), max_size=5).map(
        lambda values: pa.array(values, pa.string()).dictionary_encode()
    ),
)
ENTRY = st.builds(
    ChannelData,
    st.text(max_size=20),
    st.lists(COLUMN.map(lambda column: pa.record_batch({"x": column})), max_size=5).map(tuple),
    st.sampled_from(["input", "output"]),
)


@given(st.lists(ENTRY, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_in_flight_data_is_read_back_as_it_was(data: list[ChannelData]) -> None:
    assert same(decode_channels(encode_channels(data)), data)
