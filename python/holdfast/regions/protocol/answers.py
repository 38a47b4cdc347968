"""What region tasks tell the driver while an attempt runs, and its form on the wire.

A message is: run of the pipeline 16 bytes, then answers to the end. An answer is: kind 1 byte,
attempt u64, partition u32, length of the region's name u32, length of the body u32, length of the
figures u32, the name in UTF-8, the body, the figures (see `protocol.figures`). The body of an
acknowledgement is the encoded entry; that of a decline: whether the region had rows 1 byte, length
of the cause u32, length of the problem u32, the cause in UTF-8, the problem, and an encoded entry
that holds the stored rows. Numbers are little-endian. A message lives for one attempt only and is
never stored. The run keeps out tasks of an earlier start of the same
pipeline, whose attempts may have had the same numbers.

The driver's JVM hands several messages over at once, each behind its length u32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast._core import RegionEntry
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator import Acked, Declined, RegionStarted

# A message that has grown to this is sent; far below what the connection takes.
MESSAGE_BYTES: Final = 1024 * 1024

_LENGTH: Final = struct.Struct("<I")
_RUN_BYTES: Final = 16
_HEAD: Final = struct.Struct("<BQIIII")
_DECLINE: Final = struct.Struct("<?II")
_STARTED, _ACKED, _DECLINED = 1, 2, 3


@dataclass(frozen=True)
class Answer:
    """What happened to a region in a task.

    Parameters
    ----------
    partition : int
        Partition of the task: a region that starts in two is an error of the query.
    event : RegionStarted, Acked or Declined
        The coordinator's event. The driver knows which task was lost, so that a decline on the wire
        names none.
    figures : bytes
        Of an acknowledgement or a decline: what the region's operators did, encoded.
    """

    partition: int
    event: RegionStarted | Acked | Declined
    figures: bytes = b""


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


def messages_of(polled: bytes) -> Iterator[bytes]:
    """Yield the messages that the driver's JVM handed over together.

    Raises
    ------
    ValueError
        If one is cut.
    """
    at = 0
    while at < len(polled):
        begin = at + _LENGTH.size
        if len(polled) < begin:
            raise ValueError(f"the length of a message is cut: {len(polled) - at} bytes")
        (length,) = _LENGTH.unpack_from(polled, at)
        at = begin + length
        if len(polled) < at:
            raise ValueError(f"a message is cut: {len(polled) - begin} bytes of {length}")
        yield polled[begin:at]


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
        head = _HEAD.unpack_from(message, at)
        kind, attempt, partition, name_bytes, body_bytes, figures_bytes = head
        name_at = at + _HEAD.size
        body_at = name_at + name_bytes
        figures_at = body_at + body_bytes
        at = figures_at + figures_bytes
        if len(message) < at:
            raise ValueError(f"an answer is cut: {len(message) - name_at} bytes of {at - name_at}")
        region = message[name_at:body_at].decode()
        event = _decoded(kind, attempt, region, message[body_at:figures_at])
        answers.append(Answer(partition, event, message[figures_at:at]))
    return message[:_RUN_BYTES].hex(), answers


def _encoded(answer: Answer) -> bytes:
    event = answer.event
    name = event.region.encode()
    match event:
        case RegionStarted():
            kind, body = _STARTED, b""
        case Acked():
            kind, body = _ACKED, event.entry.to_bytes()
        case Declined():
            cause = event.cause.encode()
            problem = b"" if event.problem is None else event.problem.to_bytes()
            stored = RegionEntry(event.region, origin=event.attempt, in_flight=event.in_flight)
            decline = _DECLINE.pack(event.had_rows, len(cause), len(problem))
            kind, body = _DECLINED, decline + cause + problem + stored.to_bytes()
    figures = answer.figures
    lengths = len(name), len(body), len(figures)
    return _HEAD.pack(kind, event.attempt, answer.partition, *lengths) + name + body + figures


def _decoded(kind: int, attempt: int, region: str, body: bytes) -> RegionStarted | Acked | Declined:
    if kind == _STARTED:
        return RegionStarted(attempt=attempt, region=region)
    if kind == _ACKED:
        return Acked(attempt=attempt, region=region, entry=RegionEntry.from_bytes(body))
    if kind == _DECLINED:
        if len(body) < _DECLINE.size:
            raise ValueError(f"an answer is cut: {len(body)} bytes of {_DECLINE.size}")
        had_rows, cause_bytes, problem_bytes = _DECLINE.unpack_from(body)
        problem_at = _DECLINE.size + cause_bytes
        stored_at = problem_at + problem_bytes
        if len(body) < stored_at:
            raise ValueError(f"an answer is cut: {len(body)} bytes of {stored_at}")
        problem = body[problem_at:stored_at]
        return Declined(
            attempt=attempt,
            region=region,
            cause=body[_DECLINE.size : problem_at].decode(),
            in_flight=tuple(RegionEntry.from_bytes(body[stored_at:]).in_flight),
            had_rows=had_rows,
            problem=Problem.from_bytes(problem) if problem else None,
        )
    raise ValueError(f"an answer of the unknown kind {kind}")
