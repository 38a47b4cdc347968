"""Many batches with random restarts under CPU contention: ``make soak``.

The query is killed again and again, at a named point (see fault_points.c) or a random time, and
continues from its checkpoint each time. In the end every batch has the rows of an undisturbed run,
and files, native memory of the state stores and memory of the process are within the bounds of
:meth:`Report.check`, or the program fails. It prints its figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from support import preloadable
from support.spark.faults import DRIVER, POINTS_SOURCE, WRITES, Job, World, rows_of
from support.spark.state_files import merged_files

MASTER = "local[2]"
HEAP_MIB = 512
SETTINGS = {
    "spark__driver__memory": f"{HEAP_MIB}m",
    # The whole heap from the start, so that only other memory grows later.
    "spark__driver__extraJavaOptions": f"-Xms{HEAP_MIB}m -XX:+AlwaysPreTouch",
    # A batch fills a file or two.
    "spark__sql__streaming__stateStore__holdfast__maxFileBytes": "1500",
}
#: Bound on the batches with files. Ten are between two clean-ups, two are retained, and a kill may
#: prevent one clean-up.
HELD_BATCHES = 25
#: Fewer batches show nothing: without a clean-up, the files of all batches would exist.
MIN_BATCHES = 40
#: The memory at the end, divided by the memory at a third.
MAX_GROWTH = 1.3
KEY_CHARS = 4000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The figures of all runs. Sizes in bytes."""

    batches: int
    restarts: int
    #: Kills for which a point was armed, and kills of a process at its point.
    kills_armed: int
    kills_at_points: int
    #: Most physical files at a time, and all written ones.
    files_max: int
    files_written: int
    file_bytes_max: int
    bytes_written: int
    #: The most in the first and in the last third of the run with the most batches: native memory
    #: of the state stores in the query's progress, and memory of the process beyond its heap.
    store_memory_third: int
    store_memory_end: int
    process_third: int
    process_end: int
    seconds: float

    def check(self) -> None:
        """Raise AssertionError if too much is left, or too little was tried."""
        assert self.batches >= MIN_BATCHES, "too few batches: the bounds say nothing"
        assert self.kills_at_points > 0, "no kill hit its point"
        assert 2 * self.kills_at_points >= self.kills_armed, "most kills missed their point"
        held = HELD_BATCHES / self.batches
        assert self.files_max <= held * self.files_written, "files pile up"
        assert self.file_bytes_max <= held * self.bytes_written, "bytes of files pile up"
        # All keys exist from the first batch on.
        assert self.store_memory_end <= MAX_GROWTH * self.store_memory_third, "stores grow"
        assert self.process_end <= MAX_GROWTH * self.process_third, "the process grows"


class Memory(NamedTuple):
    """Memory while a batch was the last committed one."""

    batch: int
    bytes: int


def growth(run: Sequence[Memory]) -> tuple[int, int]:
    """The most in the first and in the last third of the batches."""
    first, last = run[0].batch, run[-1].batch
    third = (last - first) / 3
    return (
        max(memory.bytes for memory in run if memory.batch <= first + third),
        max(memory.bytes for memory in run if memory.batch >= last - third),
    )


