"""The orders of ``watched_changes.c``, for changes of objects on a server of S3's protocol."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.spark.processes import status

#: Kills of executors: before they read an object, before they change one, and after that.
READS: Final = "reads"
WRITES: Final = "writes"
HAS_WRITTEN: Final = "has written"

_CHANGES: Final = frozenset({"PUT", "POST", "DELETE"})
#: By action: True if it comes after the request, its verbs, and True if it leaves drivers alone.
_WHEN: Final = {
    "kill": (False, _CHANGES, False),
    "stop": (False, _CHANGES, False),
    READS: (False, frozenset({"GET"}), True),
    WRITES: (False, _CHANGES, True),
    HAS_WRITTEN: (True, _CHANGES, True),
}


@dataclass(frozen=True)
class _Order:
    action: str
    nth: int
    part: str
    folder: Path


class WatchedS3:
    """Acts before or after a request for an object that is no temporary file.

    A request or answer of a killed process is lost. A request waits while its process is stopped.

    Parameters
    ----------
    buckets
        The folder of the server's buckets.
    """

    def __init__(self, buckets: Path) -> None:
        self._buckets = buckets
        self._lock = threading.Lock()
        self._order: _Order | None = None
        self._changes = 0
        self._reached: int | None = None

    def before(self, verb: str, path: str, port: int) -> bool:
        """Act on an order, if there is one; returns False if the request is lost."""
        return self._act(verb, path, port, after=False)

    def after(self, verb: str, path: str, port: int) -> bool:
        """The same, after a request; returns False if its answer is lost."""
        return self._act(verb, path, port, after=True)

    def _act(self, verb: str, path: str, port: int, *, after: bool) -> bool:
        with self._lock:
            order = self._order
            found = self._buckets / path.lstrip("/")
            if order is None or order.folder not in found.parents:
                return True
            is_after, verbs, only_executors = _WHEN[order.action]
            if after != is_after or verb not in verbs:
                return True
            if order.part not in str(found) or found.name.startswith("."):
                return True
            process = process_of(port)
            if process is None:
                return False  # It was killed.
            if only_executors and not is_executor(process):
                return True
            self._changes += 1
            if self._changes < order.nth:
                return True
            kills = order.action != "stop"
            os.kill(process, signal.SIGKILL if kills else signal.SIGSTOP)
            self._order = None
            if kills:
                return False
            while not is_stopped(process):
                time.sleep(0.01)
            self._reached = process
        while is_stopped(process):
            time.sleep(0.01)
        return True

    def order(self, action: str, nth: int, part: str, folder: Path) -> None:
        with self._lock:
            self._order, self._changes = _Order(action, nth, part, folder), 0

    def is_waiting(self) -> bool:
        """True while no process has taken the order."""
        return self._order is not None

    def end(self) -> bool:
        """Take the order back; returns True if no process took it."""
        with self._lock:
            waiting, self._order = self.is_waiting(), None
            return waiting

    def reached(self) -> int | None:
        """Return the process that stopped, once."""
        with self._lock:
            reached, self._reached = self._reached, None
            return reached


def is_executor(process: int) -> bool:
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()


def is_stopped(process: int) -> bool:
    return status(Path(f"/proc/{process}/stat"))[0] == "T"


def process_of(port: int) -> int | None:
    """Return the process whose connection has this port at its own end, if it still runs."""
    wanted = f"{port:04X}"
    sockets = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{wanted}"):
                sockets.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) in sockets:
                return int(link.parts[2])
    return None
