"""Answers of region tasks to the driver while an attempt runs, and their form on the wire.

A message is: run of the pipeline 16 bytes, then answers to the end. An answer is: kind 1 byte,
attempt u64, partition u32, length of the region's name u32, length of the body u32, length of the
figures u32, the name in UTF-8, the body, the figures (see `protocol.figures`). The body of an
acknowledgement is: length of the events u32, these as JSON with their bytes as base64 (nothing if
there are none), and the encoded entry. Another kind is an acknowledgement that counts together with
the next one; one message has all of these. The body of a decline is: whether the region had rows 1
byte, length of the cause u32, length of the problem u32, the cause in UTF-8, the problem, and an
encoded entry with the stored rows. Numbers are little-endian.

A message is never stored. The run keeps out tasks of an earlier start of the same pipeline, whose
attempts may have had the same numbers. The driver's JVM hands over several messages at once, each
after its length u32.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast._core import RegionEntry
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator import Acked, Declined, RegionStarted

#: Size at which a message is sent; the connection takes far larger ones.
MESSAGE_BYTES: Final = 1024 * 1024

_LENGTH: Final = struct.Struct("<I")
_RUN_BYTES: Final = 16
_HEAD: Final = struct.Struct("<BQIIII")
_DECLINE: Final = struct.Struct("<?II")
_STARTED, _ACKED, _DECLINED, _ACKED_WITH_NEXT = 1, 2, 3, 4


@dataclass(frozen=True)
class Answer:
    """An event of a region in a task.

    Parameters
    ----------
    partition : int
        Partition of the task: a region that starts in two is an error of the query.
    event : RegionStarted, Acked or Declined
        The coordinator's event. A decline on the wire names no lost task: the driver knows which.
    figures : bytes
        Encoded `OperatorFigures` of an acknowledgement or a decline.
    with_next : bool
        An acknowledgement that counts only with the next answer: their rows are in one file.
    """

    partition: int
    event: RegionStarted | Acked | Declined
    figures: bytes = b""
    with_next: bool = False


def encode(run: str, answers: Iterable[Answer]) -> Iterator[bytes]:
    """Yield messages with all answers in their order; `run` is 32 hexadecimal digits."""
    head = bytes.fromhex(run)
    message = bytearray(head)
    for answer in answers:
        message += _encoded(answer)
        if len(message) >= MESSAGE_BYTES and not answer.with_next:
            yield bytes(message)
            message = bytearray(head)
    if len(message) > len(head):
        yield bytes(message)


def messages_of(polled: bytes) -> Iterator[bytes]:
    """Yield the messages that the driver's JVM handed over together; ValueError if one is cut."""
    at = 0
    while at < len(polled):
        begin = at + _LENGTH.size
        _require(len(polled) - at, _LENGTH.size, "the length of a message")
        (length,) = _LENGTH.unpack_from(polled, at)
        at = begin + length
        _require(len(polled) - begin, length, "a message")
        yield polled[begin:at]


def _require(found: int, expected: int, part: str = "an answer") -> None:
    if found < expected:
        raise ValueError(f"{part} is cut: {found} bytes of {expected}")


def decode(message: bytes) -> tuple[str, list[Answer]]:
    """Return the run and the answers in a message, or raise ValueError."""
    if len(message) < _RUN_BYTES:
        raise ValueError(f"answers have at least {_RUN_BYTES} bytes, these have {len(message)}")
    answers = []
    at = _RUN_BYTES
    while at < len(message):
        _require(len(message) - at, _HEAD.size)
        head = _HEAD.unpack_from(message, at)
        kind, attempt, partition, name_bytes, body_bytes, figures_bytes = head
        name_at = at + _HEAD.size
        body_at = name_at + name_bytes
        figures_at = body_at + body_bytes
        at = figures_at + figures_bytes
        _require(len(message) - name_at, at - name_at)
        region = message[name_at:body_at].decode()
        event = _decoded(kind, attempt, region, message[body_at:figures_at])
        with_next = kind == _ACKED_WITH_NEXT
        answers.append(Answer(partition, event, message[figures_at:at], with_next))
    return message[:_RUN_BYTES].hex(), answers


def _encoded(answer: Answer) -> bytes:
    event = answer.event
    name = event.region.encode()
    match event:
        case RegionStarted():
            kind, body = _STARTED, b""
        case Acked():
            sent = _encoded_events(event.events)
            kind = _ACKED_WITH_NEXT if answer.with_next else _ACKED
            body = _LENGTH.pack(len(sent)) + sent + event.entry.to_bytes()
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
    if kind in (_ACKED, _ACKED_WITH_NEXT):
        _require(len(body), _LENGTH.size)
        entry_at = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        return Acked(
            attempt=attempt,
            region=region,
            entry=RegionEntry.from_bytes(body[entry_at:]),
            events=_decoded_events(body[_LENGTH.size : entry_at]),
        )
    if kind == _DECLINED:
        _require(len(body), _DECLINE.size)
        had_rows, cause_bytes, problem_bytes = _DECLINE.unpack_from(body)
        problem_at = _DECLINE.size + cause_bytes
        stored_at = problem_at + problem_bytes
        _require(len(body), stored_at)
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


def _encoded_events(events: Sequence[tuple[str, bytes]]) -> bytes:
    if not events:
        return b""
    return json.dumps([(to, b64encode(event).decode()) for to, event in events]).encode()


def _decoded_events(data: bytes) -> tuple[tuple[str, bytes], ...]:
    return tuple((to, b64decode(event)) for to, event in json.loads(data)) if data else ()
