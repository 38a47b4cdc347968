"""Pixels of small PNG pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_CHANNELS = {2: 3, 6: 4}


def pixels_of(png: bytes) -> list[tuple[int, ...]]:
    """Return red, green and blue of every pixel, line by line."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks = list(_chunks(png))
    width, _, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, interlaced) == (8, 0)
    channels = _CHANNELS[colours]
    content = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    length = width * channels
    above, found = bytearray(length), []
    for at in range(0, len(content), length + 1):
        above = _line(content[at], content[at + 1 : at + 1 + length], above, channels)
        found += [tuple(above[x : x + 3]) for x in range(0, length, channels)]
    return found


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _line(kind: int, packed: bytes, above: bytearray, channels: int) -> bytearray:
    """Undo the filter of a line: what was written is the difference to a guess."""
    line = bytearray(packed)
    for x in range(len(line)):
        left = line[x - channels] if x >= channels else 0
        corner = above[x - channels] if x >= channels else 0
        guesses = (0, left, above[x], (left + above[x]) // 2, _paeth(left, above[x], corner))
        line[x] = (line[x] + guesses[kind]) & 0xFF
    return line


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))
