"""The content of a checkpoint's physical files, read only by rust/core/FORMAT.md."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FRAME_HEADER_BYTES = 20
#: Kinds of frames: the beginning of a segment, and more of it; of a run these are entries, groups,
#: directory and trailer.
HEAD, DATA = 2, 3
RUN = (10, 11, 12, 13)
#: The last frame of a run.
RUN_END = 13


def snapshot(folder: Path) -> dict[str, str]:
    """Digest of every file below ``folder``."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def merged_files(checkpoint: Path) -> list[Path]:
    """Holdfast's physical files of a checkpoint."""
    return sorted(_folder(checkpoint).glob("*.hf"))


def stored_segments(file: Path) -> list[int]:
    """Sizes in bytes of the segments in a merged file."""
    content = file.read_bytes()
    sizes: list[int] = []
    at = 0
    while at + FRAME_HEADER_BYTES <= len(content):
        kind, length = _frame(content[at : at + FRAME_HEADER_BYTES])
        frame = FRAME_HEADER_BYTES + length
        if kind == HEAD:
            sizes.append(0)
        if kind in (HEAD, DATA, *RUN):
            sizes[-1] += frame
        at += frame
    return sizes


def runs_in(file: Path) -> int:
    """The number of whole runs in a merged file."""
    content = file.read_bytes()
    found = at = 0
    while at + FRAME_HEADER_BYTES <= len(content):
        kind, length = _frame(content[at : at + FRAME_HEADER_BYTES])
        at += FRAME_HEADER_BYTES + length
        found += kind == RUN_END and at <= len(content)
    return found


def commit_ids(checkpoint: Path, batch: int) -> dict[str, list[list[str]]]:
    """State store ids of one batch, by operator, partition and store."""
    text = (checkpoint / "commits" / str(batch)).read_text()
    ids: dict[str, list[list[str]]] = json.loads(text.split("\n", 1)[1])["stateUniqueIds"]
    return ids


class Segment(NamedTuple):
    """A reference to a segment."""

    term: int
    seq: int
    offset: int
    len: int

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        return cls(*struct.unpack_from("<QIQQ", data))

    def path(self, checkpoint: Path) -> Path:
        return _folder(checkpoint) / f"{self.term:016x}-{self.seq:08x}.hf"

    def head(self, checkpoint: Path) -> list[tuple[int, int | bytes]]:
        """Fields of its head."""
        with self.path(checkpoint).open("rb") as file:
            file.seek(self.offset)
            _, length = _frame(file.read(FRAME_HEADER_BYTES))
            return list(fields(file.read(length)))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Tags and values of a Protocol Buffers message of varints and bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        tag, kind = divmod(key, 8)
        value, position = _varint(message, position)
        if kind == 2:
            yield tag, message[position : position + value]
            position += value
        else:
            yield tag, value


def delta_runs(store_id: str) -> int:
    """The number of delta runs in a commit id."""
    return _decode(store_id)[0] & 0x0F


def segment_of(store_id: str) -> Segment | None:
    """The segment that a commit id refers to."""
    data = _decode(store_id)
    shape = data[0]
    if not shape & 0x10:
        return None
    # Version, floor, newest delta run with marks, and owner come before the segment.
    _, at = _varint(data, 1)
    at += 1 + (6 if shape & 0x0F else 0) + 4
    end_of_term = at + (8 if shape & 0x40 else 7)
    seq, at_offset = _varint(data, end_of_term)
    offset, at_len = _varint(data, at_offset)
    length, _ = _varint(data, at_len)
    return Segment(int.from_bytes(data[at:end_of_term], "little"), seq, offset, length)


def lineage(checkpoint: Path, store_id: str) -> list[Segment]:
    """All segments of a version, oldest first."""
    newest = segment_of(store_id)
    if newest is None:
        return []
    older = [value for tag, value in newest.head(checkpoint) if tag == 4]
    return [*(Segment.decode(value) for value in older if isinstance(value, bytes)), newest]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _decode(store_id: str) -> bytes:
    encoded = store_id.partition("-")[2]
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "state" / "holdfast"


def _frame(header: bytes) -> tuple[int, int]:
    """Kind of a frame, and the length after its header."""
    return header[6], int.from_bytes(header[8:12], "little")
