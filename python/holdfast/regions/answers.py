"""What region tasks tell the driver while an attempt runs, and its form on the wire.

A message is: run of the pipeline 16 bytes, kind 1 byte, attempt u64, partition u32, length of the
region's name u32, the name in UTF-8, then the encoded entry to the end. Numbers are little-endian.
It lives for one attempt only and is never stored. The run keeps out tasks of an earlier start of
the same pipeline, whose attempts may have had the same numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast._core import InFlight, RegionEntry

_HEAD: Final = struct.Struct("<16sBQII")
_STARTED, _ACKED, _DECLINED = 1, 2, 3


@dataclass(frozen=True)
class Started:
    """A task found rows of the region, or was told to replay it.

    Parameters
    ----------
    attempt : int
        Checkpoint id.
    partition : int
        Partition of the task: a region that starts in two is an error of the query.
    region : str
        Name of the region.
    """

    attempt: int
    partition: int
    region: str


@dataclass(frozen=True)
class Acked:
    """The region's state for the attempt is durable (SEMANTICS R3). See `Started`."""

    attempt: int
    partition: int
    region: str
    entry: RegionEntry


@dataclass(frozen=True)
class Declined:
    """The region failed for this attempt (SEMANTICS R4). See `Started`.

    Parameters
    ----------
    cause : str
        Why, for people.
    in_flight : sequence of InFlight
        Its rows of the batch, stored; empty when that failed too, or there were none.
    had_rows : bool
        It had rows in this batch.
    """

    attempt: int
    partition: int
    region: str
    cause: str
    in_flight: Sequence[InFlight] = ()
    had_rows: bool = True


Answer = Started | Acked | Declined


def encode(run: str, answer: Answer) -> bytes:
    """Return the message for an answer; `run` is 32 hexadecimal digits."""
    name = answer.region.encode()
    if isinstance(answer, Acked):
        kind, body = _ACKED, answer.entry.to_bytes()
    elif isinstance(answer, Declined):
        # An entry has room for all of it: `finished` stands for "had no rows".
        carrier = RegionEntry(
            answer.region,
            origin=answer.attempt,
            in_flight=answer.in_flight,
            finished=not answer.had_rows,
            failed=True,
            cause=answer.cause,
        )
        kind, body = _DECLINED, carrier.to_bytes()
    else:
        kind, body = _STARTED, b""
    return (
        _HEAD.pack(bytes.fromhex(run), kind, answer.attempt, answer.partition, len(name))
        + name
        + body
    )


def decode(message: bytes) -> tuple[str, Answer]:
    """Return the run and the answer in a message.

    Raises
    ------
    ValueError
        If it is none.
    """
    if len(message) < _HEAD.size:
        raise ValueError(f"an answer has at least {_HEAD.size} bytes, this one has {len(message)}")
    run_bytes, kind, attempt, partition, name_bytes = _HEAD.unpack_from(message)
    run = run_bytes.hex()
    body_at = _HEAD.size + name_bytes
    if len(message) < body_at:
        raise ValueError(
            f"an answer names a region of {name_bytes} bytes and is cut before its end"
        )
    region = message[_HEAD.size : body_at].decode()
    if kind == _STARTED:
        return run, Started(attempt, partition, region)
    entry = RegionEntry.from_bytes(message[body_at:])
    if kind == _ACKED:
        return run, Acked(attempt, partition, region, entry)
    if kind == _DECLINED:
        had_rows = not entry.finished
        in_flight = tuple(entry.in_flight)
        return run, Declined(attempt, partition, region, entry.cause, in_flight, had_rows)
    raise ValueError(f"an answer of the unknown kind {kind}")
