"""The threads on which operators live."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Final

from holdfast.regions.base.addresses import address_bytes_max

# A thread reserves 8 MiB of addresses for its stack. If Spark bounds the addresses of a process
# (spark.executor.pyspark.memory), there is one thread for each of these.
ADDRESSES_PER_THREAD: Final = 64 * 1024 * 1024


class RegionThread:
    """A thread on which the operators of one or more regions live, from `open` to `close`.

    Libraries keep things by thread: event loops, database connections, the device and the stream
    of CuPy, a `threading.local`. The thread ends when nothing refers to this object and its work
    is done. It is a daemon, so a step that hangs does not keep the process alive. A `lost` thread
    hangs in a step, and receives nothing new.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self.lost = False
        threading.Thread(
            target=_work_off, args=(self._works,), name="holdfast-region", daemon=True
        ).start()
        weakref.finalize(self, self._works.put, None).atexit = False

    def do(self, work: Callable[[], None]) -> None:
        """Let the thread do something, which raises nothing, after all earlier work."""
        self._works.put((self, work))


# Work refers to its thread, which therefore does not end before.
_Work = tuple[RegionThread, Callable[[], None]]


def _work_off(works: queue.SimpleQueue[_Work | None]) -> None:
    while (item := works.get()) is not None:
        item[1]()
        del item


class PinnedThreads:
    """The threads of a process on which operators live; one thread calls at a time."""

    def __init__(self) -> None:
        # For each thread whether its regions failed before: these may hang again, and share no
        # thread with others. In the order in which threads began, to spread regions evenly.
        self._threads: weakref.WeakKeyDictionary[RegionThread, bool] = weakref.WeakKeyDictionary()
        self._given = 0

    def give(self, *, failed: bool, at_most: int) -> RegionThread:
        """Return a thread for a region: one of `at_most` for failed regions, or for others."""
        of_kind = [thread for thread, kind in self._threads.items() if kind == failed]
        sharing = [thread for thread in of_kind if not thread.lost]
        if len(sharing) < _threads_max(at_most):
            try:
                thread = RegionThread()
                self._threads[thread] = failed
                return thread
            except RuntimeError:
                # The process may have no more threads.
                if not sharing:
                    raise
        self._given += 1
        return sharing[self._given % len(sharing)]


def _threads_max(at_most: int) -> int:
    """Return how many threads regions may have: fewer if the process may have few addresses."""
    if (limit := address_bytes_max()) is None:
        return at_most
    return max(1, min(at_most, limit // ADDRESSES_PER_THREAD))
