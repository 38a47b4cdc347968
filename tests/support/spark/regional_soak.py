"""Many batches of a regional pipeline with random kills: ``make soak-regional``.

Again and again a process of the pipeline is killed at a random time: the driver's Python, its JVM,
a Python worker, or all of them. After the death of a worker the pipeline continues by itself;
otherwise it is started again at once, next to the rest of the old one. Regions raise exceptions,
and some are slow. One region is in quarantine, and is repaired after all other rows. In the end the
rows are those of an undisturbed run and no file is left over. The program prints its figures, and
fails where :meth:`RegionalReport.check` does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.process import kill_session, running_in_session
from holdfast.files.mounted import MountedPath
from holdfast.regions.checkpoint.quarantine import quarantined_regions
from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.protocol.orders import TaskOptions
from support import environment, program
from support.regional.pipelines import Row, expected, output_of, rows_of
from support.spark import processes
from support.spark.regional_input import write_rows
from support.spark.regional_soak_job import REPAIRED, STUCK
from support.spark.soak import PAGE_BYTES, Memory, contention, growth

REGIONS = [*(f"r{number:02}" for number in range(6)), STUCK]
ROWS_EACH = 60
HEAP_MIB = 512
#: Bound on the wait for a job.
WAIT_SECONDS = 300
#: After the death of its JVM a driver's Python ends, and after its Python's a JVM.
ENDS_WITHIN_S = 90
#: Fewer batches show nothing.
MIN_BATCHES = 30
#: Memory at the end, divided by memory at a third of the longest run.
MAX_GROWTH = 1.3
#: Bound on the merged files for each retained checkpoint; a retry adds some.
MAX_FILES = 60

DRIVER: Final = "driver"
JVM: Final = "jvm"
WORKER: Final = "worker"
ALL: Final = "all"
KINDS = (DRIVER, JVM, WORKER, ALL)


@dataclass(frozen=True, kw_only=True)
class RegionalReport:
    """The figures of all runs. Sizes in bytes."""

    batches: int
    #: Kills by kind of process.
    killed_drivers: int
    killed_jvms: int
    killed_workers: int
    killed_all: int
    #: Attempts that were seen to end, by outcome; the last one before a kill may be missing.
    global_checkpoints: int
    regional_checkpoints: int
    aborted_attempts: int
    #: Failures of regions, over all attempts.
    failures: int
    #: Checkpoints with pending rows.
    in_flight_checkpoints: int
    files_max: int
    #: Of the longest run, in its first and last third: memory of the JVM beyond its heap.
    jvm_third: int
    jvm_end: int
    seconds: float

    def check(self) -> None:
        """Raise AssertionError if too much is left, or too little was tried."""
        assert self.batches >= MIN_BATCHES, "too few batches: the bounds say nothing"
        kills = (self.killed_drivers, self.killed_jvms, self.killed_workers, self.killed_all)
        assert all(kills), "some kind of process was never killed"
        assert self.failures > 0, "no region failed"
        assert self.regional_checkpoints > 0, "no checkpoint was regional"
        assert self.in_flight_checkpoints > 0, "no checkpoint owed rows"
        assert self.files_max <= MAX_FILES, "files pile up"
        assert self.jvm_end <= MAX_GROWTH * self.jvm_third, "the JVM grows"


class RegionalJob:
    """One run of regional_soak_job.py, in a session of its own."""

    def __init__(self, folder: Path, *, number: int, seed: int) -> None:
        self.log = folder / f"log-{number}.txt"
        arguments = ["--folder", str(folder), "--seed", str(seed), "--heap-mib", str(HEAP_MIB)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, program("spark/regional_soak_job.py"), *arguments],
                cwd=folder,
                # Workers run this program's Python.
                env=environment({"PYSPARK_PYTHON": sys.executable}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def jvms(self) -> list[int]:
        return processes.drivers(self.process.pid)

    def kill(self, kind: str, rng: random.Random) -> bool:
        """Kill processes of a kind; False if there is none now."""
        if kind == ALL:
            self.end()
            return True
        victims = {
            DRIVER: lambda: [self.process.pid],
            JVM: self.jvms,
            WORKER: lambda: processes.workers(self.process.pid),
        }[kind]()
        if not victims:
            return False
        try:
            os.kill(rng.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def require_end(self) -> None:
        """The driver's Python ends by itself, and reports that it failed."""
        try:
            code = self.process.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Python goes on without its JVM:\n{self.text()}") from None
        assert code != 0, "without its JVM, the driver's Python ended as if all were well"

    def require_gone(self) -> None:
        """No process of the session is left, without further help."""
        deadline = time.monotonic() + ENDS_WITHIN_S
        while left := running_in_session(self.process.pid):
            assert time.monotonic() < deadline, f"processes {left} are left:\n{self.text()}"
            time.sleep(0.1)

    def end(self) -> None:
        """Kill everything of the session."""
        kill_session(self.process.pid)
        self.process.wait()


