"""Turns at a pipeline: one call at a time changes it, and its own code makes no calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from holdfast.regions.base.errors import RegionalQueryError


class _AtWork(threading.local):
    """Runs of pipelines whose code is at work on a thread: a call would wait for itself."""

    # No context variable, because operators have contexts of their own.
    runs: frozenset[str] = frozenset()


_AT_WORK = _AtWork()


def work_for(run: str) -> None:
    """Note that this thread is at work for a run of a pipeline, until it ends."""
    if run not in _AT_WORK.runs:
        _AT_WORK.runs |= {run}


class Turns:
    """Lets calls wait for each other, and refuses calls that would wait for ever.

    `run` identifies this start of the pipeline. Threads that work for it make no calls.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    def require_outside(self, call: str) -> None:
        """Check that a call does not come from code of the pipeline, nor from another process."""
        if not self._is_own_process():
            raise RegionalQueryError(
                f"{call} was called in process {os.getpid()}, which was forked from process "
                f"{self._process}, where the pipeline runs: call it there"
            )
        if self._run in _AT_WORK.runs:
            raise RegionalQueryError(
                f"{call} was called by the pipeline's own code (an operator, its sink, the rows it "
                "reads, or a signal handler meanwhile) and would wait for itself: call it when the "
                "call that is under way has returned"
            )

    def require(self, call: str) -> None:
        """Check `require_outside`, and that the pipeline is not closed."""
        self.require_outside(call)
        if self._closed:
            raise RegionalQueryError(f"{call}: the pipeline is closed; open it again to go on")

    @contextmanager
    def turn(self, call: str) -> Iterator[None]:
        """Wait until no other call is under way, and make the checks of `require`."""
        self.require(call)
        with self._lock:
            self.require(call)  # it may have been closed during the wait
            with self.at_work():
                yield

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Mark this thread as one that works for the pipeline."""
        before = _AT_WORK.runs
        _AT_WORK.runs = before | {self._run}
        try:
            yield
        finally:
            _AT_WORK.runs = before

    def close(self, opened: ExitStack, *, hurry: Callable[[], None]) -> None:
        """Refuse later calls, wait for the one under way, and close `opened`.

        May be repeated. A forked child closes nothing: everything belongs to its parent. `hurry`
        asks that call to end early. Raises a RegionalQueryError if code of the pipeline calls it.
        """
        if not self._is_own_process():
            return
        self.require_outside("close()")
        self._closed = True
        hurry()
        with self._lock:
            opened.close()

    def _is_own_process(self) -> bool:
        return os.getpid() == self._process
