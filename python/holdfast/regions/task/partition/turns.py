"""The turns that the regions of a task take on their threads."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.regions.base.clock import elapsed_ms
from holdfast.regions.task.region.run import RegionRun
from holdfast.regions.task.threads import RegionThread

# If all turns are in longer steps than this, one more turn is worth the cost of another thread.
LONG_STEP_MS: Final = 20

# A turn with a longer step does not count: another one begins in addition.
STUCK_AFTER_MS: Final = 250

# Steps wait for something if they take this multiple of their CPU time, and this long in all.
WAITING_RATIO: Final = 3
WAITING_MS: Final = 50

# Regions that answered and wait to be made durable, each with an open file.
ANSWERS_MAX: Final = 64

# While more regions than ANSWERS_MAX are at work, answers are gathered for this time. Each time
# the calling thread takes some, it waits for the interpreter lock, and sends a message that the
# executor and the driver handle.
GATHER_MS: Final = 5


@dataclass
class _Turn:
    """A thread lets its regions take a step; only that thread writes this, any thread reads it.

    `since` is when the step began, None between steps; `wall_s` and `cpu_s` are of ended steps.
    """

    since: float | None
    wall_s: float = 0.0
    cpu_s: float = 0.0


class RegionThreads:
    """Lets the threads of a task's regions take turns: one at a time, and more when that helps.

    In a turn, each region of a thread that has something to do takes one step. A region that has
    all its rows continues to its answer at once. In single steps, every region would begin its
    snapshot after the last row of all the others: the driver would receive nothing before, and all
    snapshots would follow the rows.

    No fixed number of turns suits all operators. Threads of one process wait for each other's
    interpreter lock, so operators that compute in short steps take more processor time in four
    turns than in one. Operators that ask a service, even in short steps, take less time in four,
    and so do operators that compute for long without the lock. So there is one turn until its steps
    are long, or wait for something other than the processor. Only the thread that calls `take_on`,
    `wake` and `wait` finds out about both and allows more turns.

    - `count`: the most turns at the same time, apart from turns stuck in one step.
    - `gather_ms`: milliseconds for which answers are gathered as long as others will follow.
    - `clock` (module): has `monotonic`, `thread_time` and `sleep`, as in the module `time`.
    """

    def __init__(self, count: int, *, gather_ms: int = 0, clock: Any = time) -> None:
        self._count = count
        self._gather_ms = gather_ms
        self._clock = clock
        self._answers: queue.Queue[RegionRun] = queue.Queue(maxsize=ANSWERS_MAX)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._idle: set[RegionRun] = set()
        self._woken: set[RegionRun] = set()
        # Regions that have something to do, by thread, in the order of their turns.
        self._ready: dict[RegionThread, deque[RegionRun]] = {}
        self._turns: dict[RegionThread, _Turn] = {}
        self._allowed = 1
        # Times of the steps of all turns that ended.
        self._wall_s = self._cpu_s = 0.0
        # Regions that were taken on and whose answer `wait` has not returned.
        self._at_work: set[RegionRun] = set()

    def take_on(self, run: RegionRun) -> None:
        """Begin with a region."""
        with self._lock:
            self._at_work.add(run)
            self._now_ready(run)
        self._reinforce()

    def wake(self, run: RegionRun) -> None:
        """Let a region continue that may have waited."""
        with self._lock:
            if run in self._idle:
                self._idle.remove(run)
                self._now_ready(run)
            else:
                self._woken.add(run)
        self._reinforce()

    def wait(self, timeout_s: float) -> list[RegionRun]:
        """Return the regions with an answer: at least one, or none after some time."""
        self._reinforce()
        pause_ms = LONG_STEP_MS if self._allowed < self._count else STUCK_AFTER_MS
        found: list[RegionRun] = []
        with suppress(queue.Empty):
            found.append(self._answers.get(timeout=min(timeout_s, pause_ms / 1000)))
            self._gather()
            # Not without end: the first one waits, too.
            while len(found) < ANSWERS_MAX:
                found.append(self._answers.get_nowait())
        with self._lock:
            self._at_work.difference_update(found)
        return found

    @property
    def answered(self) -> int:
        """How many regions have an answer that `wait` has not returned."""
        return self._answers.qsize()

    def stop(self) -> None:
        """Let the turns end; a thread that hangs in an operator is left running.

        A thread abandons regions that `wait` has not returned, once it is back from the operator.
        """
        self._stopped.set()
        with self._lock:
            for thread, ms in zip(self._turns, self._steps_ms(), strict=True):
                thread.lost |= ms > STUCK_AFTER_MS
            for run in self._at_work:
                run.thread.do(run.abandon)

    def _gather(self) -> None:
        """Gather some answers with the one that `wait` has."""
        of_many_ms = GATHER_MS if len(self._at_work) > ANSWERS_MAX else 0
        enough = min(len(self._at_work) - 1, ANSWERS_MAX // 2)
        for _ in range(max(of_many_ms, self._gather_ms)):
            if self.answered >= enough:
                break
            self._clock.sleep(1 / 1000)
            self._reinforce()

    def _reinforce(self) -> None:
        """Begin turns for waiting regions, even if some are stuck; allow one more if it helps."""
        with self._lock:
            self._begin_turns()
            if self._allowed == self._count or not self._ready.keys() - self._turns.keys():
                return
            wait_s = max(WAITING_MS / 1000, WAITING_RATIO * self._cpu_s)
            if self._wall_s > wait_s or all(ms > LONG_STEP_MS for ms in self._steps_ms()):
                self._allowed += 1
                self._begin_turns()

    def _steps_ms(self) -> list[float]:
        """Return for how long each turn has been in its step."""
        now = self._clock.monotonic()
        # Read once each: the threads continue.
        return [
            0.0 if (since := turn.since) is None else (now - since) * 1000
            for turn in self._turns.values()
        ]

    def _now_ready(self, run: RegionRun) -> None:
        self._ready.setdefault(run.thread, deque()).append(run)

    def _begin_turns(self) -> None:
        """Begin as many turns as are allowed."""
        waiting = [thread for thread in self._ready if thread not in self._turns]
        if not waiting or self._stopped.is_set():
            return
        free = self._allowed - sum(ms <= STUCK_AFTER_MS for ms in self._steps_ms())
        for thread in waiting[: max(free, 0)]:
            # Its time begins now: the thread may hang in a step for another task.
            turn = self._turns[thread] = _Turn(self._clock.monotonic())
            thread.do(partial(self._take_turn, thread, turn, self._ready.pop(thread)))

    def _take_turn(self, thread: RegionThread, turn: _Turn, runs: deque[RegionRun]) -> None:
        moved: dict[RegionRun, bool] = {}
        for run in runs:
            if self._stopped.is_set():
                break
            moved[run] = self._advance(run, turn)
            if run.answer is not None:
                del moved[run]
                self._hand_in(run)
        with self._lock:
            del self._turns[thread]
            self._wall_s += turn.wall_s
            self._cpu_s += turn.cpu_s
            for run, again in moved.items():
                if again or run in self._woken:
                    self._woken.discard(run)
                    self._now_ready(run)
                else:
                    self._idle.add(run)
            self._begin_turns()

    def _advance(self, run: RegionRun, turn: _Turn) -> bool:
        """Let a region do one unit of work, or the rest of its work; returns whether there is more.

        Asks for CPU time only before and after: that is a system call, and a unit may be short.
        """
        begun, cpu_s = self._clock.monotonic(), self._clock.thread_time()
        moved = True
        while moved and run.answer is None and not self._stopped.is_set():
            turn.since = self._clock.monotonic()
            moved = run.step(elapsed_ms())
            if not run.has_all_rows:
                break
        turn.cpu_s += self._clock.thread_time() - cpu_s
        turn.wall_s += self._clock.monotonic() - begun
        turn.since = None
        return moved

    def _hand_in(self, run: RegionRun) -> None:
        """Wait while many regions wait to be made durable, unless the threads are to end."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._answers.put(run, timeout=1)
                return
