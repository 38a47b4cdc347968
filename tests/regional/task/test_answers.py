"""What region tasks tell the driver, on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._core import InFlight, RegionEntry
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator import Acked, Declined, RegionStarted
from holdfast.regions.protocol.answers import (
    MESSAGE_BYTES,
    Answer,
    decode,
    encode,
    messages_of,
)

RUN = "0123456789abcdef" * 2


def declined(region: str, cause: str, **more: Any) -> Answer:
    return Answer(4, Declined(attempt=7, region=region, cause=cause, **more))


ANSWERS = [
    Answer(3, RegionStarted(attempt=7, region="Zürich")),
    Answer(3, Acked(attempt=7, region="JFK", entry=RegionEntry("JFK", origin=7)), b"figures"),
    Answer(
        3,
        Acked(
            attempt=7, region="BOS", entry=RegionEntry("BOS", origin=7), events=(("Ä", b"\xff"),)
        ),
    ),
    declined("LGA", "in trouble", in_flight=(InFlight(7, "source", 2, 3, inline=b"abc"),)),
    declined("EWR", "expired", had_rows=False),
    declined("SFO", "Ärger", problem=Problem.of(ValueError("no such carrier"))),
]


def test_answers_travel_together_in_their_order() -> None:
    (message,) = encode(RUN, ANSWERS)
    assert decode(message) == (RUN, ANSWERS)


def test_no_answers_are_no_message() -> None:
    assert list(encode(RUN, [])) == []


def test_many_answers_are_several_messages() -> None:
    regions = [f"{number:01000}" for number in range(3000)]
    answers = [Answer(0, RegionStarted(attempt=1, region=region)) for region in regions]
    messages = list(encode(RUN, answers))
    assert len(messages) == 3
    assert max(map(len, messages)) < MESSAGE_BYTES + 2000
    assert [answer for message in messages for answer in decode(message)[1]] == answers


def test_answers_that_count_together_are_in_one_message() -> None:  # R84
    def acked(region: str, *, with_next: bool) -> Answer:
        event = Acked(attempt=1, region=region, entry=RegionEntry(region, origin=1))
        return Answer(0, event, with_next=with_next)

    regions = [f"{number:01000}" for number in range(3000)]
    others = acked("before", with_next=False), acked("behind", with_next=False)
    group = [acked(region, with_next=True) for region in regions]
    answers = [others[0], *group, acked("last", with_next=False), others[1]]
    decoded = [decode(message)[1] for message in encode(RUN, answers)]
    assert [answer for message in decoded for answer in message] == answers
    assert all(not message[-1].with_next for message in decoded)


def test_a_message_that_is_cut_is_refused_wherever_it_is_cut() -> None:
    (message,) = encode(RUN, ANSWERS)
    wholes = {len(next(encode(RUN, ANSWERS[:count]))) for count in range(1, len(ANSWERS))}
    for length in set(range(len(message))) - wholes - {len(bytes.fromhex(RUN))}:
        with pytest.raises(ValueError, match="answer"):
            decode(message[:length])


def test_a_decline_that_says_more_than_it_holds_is_refused() -> None:
    (message,) = encode(RUN, [declined("", "why")])
    body = 16 + 25
    with pytest.raises(ValueError, match=r"an answer is cut: \d+ bytes of 264"):
        decode(message[: body + 1] + b"\xff" + message[body + 2 :])


def test_an_unknown_kind_is_refused() -> None:
    (message,) = encode(RUN, ANSWERS[1:2])
    with pytest.raises(ValueError, match="unknown kind 9"):
        decode(message[:16] + b"\x09" + message[17:])


def polled(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "little") + message for message in messages)


def test_messages_that_were_handed_over_together_come_one_by_one() -> None:
    given = [next(encode(RUN, [answer])) for answer in ANSWERS]
    assert list(messages_of(polled(*given))) == given
    assert list(messages_of(b"")) == []


def test_messages_that_are_cut_are_refused_wherever_they_are_cut() -> None:
    data = polled(b"first", b"second")
    for length in set(range(len(data))) - {0, 4 + len(b"first")}:
        with pytest.raises(ValueError, match="message is cut"):
            list(messages_of(data[:length]))