class RegionalSoak:
    """One pipeline, its jobs, and their figures."""

    def __init__(self, folder: Path, *, batches: int, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311
        self.batches = batches
        self.jobs: list[RegionalJob] = []
        self.runs: list[list[Memory]] = []
        self.killed: Counter[str] = Counter()
        self.files_max = 0
        self.rows: list[Sequence[Row]] = []
        (folder / "marks").mkdir(parents=True)
        for number in range(batches):
            self.rows.append(rows_of(number, REGIONS, each=ROWS_EACH))
            write_rows(folder / "in", number, self.rows[-1])

    def run(self, *, kills: int, done: Callable[[int], None]) -> RegionalReport:
        """Run it to the end; raises AssertionError if rows are wrong or files are left."""
        started = time.monotonic()
        # Every kind in turn, so that none is left out; only the times vary.
        due = [KINDS[number % len(KINDS)] for number in range(kills)]
        self.rng.shuffle(due)
        at = sorted(self.rng.sample(range(1, self.batches - 2), kills))
        old: RegionalJob | None = None
        job = self._start()
        for batch, kind in zip(at, due, strict=True):
            while not (self._reaches(job, batch, done) and job.kill(kind, self.rng)):
                assert job.process.poll() is None, f"ended before batch {batch}:\n{job.text()}"
            self.killed[kind] += 1
            if kind == JVM:
                job.require_end()
            if kind != WORKER:
                if old is not None:
                    old.require_gone()
                old, job = job, self._start()
        self._reaches(job, self.batches, done)
        assert job.process.wait(timeout=WAIT_SECONDS) == 0, job.text()
        self._check_quarantine()
        (self.folder / REPAIRED).touch()
        job = self._start()
        assert job.process.wait(timeout=WAIT_SECONDS) == 0, job.text()
        for one in self.jobs:
            one.require_gone()
        done(self.batches)
        self._check_rows()
        self._check_files()
        return self._report(time.monotonic() - started)

    def end(self) -> None:
        """End all processes."""
        for job in self.jobs:
            job.end()

    def _start(self) -> RegionalJob:
        job = RegionalJob(self.folder, number=len(self.jobs), seed=self.seed)
        self.jobs.append(job)
        self.runs.append([])
        return job

    def _committed(self) -> int:
        """Batches that Spark has committed."""
        commits = (self.folder / "ckpt" / "spark" / "commits").glob("*")
        return 1 + max((int(path.name) for path in commits if path.name.isdigit()), default=-1)

    def _reaches(self, job: RegionalJob, batch: int, done: Callable[[int], None]) -> bool:
        """Watch a job to a number of batches, and for a random time beyond; False if it ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        before = -1
        while (committed := self._committed()) < batch:
            if job.process.poll() is not None:
                return committed >= self.batches
            if committed > before:
                before, deadline = committed, time.monotonic() + WAIT_SECONDS
            assert time.monotonic() < deadline, f"stands still at {committed}:\n{job.text()}"
            self._sample(job, committed)
            done(committed)
            time.sleep(0.1)
        time.sleep(self.rng.uniform(0, 1.0))
        return job.process.poll() is None

    def _sample(self, job: RegionalJob, committed: int) -> None:
        with suppress(FileNotFoundError):
            files = len(os.listdir(self.folder / "ckpt" / "segments"))
            self.files_max = max(self.files_max, files)
        for process in job.jvms():
            with suppress(FileNotFoundError, ProcessLookupError):
                pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
                memory = pages * PAGE_BYTES - (HEAP_MIB << 20)
                # A JVM without its heap yet shows nothing.
                if memory > 0:
                    self.runs[-1].append(Memory(committed, memory))

    def _check_quarantine(self) -> None:
        """All rows of one region are pending, in few pieces; the others have processed theirs."""
        checkpoint = MountedPath(self.folder / "ckpt")
        latest = CheckpointFolders(checkpoint).read(checkpoint_ids(checkpoint)[-1])
        (held,) = quarantined_regions(latest, {})
        assert held.region == STUCK
        assert held.rows == self.batches * ROWS_EACH
        pieces = len(latest.regions[STUCK].in_flight)
        assert pieces <= 2 * TaskOptions().quarantine_pieces, f"{pieces} pieces pile up"
        self._check_rows(without=STUCK)

    def _check_rows(self, *, without: str = "") -> None:
        due = [[row for row in rows if row[0] != without] for rows in self.rows]
        rows, right = output_of(self.folder / "out"), expected(due)
        assert len(set(rows)) == len(rows), f"{len(rows) - len(set(rows))} rows are doubled"
        assert rows == right, f"{len(set(right) - set(rows))} rows are missing"

    def _check_files(self) -> None:
        """Only files of the retained checkpoints exist, and all can be read."""
        checkpoint = self.folder / "ckpt"
        needed = set()
        for number in checkpoint_ids(checkpoint):
            assert Verification(checkpoint).verify(number, lambda done, of: None).damage == ()
            entries = CheckpointFolders(checkpoint).read(number).regions.values()
            needed |= {ref.file for entry in entries for _, _, ref in entry.refs()}
        # A file with the number 0 is a manager's claim, and empty.
        found = {path.name for path in (checkpoint / "segments").iterdir()}
        assert {name for name in found if not name.endswith("-00000000.hf")} == needed
        assert list((self.folder / "out" / "_holdfast").rglob("*.parquet")) == []

    def _report(self, seconds: float) -> RegionalReport:
        lines = (self.folder / "history.jsonl").read_text().splitlines()
        attempts = [json.loads(line) for line in lines]
        outcomes = Counter(attempt["outcome"] for attempt in attempts)
        longest = max(self.runs, key=lambda run: run[-1].batch - run[0].batch if run else -1)
        third, end = growth(longest)
        return RegionalReport(
            batches=self.batches,
            killed_drivers=self.killed[DRIVER],
            killed_jvms=self.killed[JVM],
            killed_workers=self.killed[WORKER],
            killed_all=self.killed[ALL],
            global_checkpoints=outcomes["global"],
            regional_checkpoints=outcomes["regional"],
            aborted_attempts=outcomes["aborted"],
            failures=sum(attempt["failed"] for attempt in attempts),
            # More than the pending rows of the region in quarantine.
            in_flight_checkpoints=sum(
                attempt["in_flight_rows"] > ROWS_EACH * (attempt["batch"] + 1)
                for attempt in attempts
            ),
            files_max=self.files_max,
            jvm_third=third,
            jvm_end=end,
            seconds=round(seconds, 1),
        )


def main() -> None:
    """Run a soak in a temporary folder and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.batches < MIN_BATCHES:
        parser.error(f"--batches must be {MIN_BATCHES} or more")
    if not len(KINDS) <= args.kills <= args.batches - 3:
        parser.error(f"--kills must be {len(KINDS)} or more, and 3 less than --batches at most")
    columns = (TextColumn("batches"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder,
        Progress(*columns) as progress,
        contention(1),
    ):
        bar = progress.add_task("batches", total=args.batches)
        soak = RegionalSoak(Path(folder) / "pipeline", batches=args.batches, seed=args.seed)
        try:
            report = soak.run(
                kills=args.kills, done=lambda batches: progress.update(bar, completed=batches)
            )
        finally:
            soak.end()
    for name, value in asdict(report).items():
        print(f"{name:22} {value}")
    report.check()


if __name__ == "__main__":
    main()
