"""In-flight data as bytes: the payload of one segment (R56).

Arrow's IPC stream has one schema, so each run of batches of one schema is a stream of its own,
framed by its length. All integers are little-endian::

    payload := magic "HFIF" | u32 version = 1 | u32 entries | entry ...
    entry   := u8 kind (0 input, 1 output) | u32 length | channel name in UTF-8 | u32 runs | run ...
    run     := u64 length | Arrow IPC stream: schema, dictionaries, batches, end-of-stream mark

Entries are in the order given, runs in the order of the batches; without batches there are none.
Nothing follows the last entry. The segment's digest covers the payload, which has no checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from holdfast.regions.base.versions import require_known
from holdfast.regions.graph.data import ChannelData

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

MAGIC = b"HFIF"
VERSION = 1

_KINDS: tuple[Literal["input", "output"], ...] = ("input", "output")


def encode_channels(data: Sequence[ChannelData]) -> bytes:
    """Encode in-flight data as a segment's payload, with dictionaries, extensions and metadata."""
    parts: list[bytes | pa.Buffer] = [struct.pack("<4sII", MAGIC, VERSION, len(data))]
    for entry in data:
        name = entry.channel.encode()
        runs = [_encode_run(run) for run in _runs(entry.batches)]
        parts += [struct.pack("<BI", _KINDS.index(entry.kind), len(name)), name]
        parts.append(struct.pack("<I", len(runs)))
        for run in runs:
            parts += [struct.pack("<Q", run.size), run]
    return b"".join(parts)


def decode_channels(payload: Buffer) -> tuple[ChannelData, ...]:
    """Decode a payload of `encode_channels`.

    The batches refer to its memory, which must not change. Raises a ValueError for another
    payload, or one that is cut or too long, and a NewerFormatError if a newer Holdfast wrote it.
    """
    reader = _Reader(payload)
    magic, version, entries = reader.unpack("<4sII")
    if magic != MAGIC:
        raise ValueError(f"in-flight data: expected magic {MAGIC!r}, found {magic!r}")
    require_known("in-flight data", version, VERSION)
    if version < VERSION:
        raise ValueError(f"in-flight data: expected version {VERSION}, found {version}")
    data = tuple(_decode_entry(reader) for _ in range(entries))
    if reader.left:
        raise ValueError(f"in-flight data: {reader.left} bytes are left over behind the last entry")
    return data


def _runs(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Group neighbours of one schema, metadata included."""
    runs: list[list[pa.RecordBatch]] = []
    for batch in batches:
        if not runs or not runs[-1][0].schema.equals(batch.schema, check_metadata=True):
            runs.append([])
        runs[-1].append(batch)
    return runs


def _encode_run(batches: list[pa.RecordBatch]) -> pa.Buffer:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue()


def _decode_entry(reader: _Reader) -> ChannelData:
    import pyarrow as pa

    (kind,) = reader.unpack("<B")
    if kind >= len(_KINDS):
        raise ValueError(f"in-flight data: expected kind 0 or 1, found {kind}")
    (length,) = reader.unpack("<I")
    channel = str(reader.take(length), "utf-8")
    (runs,) = reader.unpack("<I")
    batches: list[pa.RecordBatch] = []
    for _ in range(runs):
        (length,) = reader.unpack("<Q")
        with pa.ipc.open_stream(pa.py_buffer(reader.take(length))) as stream:
            batches += stream
    return ChannelData(channel, tuple(batches), _KINDS[kind])


class _Reader:
    """Takes a payload apart from front to back."""

    def __init__(self, payload: Buffer) -> None:
        self._view = memoryview(payload).cast("B")
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._view) - self._at

    def take(self, length: int) -> memoryview:
        if length > self.left:
            raise ValueError(
                f"in-flight data is cut: expected {length} bytes at offset {self._at}, "
                f"found {self.left}"
            )
        start, self._at = self._at, self._at + length
        return self._view[start : self._at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))
