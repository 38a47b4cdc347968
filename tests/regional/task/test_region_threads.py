"""How many threads the regions of a task get."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from holdfast.regions.task.partition.turns import ANSWERS_MAX, GATHER_MS, RegionThreads
from holdfast.regions.task.threads import RegionThread

COUNT = 4
GATHERING_MS = 50
PATIENCE_S = 60.0


class Region:
    """Takes some steps, then has an answer."""

    def __init__(self, work: Callable[[], None], steps: int, *, has_all_rows: bool = False) -> None:
        self._work = work
        self._left = steps
        self.has_all_rows = has_all_rows
        self.answer: str | None = None
        self.thread = RegionThread()

    def step(self, now_ms: int) -> bool:
        self._work()
        self._left -= 1
        if self._left == 0:
            self.answer = "done"
        return True

    def abandon(self) -> None:
        pass


class Steps:
    """What the threads that take steps have in common."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


class Pauses:
    """The clock of the machine, with other pauses where a test wants them."""

    def __init__(self) -> None:
        self.sleep: Callable[[float], Any] = time.sleep
        self.monotonic = time.monotonic
        self.thread_time = time.thread_time


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def pool(pauses: Pauses) -> Iterator[RegionThreads]:
    made = RegionThreads(COUNT, clock=pauses)
    yield made
    made.stop()


@pytest.fixture
def gathering(pauses: Pauses) -> Iterator[RegionThreads]:
    """A pool that gathers answers."""
    made = RegionThreads(COUNT, gather_ms=GATHERING_MS, clock=pauses)
    yield made
    made.stop()


def answers_of(pool: RegionThreads, regions: Sequence[Any]) -> None:
    """Run regions to their answers."""
    for region in regions:
        pool.take_on(region)
    wait_for(pool, len(regions))


def wait_for(pool: RegionThreads, left: int) -> None:
    """Wait for so many answers."""
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"{left} regions have no answer"
        left -= len(pool.wait(1.0))


def answering(pool: RegionThreads, allowed: threading.Semaphore) -> Callable[[float], bool]:
    """Return what takes the place of a pause by the clock: another region comes to its answer."""

    def answer_in_a_pause(_: float) -> bool:
        before = pool.answered
        allowed.release()
        deadline = time.monotonic() + PATIENCE_S
        while pool.answered == before:
            assert time.monotonic() < deadline, "no region has come to its answer"
            time.sleep(0.001)
        return False

    return answer_in_a_pause


class Readings:
    """A clock that only steps move, each of them by 3 ms: whatever else the machine does."""

    STEP_S = 0.003

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_s = 0.0
        self._own = threading.local()

    def monotonic(self) -> float:
        return self._now_s

    def thread_time(self) -> float:
        return getattr(self._own, "cpu_s", 0.0)

    def compute(self) -> None:
        self.wait()
        self._own.cpu_s = self.thread_time() + self.STEP_S

    def wait(self) -> None:
        with self._lock:
            self._now_s += self.STEP_S

    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture
def readings() -> Readings:
    return Readings()


@pytest.fixture
def measured(readings: Readings) -> Iterator[RegionThreads]:
    """A pool that measures steps by the readings of the test."""
    made = RegionThreads(COUNT, clock=readings)
    yield made
    made.stop()


def test_short_steps_that_compute_are_taken_one_at_a_time(
    measured: RegionThreads, readings: Readings
) -> None:
    steps = Steps()

    def compute() -> None:
        with steps:
            readings.compute()

    answers_of(measured, [Region(compute, 50) for _ in range(32)])
    assert steps.most == 1


def test_short_steps_that_wait_are_taken_at_the_same_time(
    measured: RegionThreads, readings: Readings
) -> None:
    steps = Steps()
    # After so many, steps have waited for 75 ms in all, and one thread is not enough. The clock
    # stands still then, lest a thread that the machine does not run looks as if it were stuck.
    enough = 25
    taken = itertools.count(1)
    together = threading.Barrier(COUNT)

    def ask_a_service() -> None:
        with steps:
            step = next(taken)
            if step <= enough:
                readings.wait()
            elif step <= enough + COUNT:
                together.wait(PATIENCE_S)

    answers_of(measured, [Region(ask_a_service, 50) for _ in range(16)])
    assert steps.most == COUNT


def test_long_steps_go_on_at_the_same_time(pool: RegionThreads) -> None:
    together = threading.Barrier(COUNT)
    answers_of(pool, [Region(lambda: together.wait(PATIENCE_S), 1) for _ in range(COUNT)])


