"""Files of a newer Holdfast: intact, and of an unknown version."""

from __future__ import annotations

import struct

#: In a frame's header, see rust/core/FORMAT.md: the bytes under its checksum, and with it.
_CHECKED_BYTES, _HEADER_BYTES = 16, 20
_VERSION = 99


def newer(content: bytes, offset: int = 0) -> bytes:
    """Return the file with the frame at `offset` in a newer version."""
    frame = bytearray(content[offset:])
    (body_bytes,) = struct.unpack_from("<I", frame, 8)
    struct.pack_into("<H", frame, 4, _VERSION)
    body = frame[_HEADER_BYTES : _HEADER_BYTES + body_bytes]
    struct.pack_into("<I", frame, _CHECKED_BYTES, _crc32c(bytes(frame[:_CHECKED_BYTES] + body)))
    return content[:offset] + bytes(frame)


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
