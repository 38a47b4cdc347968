"""A pipeline into a topic that is killed around a transaction. Run as a program.

``kafka_job.py SERVERS TOPIC FOLDER POINT``: the process kills itself at the POINT of its third
transaction, for checkpoint 3; the first one is its claim of the transactional id.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.regions.sinks import batch_function
from holdfast.regions.sinks.kafka_client import KafkaTransactions
from support.regional.kafka_pipeline import BATCHES, open_pipeline, run

#: In the order of a transaction. ``ending`` is in the middle of its end.
POINTS = ("begin", "some", "records", "marker", "ending", "committed", "noted")
NTH = 3


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A producer that reaches a point of a transaction: of the one that `is_due`."""

    def __init__(
        self,
        producer: Any,
        point: str | None,
        *,
        is_due: Callable[[], bool] | None = None,
        end: Callable[[], None] = die,
    ) -> None:
        self._producer = producer
        self._point = point
        self._begun = 0
        self._is_due = is_due or (lambda: self._begun == NTH)
        self._die = end

    def passes(self, point: str) -> None:
        if point == self._point and self._is_due():
            self._die()

    def begin_transaction(self) -> None:
        self._begun += 1
        self.passes("begin")
        self._producer.begin_transaction()

    def produce(self, *arguments: Any, **record: Any) -> None:
        self._producer.produce(*arguments, **record)
        if self._point == "some" and self._is_due():
            assert self._producer.flush(30) == 0, "the first record is at the broker"
            self.passes("some")

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        if self._point == "records" and self._is_due():
            assert self._producer.flush(30) == 0, "the records are at the broker"
        self.passes("records")
        self._producer.send_offsets_to_transaction(*arguments)
        self.passes("marker")

    def commit_transaction(self, *arguments: Any) -> None:
        if self._point == "ending" and self._is_due():
            threading.Timer(0.002, self._die).start()
        self._producer.commit_transaction(*arguments)
        self.passes("committed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def main(servers: str, topic: str, folder: Path, point: str) -> None:
    made, note = KafkaTransactions._made, batch_function.note_delivered
    noted = []

    def dying(self: Any, kind: str, settings: dict[str, Any]) -> Any:
        client = made(self, kind, settings)
        return Dying(client, point) if kind == "Producer" else client

    def note_and_die(*arguments: Any) -> None:
        note(*arguments)
        noted.append(arguments)
        # The claim is not noted.
        if point == "noted" and len(noted) == NTH - 1:
            die()

    KafkaTransactions._made = dying  # type: ignore[method-assign]
    batch_function.note_delivered = note_and_die
    with open_pipeline(servers, topic, folder) as query:
        run(query, len(BATCHES))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
