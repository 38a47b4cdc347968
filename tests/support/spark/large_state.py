"""Fault jobs with so much state that it is hydrated during their batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.spark.counted_texts import KIND, RUN
from support.spark.faults import LOCAL, ONLY_BATCHES, Job, Rows, World
from support.spark.queries import STATE

KEYS, TEXT_BYTES = 6_000, 4096
ALL_BYTES = KEYS * TEXT_BYTES
#: A key of every input.
ALWAYS = "k0"
#: The first input has the largest values, so that later texts are from the state.
FIRST_VALUE = 1_000_000
#: Stores are opened with their runs, and all content of these fits.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    STATE + "holdfast.targetMemoryBytes": str(8 * ALL_BYTES),
}
RUNS_AT_ONCE = {STATE + "minDeltasForSnapshot": "1"}


class LargeState(World):
    """A world whose first input has all keys, and others three, of which two are cold."""

    def __init__(self, folder: Path, points: Path) -> None:
        super().__init__(folder, points)
        self.settings = SETTINGS | ONLY_BATCHES
        self.rows = self._rows
        self._with_all_keys = {0}

    def _rows(self, batch: int) -> list[dict[str, Any]]:
        few = {0, 1 + batch * 977 % (KEYS - 1), KEYS - batch}
        keys = range(KEYS) if batch in self._with_all_keys else sorted(few)
        first = FIRST_VALUE if batch == 0 else batch
        return [{"key": f"k{key}", "value": first + key % 1_000} for key in keys]

    def feed_all_keys(self) -> None:
        self._with_all_keys.add(self.fed)
        self.feed(1)

    def start(self, master: str, *arguments: str, **conf: str) -> Job:
        return super().start(master, f"--text-bytes={TEXT_BYTES}", *arguments, **conf)

    def inputs(self, batch: int) -> int:
        return self.output(batch)[ALWAYS][0]

    def assert_rows(self) -> None:
        state: Rows = {}
        done = 0
        for batch in range(self.last_committed() + 1):
            inputs = self.inputs(batch)
            assert done < inputs <= self.fed, f"batch {batch}"
            changed = {}
            for row in (row for number in range(done, inputs) for row in self.rows(number)):
                key, value = row["key"], row["value"]
                n, s, largest = state.get(key, [0, 0, 0])
                state[key] = changed[key] = [n + 1, s + value, max(largest, value)]
            assert self.output(batch) == changed, f"batch {batch}"
            done = inputs
        assert done == self.fed

    def build(self) -> None:
        """Leaves a run with all keys, and commits that build on it, after the end of its job."""
        job = self.start(LOCAL, **RUNS_AT_ONCE)
        self.feed_all_keys()
        job.wait_until_processed()

        def in_a_run() -> bool:
            oldest = dict(self.segments(0)[0].head(self.checkpoint))
            return oldest[KIND] == RUN

        self.go_on_until(job, "in a run", in_a_run)
        job.kill()

    def reads_of_hydration(self, job: Job) -> int:
        """The number of reads that hydrate all state at the start of a job."""
        self.arm("before-hydration", "count")
        self.go_on_until_in_memory(job)
        reads = self.passes("before-hydration")
        self.disarm()
        return reads

    def go_on_until_in_memory(self, job: Job) -> None:
        """Continues until a later batch ends with all state in memory."""
        first = self.last_committed() + 1

        def in_memory() -> bool:
            lines = (self.folder / "progress.jsonl").read_text().splitlines()
            seen = [json.loads(line) for line in lines]
            return any(s["batch"] >= first and s["memoryUsedBytes"] > ALL_BYTES for s in seen)

        self.go_on_until(job, "in memory", in_memory)

    def end_with_all_keys(self, job: Job) -> None:
        """Continues until all state is in memory, and then with every key; checks all rows."""
        self.go_on_until_in_memory(job)
        self.feed_all_keys()
        job.finish()
        self.assert_rows()
