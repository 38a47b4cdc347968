"""Many batches with random restarts under CPU contention: ``make soak``.

The query is killed again and again, at a named point (see fault_points.c) or just so, and goes on
from its checkpoint each time. In the end every batch has the rows of an undisturbed run. Printed
are the bounds that were kept: files, native memory of the state stores, memory of the process.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from faults import DRIVER, WRITES, Job, World, compiled_points
from support import merged_files

MASTER = "local[2]"
SETTINGS = {
    "spark__driver__memory": "512m",
    # The whole heap from the start, so that what grows later is something else.
    "spark__driver__extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
    "spark__sql__streaming__stateStore__holdfast__maxFileBytes": "20000",
}
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was seen, over all runs. Sizes in bytes."""

    batches: int
    restarts: int
    kills_at_points: int
    files_max: int
    file_bytes_max: int
    #: Native memory of the state stores, as the query's progress reports it: the most in the first
    #: half of the batches, and in all.
    store_memory_half: int
    store_memory_max: int
    #: Memory of the JVM: the most of all runs; of the longest run after a third and at its end.
    process_max: int
    process_third: int
    process_end: int
    seconds: float


class Watch:
    """Follows a job and notes how much there is of everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files_max = self.file_bytes_max = 0
        self.process: list[list[int]] = []

    def until(self, job: Job, over: Callable[[], bool]) -> None:
        """Until it is over, or nothing more happens because the job stands at a point."""
        samples: list[int] = []
        self.process.append(samples)
        while not over():
            assert job.process.poll() is None, job.text()[-4000:]
            if any(self.world.control.glob("reached.*")):
                return
            self.sample(job, samples)
            time.sleep(0.2)

    def sample(self, job: Job, samples: list[int]) -> None:
        sizes = []
        for path in merged_files(self.world.checkpoint):
            # A file may be reclaimed between the two calls.
            if (size := _size(path)) is not None:
                sizes.append(size)
        self.files_max = max(self.files_max, len(sizes))
        self.file_bytes_max = max(self.file_bytes_max, sum(sizes))
        for process in job.processes("org.apache.spark.deploy.SparkSubmit"):
            statm = Path(f"/proc/{process}/statm").read_text()
            samples.append(int(statm.split()[1]) * PAGE_BYTES)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


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
    """Run it; raises AssertionError when rows are wrong."""
    rng = random.Random(seed)  # noqa: S311
    started = time.monotonic()
    kill_after = sorted(rng.sample(range(2, batches - 2), restarts))
    watch = Watch(world)
    at_points = 0
    world.feed(batches)
    with contention(os.cpu_count() or 1):
        for batch in kill_after:
            job = world.start(MASTER, **SETTINGS)
            watch.until(job, lambda batch=batch: world.last_committed() >= batch)
            if rng.random() < 0.7:
                point = rng.choice(WRITES + DRIVER)
                world.arm(point, nth=rng.randint(1, 5))
                watch.until(job, world.is_processed)
                at_points += (world.control / f"reached.{point}").exists()
            job.kill()
            world.disarm()
        last = world.start(MASTER, **SETTINGS)
        watch.until(last, world.is_processed)
        last.finish()
    world.assert_rows()
    world.needed_files()
    lines = (world.folder / "progress.jsonl").read_text().splitlines()
    memory = [json.loads(line)["memoryUsedBytes"] for line in lines]
    longest = max(watch.process, key=len)
    return Report(
        batches=batches,
        restarts=restarts,
        kills_at_points=at_points,
        files_max=watch.files_max,
        file_bytes_max=watch.file_bytes_max,
        store_memory_half=max(memory[: len(memory) // 2]),
        store_memory_max=max(memory),
        process_max=max(max(samples, default=0) for samples in watch.process),
        process_third=longest[len(longest) // 3],
        process_end=longest[-1],
        seconds=round(time.monotonic() - started, 1),
    )


def main() -> None:
    """Run a soak in a temporary folder and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--restarts", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        world = World(Path(folder) / "world", compiled_points(Path(folder)))
        try:
            report = soak(world, batches=args.batches, restarts=args.restarts, seed=args.seed)
        finally:
            world.end()
    for name, value in asdict(report).items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
