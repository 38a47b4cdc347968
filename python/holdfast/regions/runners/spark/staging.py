"""Staging output through the executor: several files at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from holdfast._core import ManagerClient
from holdfast.regions.sinks.sink import OutputStore


class Staging(OutputStore):
    """Connections to the executor, one for each file that is staged at the same time.

    A file mostly waits for its file system, and a connection does one thing after the other.
    """

    def __init__(self, connect: Callable[[], ManagerClient]) -> None:
        self._connect = connect
        self._idle: queue.SimpleQueue[ManagerClient] = queue.SimpleQueue()
        self._opened = ExitStack()

    def stage(self, local_path: str, staged: str, target: str) -> None:
        """See `OutputStore`."""
        with self._client() as client:
            client.stage(local_path, staged, target)

    @contextmanager
    def _client(self) -> Iterator[ManagerClient]:
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = self._opened.enter_context(self._connect())
        try:
            yield client
        finally:
            self._idle.put(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()
