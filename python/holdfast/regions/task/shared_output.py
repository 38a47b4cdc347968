"""Output of several regions of a task, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from holdfast._core import RegionEntry, Staged
from holdfast.regions.base.problem import Problem, message_of
from holdfast.regions.coordinator import Acked
from holdfast.regions.protocol.orders import OutputPlan
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.parquet_stage import NO_ROWS
from holdfast.regions.sinks.sink import OutputStore, failure_of
from holdfast.regions.task.answered import Answered
from holdfast.regions.task.output_at_work import OutputAtWork, persisted

if TYPE_CHECKING:
    from holdfast.regions.task.region_run import RegionRun

#: An acknowledgement waits for those of other regions for half of the time that the task has taken,
#: and at least for a second. So a task whose regions take very different times writes few files,
#: and the process of a region that hangs may die without those that answered long before.
WAITS_RATIO: Final = 2
WAITS_MS: Final = 1000

#: Regions in a file. The driver takes in those of one file while others are still at work, so that
#: little is left to do behind the last row.
REGIONS_MAX: Final = 1024

#: Encoded acknowledgements that count together: they are one message.
ANSWERS_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Lost:
    """Why an acknowledgement cannot be kept: its output is in no file."""

    cause: str
    problem: Problem | None = None


class SharedOutput:
    """Keeps acknowledgements with output until that is durable, in files of several regions.

    The regions in these files acknowledge together, so that each file is in a checkpoint as a
    whole. Regions whose rows cannot be encoded are left out first.

    Parameters
    ----------
    begun_ms : int
        When the task began.
    """

    def __init__(self, attempt: int, store: OutputStore | None, *, begun_ms: int) -> None:
        self._attempt = attempt
        self._store = store
        self._begun_ms = begun_ms
        self._since_ms = begun_ms
        self._answers_bytes = 0
        self._rows_bytes: dict[str, int] = {}
        self.is_full = False
        self.waiting: dict[RegionRun, Answered] = {}

    def add(self, run: RegionRun, answer: Answered, now_ms: int) -> None:
        """Take a region's acknowledgement, whose segments are durable."""
        if not self.waiting:
            self._since_ms = now_ms
        self.waiting[run] = answer
        acked = cast("Acked", answer.event)
        self._answers_bytes += len(acked.entry.to_bytes()) + sum(len(e) for _, e in acked.events)
        self.is_full |= self._answers_bytes >= ANSWERS_BYTES or len(self.waiting) >= REGIONS_MAX
        for part in answer.shared:
            name = part.plan.name
            nbytes = self._rows_bytes.get(name, 0) + part.taken.nbytes
            self._rows_bytes[name] = nbytes
            self.is_full |= nbytes >= cast("ParquetSink", part.plan.sink).target_file_bytes

    def is_late(self, now_ms: int) -> bool:
        """Return whether the first one has waited for long enough."""
        allowed_ms = max(WAITS_MS, (now_ms - self._begun_ms) // WAITS_RATIO)
        return bool(self.waiting) and now_ms - self._since_ms >= allowed_ms

    def write(self) -> tuple[list[tuple[RegionRun, Answered]], dict[RegionRun, Lost]]:
        """Write the files, durably.

        Returns the acknowledgements with their files, which count together, and the regions that
        are in no file.
        """
        waiting = dict(sorted(self.waiting.items(), key=lambda item: item[0].region))
        self.waiting = {}
        self._answers_bytes, self._rows_bytes, self.is_full = 0, {}, False
        try:
            return self._write(waiting)
        finally:
            # The answers stay as long as the task, and the rows need not.
            for answer in waiting.values():
                for part in answer.shared:
                    part.taken = NO_ROWS

    def _write(
        self, waiting: dict[RegionRun, Answered]
    ) -> tuple[list[tuple[RegionRun, Answered]], dict[RegionRun, Lost]]:
        lost: dict[RegionRun, Lost] = {}
        while left := {run: answer for run, answer in waiting.items() if run not in lost}:
            staged: dict[RegionRun, list[Staged]] = {run: [] for run in left}
            files: list[OutputAtWork] = []
            failed = self._write_all(left, staged, files)
            if not failed:
                return [(run, _with_files(left[run], staged[run])) for run in left], lost
            for file in files:
                file.discard()
            lost |= failed
        return [], lost

    def _write_all(
        self,
        answers: dict[RegionRun, Answered],
        staged: dict[RegionRun, list[Staged]],
        files: list[OutputAtWork],
    ) -> dict[RegionRun, Lost]:
        """Write a file for each output; returns the regions because of which one failed."""
        outputs: dict[str, dict[RegionRun, OutputAtWork]] = {}
        for run, answer in answers.items():
            for part in answer.shared:
                outputs.setdefault(part.plan.name, {})[run] = part
        for parts in outputs.values():
            plan = next(iter(parts.values())).plan
            file = OutputAtWork(plan, [run.region for run in parts], self._attempt)
            files.append(file)
            try:
                whole = _written(file, parts.values())
            except (Exception, SystemExit) as error:
                return _to_blame(parts, error)
            (failure,) = persisted([file], self._store)
            if failure is not None:
                return dict.fromkeys(parts, Lost(not_durable(plan, failure)))
            for run, part in parts.items():
                rows = part.taken.rows
                one = Staged(whole.path, whole.target, rows, whole.bytes, output=plan.name)
                staged[run].append(one)
        return {}


def _written(file: OutputAtWork, parts: Iterable[OutputAtWork]) -> Staged:
    for part in parts:
        file.add(part)
    return cast("Staged", file.close())


def _to_blame(parts: dict[RegionRun, OutputAtWork], error: BaseException) -> dict[RegionRun, Lost]:
    """Return the regions whose rows cannot be encoded; if all can, it is the file that failed."""
    errors = {run: failure_of(part.require_writable) for run, part in parts.items()}
    found = {run: wrong for run, wrong in errors.items() if wrong is not None}
    blamed = found or dict.fromkeys(parts, error)
    problems = {run: Problem.of(wrong) for run, wrong in blamed.items()}
    return {run: Lost(problem.text, problem) for run, problem in problems.items()}


def not_durable(plan: OutputPlan, error: BaseException) -> str:
    """Say that a sink did not store its output."""
    return (
        f"sink {type(plan.sink).__name__!r} did not make its output durable: "
        f"{type(error).__name__}: {message_of(error)}"
    )


def _with_files(answer: Answered, files: Sequence[Staged]) -> Answered:
    acked = cast("Acked", answer.event)
    entry = acked.entry
    named = RegionEntry(
        entry.region,
        origin=entry.origin,
        operators=entry.operators,
        in_flight=entry.in_flight,
        staged=(*entry.staged, *files),
        finished=entry.finished,
    )
    return replace(answer, event=replace(acked, entry=named), shared=())
