"""The threads on which the regions of a task make progress."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.regions.base.clock import now_ms

if TYPE_CHECKING:
    from holdfast.regions.task.region_run import RegionRun

# While all threads are in steps that take longer, one more is worth what they cost each other.
LONG_STEP_MS: Final = 20

# A step of an operator that takes longer is given a thread of its own.
STUCK_AFTER_MS: Final = 250

# Steps that take that many times their CPU time, and that long in all, wait for something.
WAITING_RATIO: Final = 3
WAITING_MS: Final = 50

# Regions that have come to an answer and wait to be made durable, each with an open file.
ANSWERS_MAX: Final = 64

# As long as that many regions are at work, answers are gathered for so long. Each time that the
# calling thread takes some, it waits for the interpreter lock, and what it takes is a message that
# the executor and the driver handle.
GATHER_BEYOND: Final = ANSWERS_MAX
GATHER_MS: Final = 5


class StepClock(Protocol):
    """What steps are measured by; the module `time` is one."""

    def monotonic(self) -> float:
        """Return a time in seconds that never goes back."""

    def thread_time(self) -> float:
        """Return the CPU time of the calling thread so far, in seconds."""


@dataclass
class _Steps:
    """What one thread does, and has done: only that thread writes it, any thread reads it.

    Attributes
    ----------
    since
        When its step began; None between steps.
    wall_s, cpu_s
        Of all its steps that ended.
    """

    since: float | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0


class RegionThreads:
    """Threads that give every region one step in turn: one, and more when that helps.

    A region that has all its rows goes on to its answer at once. In turns, every region would
    begin its snapshot behind the last row of all the others: the driver would hear nothing before,
    and all snapshots would come on top of the rows.

    No fixed number suits all operators. Threads of one process wait for each other's interpreter
    lock, so operators that compute in short steps take more processor time on four threads than on
    one. Operators that ask a service, even in short steps, and those that compute for long without
    the lock take less time on four. So there is one thread until its steps are long, or wait for
    something other than the processor. The thread that calls `take_on`, `wake` and `wait` finds
    out about both, and is the only one that starts others.

    Parameters
    ----------
    count : int
        The most threads, apart from those that are stuck in one step.
    gather_ms : int, default 0
        Milliseconds for which answers are gathered as long as others are to come.
    clock : StepClock, optional
        What steps are measured by.
    """

    def __init__(self, count: int, *, gather_ms: int = 0, clock: StepClock = time) -> None:
        self._count = count
        self._gather_ms = gather_ms
        self._clock = clock
        self._ready: queue.SimpleQueue[RegionRun | None] = queue.SimpleQueue()
        self._answers: queue.Queue[RegionRun] = queue.Queue(maxsize=ANSWERS_MAX)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._idle: set[RegionRun] = set()
        self._woken: set[RegionRun] = set()
        self._threads: list[_Steps] = []
        # Regions that were taken on and whose answer `wait` has not returned.
        self._at_work = 0

    def take_on(self, run: RegionRun) -> None:
        """Begin with a region."""
        self._at_work += 1
        if not self._threads:
            self._start_thread()
        self._ready.put(run)
        self._reinforce()

    def wake(self, run: RegionRun) -> None:
        """Something happened that the region may have waited for."""
        with self._lock:
            idle = run in self._idle
            if idle:
                self._idle.remove(run)
            else:
                self._woken.add(run)
        if idle:
            self._ready.put(run)
        self._reinforce()

    def wait(self, timeout_s: float) -> list[RegionRun]:
        """Return the regions that came to an answer: at least one, or none after some time.

        Parameters
        ----------
        timeout_s : float
            The longest time, in seconds.
        """
        self._reinforce()
        pause_ms = LONG_STEP_MS if len(self._threads) < self._count else STUCK_AFTER_MS
        try:
            found = [self._answers.get(timeout=min(timeout_s, pause_ms / 1000))]
        except queue.Empty:
            return []
        self._gather()
        # Not without end: the first one waits, too.
        while len(found) < ANSWERS_MAX:
            try:
                found.append(self._answers.get_nowait())
            except queue.Empty:
                break
        self._at_work -= len(found)
        return found

    def stop(self) -> None:
        """Let the threads end; one that hangs in an operator is left behind."""
        self._stopped.set()
        for _ in self._threads:
            self._ready.put(None)

    def _gather(self) -> None:
        """Let some answers come together with the one that `wait` has."""
        of_many_ms = GATHER_MS if self._at_work > GATHER_BEYOND else 0
        enough = min(self._at_work - 1, ANSWERS_MAX // 2)
        for _ in range(max(of_many_ms, self._gather_ms)):
            if self._answers.qsize() >= enough:
                break
            self._stopped.wait(1 / 1000)
            self._reinforce()

    def _reinforce(self) -> None:
        """Start another thread if regions wait for one and it would help.

        Threads that have been in one step for long are replaced, so that operators which hang do
        not take the others' time.
        """
        if self._ready.empty():
            return
        now = self._clock.monotonic()
        # Read once each: the threads go on meanwhile.
        steps_ms = [0.0 if (s := t.since) is None else (now - s) * 1000 for t in self._threads]
        stuck = sum(ms > STUCK_AFTER_MS for ms in steps_ms)
        if len(self._threads) - stuck >= self._count:
            return
        if all(ms > LONG_STEP_MS for ms in steps_ms) or self._mostly_wait():
            self._start_thread()

    def _mostly_wait(self) -> bool:
        wall_s = sum(thread.wall_s for thread in self._threads)
        cpu_s = sum(thread.cpu_s for thread in self._threads)
        return wall_s * 1000 > WAITING_MS and wall_s > WAITING_RATIO * cpu_s

    def _start_thread(self) -> None:
        steps = _Steps()
        self._threads.append(steps)
        threading.Thread(
            target=self._work, args=(steps,), name="holdfast-region", daemon=True
        ).start()

    def _work(self, steps: _Steps) -> None:
        while (run := self._ready.get()) is not None and not self._stopped.is_set():
            moved = self._advance(run, steps)
            if run.answer is not None:
                self._hand_in(run)
            elif moved:
                self._ready.put(run)
            else:
                self._park(run)

    def _advance(self, run: RegionRun, steps: _Steps) -> bool:
        """Let a region do one unit of work, or what is left of it; returns whether there is more.

        CPU time is asked for before and behind that only: it takes a system call, and a unit of
        work may be short.
        """
        begun, cpu_s = self._clock.monotonic(), self._clock.thread_time()
        moved = True
        while moved and run.answer is None and not self._stopped.is_set():
            steps.since = self._clock.monotonic()
            moved = run.advance(now_ms())
            if not run.has_all_rows:
                break
        steps.cpu_s += self._clock.thread_time() - cpu_s
        steps.wall_s += self._clock.monotonic() - begun
        steps.since = None
        return moved

    def _hand_in(self, run: RegionRun) -> None:
        """Wait while many regions wait to be made durable, unless the threads are to end."""
        while not self._stopped.is_set():
            try:
                self._answers.put(run, timeout=1)
                break
            except queue.Full:
                continue

    def _park(self, run: RegionRun) -> None:
        with self._lock:
            if run not in self._woken:
                self._idle.add(run)
                return
            self._woken.remove(run)
        self._ready.put(run)