def test_regions_go_on_beside_as_many_that_hang_as_there_are_threads(pool: RegionThreads) -> None:
    released = threading.Event()
    hanging: list[Any] = [Region(lambda: released.wait(PATIENCE_S), 1) for _ in range(COUNT)]
    for region in hanging:
        pool.take_on(region)
    answers_of(pool, [Region(lambda: sum(range(1000)), 5) for _ in range(8)])
    assert all(region.answer is None for region in hanging)
    released.set()
    wait_for(pool, COUNT)
    assert all(region.answer is not None for region in hanging)


def test_rows_that_come_in_show_that_a_thread_hangs(pool: RegionThreads) -> None:
    # The thread that reads rows does not wait for answers, and regions with rows are not idle.
    released = threading.Event()
    reached = threading.Event()
    hanging: Any = Region(lambda: released.wait(2 * PATIENCE_S), 1)
    other: Any = Region(reached.set, 1)
    pool.take_on(hanging)
    pool.take_on(other)
    deadline = time.monotonic() + PATIENCE_S
    while not reached.wait(0.01):
        assert time.monotonic() < deadline, "the other region gets no thread"
        pool.wake(other)
    released.set()
    wait_for(pool, 2)


def test_a_region_with_all_its_rows_comes_to_its_answer_before_others_take_a_step(
    measured: RegionThreads, readings: Readings
) -> None:
    taken: list[int] = []

    def step_of(number: int) -> Callable[[], None]:
        def step() -> None:
            taken.append(number)
            readings.compute()

        return step

    answers_of(measured, [Region(step_of(n), 3, has_all_rows=True) for n in range(4)])
    assert taken == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_regions_with_more_rows_to_come_take_turns(
    measured: RegionThreads, readings: Readings
) -> None:
    taken: list[int] = []
    held = threading.Event()

    def step_of(number: int) -> Callable[[], None]:
        def step() -> None:
            held.wait(PATIENCE_S)
            taken.append(number)
            readings.compute()

        return step

    regions = [Region(step_of(n), 2) for n in range(3)]
    for region in regions:
        measured.take_on(region)
    held.set()
    wait_for(measured, len(regions))
    assert taken == [0, 1, 2, 0, 1, 2]


def test_answers_are_gathered_as_long_as_many_regions_are_at_work(
    pool: RegionThreads, pauses: Pauses
) -> None:
    allowed = threading.Semaphore(0)

    def next_group() -> int:
        allowed.release()
        deadline = time.monotonic() + PATIENCE_S
        while not (found := pool.wait(1.0)):
            assert time.monotonic() < deadline, "no region has come to its answer"
        return len(found)

    regions: list[Any] = [Region(allowed.acquire, 1) for _ in range(ANSWERS_MAX + 1)]
    for region in regions:
        pool.take_on(region)
    pauses.sleep = answering(pool, allowed)
    sizes = [next_group(), next_group()]
    allowed.release(len(regions))
    wait_for(pool, len(regions) - sum(sizes))
    assert sizes == [1 + GATHER_MS, 1]


def test_answers_are_gathered_until_all_are_there_where_that_saves_requests(
    gathering: RegionThreads, pauses: Pauses
) -> None:
    allowed = threading.Semaphore(1)

    pauses.sleep = answering(gathering, allowed)
    regions: list[Any] = [Region(allowed.acquire, 1) for _ in range(5)]
    for region in regions:
        gathering.take_on(region)
    deadline = time.monotonic() + PATIENCE_S
    while not (found := gathering.wait(PATIENCE_S)):
        assert time.monotonic() < deadline, "no region has come to its answer"
    assert len(found) == len(regions)


def test_a_region_that_hangs_holds_up_the_answers_of_others_no_longer_than_they_are_gathered(
    gathering: RegionThreads, pauses: Pauses
) -> None:
    hanging = threading.Event()
    taken: list[float] = []
    pauses.sleep = taken.append
    quick: list[Any] = [Region(lambda: None, 1) for _ in range(2)]
    for region in [*quick, Region(lambda: hanging.wait(PATIENCE_S), 1)]:
        gathering.take_on(region)
    found: list[Any] = []
    while len(found) < len(quick):
        found += gathering.wait(PATIENCE_S)
    assert taken
    assert len(taken) <= 2 * GATHERING_MS
    hanging.set()
    assert len(found) + len(gathering.wait(PATIENCE_S)) == len(quick) + 1
