"""What region tasks tell the driver while an attempt runs, and its form on the wire.

A message is: run of the pipeline 16 bytes, then answers to the end. An answer is: kind 1 byte,
attempt u64, partition u32, length of the region's name u32, length of the encoded entry u32, the
name in UTF-8, the entry. In front of the entry of a region that declines: length u32 of the problem
that it had, and the problem. Numbers are little-endian. It lives for one attempt only and is never
stored. The run keeps out tasks of an earlier start of the same pipeline, whose attempts may have
had the same numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast._core import InFlight, RegionEntry
from holdfast.regions.problem import Problem

# A message that has grown to this is sent; far below what the connection takes.
MESSAGE_BYTES: Final = 1024 * 1024

_RUN_BYTES: Final = 16
_HEAD: Final = struct.Struct("<BQIII")
_PROBLEM: Final = struct.Struct("<I")
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
    problem : Problem, optional
        The exception that was raised, if one was.
    """

    attempt: int
    partition: int
    region: str
    cause: str
    in_flight: Sequence[InFlight] = ()
    had_rows: bool = True
    problem: Problem | None = None


Answer = Started | Acked | Declined


def encode(run: str, answers: Iterable[Answer]) -> Iterator[bytes]:
    """Yield messages with all answers in their order; `run` is 32 hexadecimal digits."""
    head = bytes.fromhex(run)
    message = bytearray(head)
    for answer in answers:
        message += _encoded(answer)
        if len(message) >= MESSAGE_BYTES:
            yield bytes(message)
            message = bytearray(head)
    if len(message) > len(head):
        yield bytes(message)


def decode(message: bytes) -> tuple[str, list[Answer]]:
    """Return the run and the answers in a message.

    Raises
    ------
    ValueError
        If it is none.
    """
    if len(message) < _RUN_BYTES:
        raise ValueError(f"answers have at least {_RUN_BYTES} bytes, these have {len(message)}")
    answers = []
    at = _RUN_BYTES
    while at < len(message):
        if len(message) < at + _HEAD.size:
            raise ValueError(f"an answer is cut: {len(message) - at} bytes of {_HEAD.size}")
        kind, attempt, partition, name_bytes, entry_bytes = _HEAD.unpack_from(message, at)
        name_at = at + _HEAD.size
        entry_at = name_at + name_bytes
        at = entry_at + entry_bytes
        if len(message) < at:
            raise ValueError(f"an answer is cut: {len(message) - name_at} bytes of {at - name_at}")
        region = message[name_at:entry_at].decode()
        answers.append(_decoded(kind, attempt, partition, region, message[entry_at:at]))
    return message[:_RUN_BYTES].hex(), answers


def _encoded(answer: Answer) -> bytes:
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
        problem = b"" if answer.problem is None else answer.problem.to_bytes()
        body = _PROBLEM.pack(len(problem)) + problem + carrier.to_bytes()
        kind = _DECLINED
    else:
        kind, body = _STARTED, b""
    head = _HEAD.pack(kind, answer.attempt, answer.partition, len(name), len(body))
    return head + name + body


def _decoded(kind: int, attempt: int, partition: int, region: str, body: bytes) -> Answer:
    if kind == _STARTED:
        return Started(attempt, partition, region)
    if kind == _ACKED:
        return Acked(attempt, partition, region, RegionEntry.from_bytes(body))
    if kind == _DECLINED:
        if len(body) < _PROBLEM.size:
            raise ValueError(f"an answer is cut: {len(body)} bytes of {_PROBLEM.size}")
        entry_at = _PROBLEM.size + _PROBLEM.unpack_from(body)[0]
        problem = body[_PROBLEM.size : entry_at]
        entry = RegionEntry.from_bytes(body[entry_at:])
        return Declined(
            attempt,
            partition,
            region,
            entry.cause,
            tuple(entry.in_flight),
            had_rows=not entry.finished,
            problem=Problem.from_bytes(problem) if problem else None,
        )
    raise ValueError(f"an answer of the unknown kind {kind}")