class Watch:
    """Follows a job and notes its figures."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files_max = self.file_bytes_max = 0
        #: By name, the largest seen size of each file.
        self.sizes: dict[str, int] = {}
        #: Memory of the process in every run.
        self.runs: list[list[Memory]] = []

    def until(self, job: Job, over: Callable[[], bool]) -> None:
        """Until it is over, or nothing more happens because the job is at a point."""
        while not over():
            assert job.process.poll() is None, job.text()[-4000:]
            if any(self.world.control.glob("reached.*")):
                return
            self.sample(job)
            time.sleep(0.2)

    def start(self) -> Job:
        """The next job."""
        self.first = self.world.last_committed() + 1
        self.runs.append([])
        return self.world.start(MASTER, **SETTINGS)

    def sample(self, job: Job) -> None:
        sizes = {}
        for path in merged_files(self.world.checkpoint):
            # A file may be reclaimed between the two calls.
            if (size := _size(path)) is not None:
                sizes[path.name] = size
        self.sizes |= sizes
        self.files_max = max(self.files_max, len(sizes))
        self.file_bytes_max = max(self.file_bytes_max, sum(sizes.values()))
        batch = self.world.last_committed()
        # A JVM before its first commits still grows.
        if batch < self.first:
            return
        for process in job.drivers():
            statm = Path(f"/proc/{process}/statm").read_text()
            resident = int(statm.split()[1]) * PAGE_BYTES
            self.runs[-1].append(Memory(batch, resident - (HEAP_MIB << 20)))

    def files_written(self) -> int:
        """Files are numbered from 1 by every term, so files deleted early are counted, too."""
        newest: dict[str, int] = {}
        for name in self.sizes:
            term, seq = name.removesuffix(".hf").split("-")
            newest[term] = max(newest.get(term, 0), int(seq, 16))
        return sum(newest.values())

    def longest_run(self) -> list[Memory]:
        """The run with the most batches."""
        return max(self.runs, key=lambda run: run[-1].batch - run[0].batch if run else -1)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def long_keys(batch: int) -> list[dict[str, Any]]:
    """Like ``rows_of``, with keys so long that stores have garbage to collect every few batches."""
    return [row | {"key": row["key"].ljust(KEY_CHARS, ".")} for row in rows_of(batch)]


@contextmanager
def contention(processes: int) -> Iterator[None]:
    """Keeps processors busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def soak(world: World, *, batches: int, restarts: int, seed: int) -> Report:
    """Run it; raises AssertionError if rows are wrong."""
    rng = random.Random(seed)  # noqa: S311
    started = time.monotonic()
    kill_after = sorted(rng.sample(range(2, batches - 2), restarts))
    watch = Watch(world)
    world.rows = long_keys
    armed = at_points = 0
    world.feed(batches)
    with contention(os.cpu_count() or 1):
        for batch in kill_after:
            job = watch.start()
            watch.until(job, lambda batch=batch: world.last_committed() >= batch)
            if rng.random() < 0.7:
                point = rng.choice(WRITES + DRIVER)
                world.arm(point, nth=rng.randint(1, 5))
                watch.until(job, world.is_processed)
                armed += 1
                at_points += (world.control / f"reached.{point}").exists()
            job.kill()
            world.disarm()
        last = watch.start()
        watch.until(last, world.is_processed)
        last.finish()
    world.assert_rows()
    world.needed_files()
    run = watch.longest_run()
    lines = (world.folder / "progress.jsonl").read_text().splitlines()
    stores = [Memory(line["batch"], line["memoryUsedBytes"]) for line in map(json.loads, lines)]
    store_third, store_end = growth(
        [memory for memory in stores if run[0].batch <= memory.batch <= run[-1].batch]
    )
    process_third, process_end = growth(run)
    return Report(
        batches=batches,
        restarts=restarts,
        kills_armed=armed,
        kills_at_points=at_points,
        files_max=watch.files_max,
        files_written=watch.files_written(),
        file_bytes_max=watch.file_bytes_max,
        bytes_written=sum(watch.sizes.values()),
        store_memory_third=store_third,
        store_memory_end=store_end,
        process_third=process_third,
        process_end=process_end,
        seconds=round(time.monotonic() - started, 1),
    )


def main() -> None:
    """Run a soak in a temporary folder and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--restarts", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.batches < MIN_BATCHES:
        parser.error(f"--batches must be {MIN_BATCHES} or more")
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        world = World(Path(folder) / "world", preloadable(POINTS_SOURCE, Path(folder)))
        try:
            report = soak(world, batches=args.batches, restarts=args.restarts, seed=args.seed)
        finally:
            world.end()
    for name, value in asdict(report).items():
        print(f"{name:20} {value}")
    report.check()


if __name__ == "__main__":
    main()
