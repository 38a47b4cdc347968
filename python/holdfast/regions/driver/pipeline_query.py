"""The user's view of a pipeline, in a program or in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.files.printable import printable
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import failed_text
from holdfast.regions.driver.metrics import PipelineMetrics
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.driver.quarantine import Quarantine

#: Bound on the newest attempts that are shown.
SHOWN_ATTEMPTS: Final = 10

#: Bound on the failed regions that are named.
_NAMED_REGIONS: Final = 3

_COLUMNS: Final = ("id", "batch", "outcome", "failed regions", "in-flight rows", "time ms")
# Legible on white and on black.
_COLOURS: Final = {"global": "#2e8b57", "regional": "#c77700", "aborted": "#d0342c"}


class PipelineQuery(ABC):
    """The same questions to a pipeline on Spark and to one without."""

    def __init__(self, driver: PipelineDriver, *, max_file_bytes: int) -> None:
        self._driver = driver
        self._max_file_bytes = max_file_bytes

    @abstractmethod
    def _state(self) -> str:
        """Say whether the pipeline runs."""

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        return self._driver.latest

    def history(self, *, last: int | None = None) -> Sequence[HistoryRecord]:
        """Return the attempts that ended in the last seven days, oldest first.

        Attempts of earlier runs in this checkpoint folder are included, and ``run`` identifies the
        run. Times are those of the driver's clock. An attempt that a crash ended is missing. If
        only the JVM reaches the folder, attempts of the 30 seconds before are, too.

        Parameters
        ----------
        last : int, optional
            Return at most this number of the newest ones, and read no other files.
        """
        return self._driver.history(last=last)

    def quarantine(self) -> Quarantine:
        """Return the regions in quarantine: reason, time, pending rows, and their release.

        The option ``quarantine_after`` sends regions there.
        """
        return Quarantine(self._driver)

    def metrics(self) -> PipelineMetrics:
        """Return the figures of operators since this start of the pipeline, also by region.

        Rows, time, bytes of state, rows in flight, failures, and the operators' own figures from
        ``ctx.metrics``. Spark's metrics system has the sums over regions. Its progress
        (``stream.lastProgress``) has none: operators run in jobs of ``foreachBatch``.

        Returns
        -------
        PipelineMetrics
            From the last answers of regions; ``dataclasses.asdict`` makes JSON of them.
        """
        return self._driver.metrics()

    def _repr_html_(self) -> str:
        """Return the state of the pipeline and its newest attempts, for notebooks."""
        attempts = self.history(last=SHOWN_ATTEMPTS)
        return query_html(self._driver.plan.pipeline, self._state(), self.latest, attempts)


def query_html(
    name: str, state: str, latest: CheckpointMetadata, attempts: Sequence[HistoryRecord]
) -> str:
    """Return one element of HTML: the state of a pipeline, and a table of attempts."""
    return "".join(["<div>", *_standing(name, state, latest), *_table(attempts), "</div>"])


def _standing(name: str, state: str, latest: CheckpointMetadata) -> Iterator[str]:
    regions = latest.regions
    waiting = sum(in_flight_rows(entry) for entry in regions.values())
    yield f"<p>Regional pipeline <b>{_text(name)}</b>: {_text(state)}.<br/>"
    yield f"Checkpoint {latest.id}, batch {latest.batch_id}: {len(regions):,} regions, "
    yield f"{waiting:,} rows in flight"
    held = {region: entry.origin for region, entry in regions.items() if in_quarantine(entry)}
    for said, origins in (("Fell back", latest.failed), ("In quarantine", held)):
        if origins:
            named = sorted(origins.items())
            shown = ", ".join(f"{_text(one)} at {origin}" for one, origin in named[:_NAMED_REGIONS])
            more = f" and {len(named) - _NAMED_REGIONS:,} more" if named[_NAMED_REGIONS:] else ""
            yield f". {said}: {shown}{more}"
    yield ".</p>"


def _table(attempts: Sequence[HistoryRecord]) -> Iterator[str]:
    if not attempts:
        return
    heads = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    for record in attempts:
        outcome = f'<b style="color: {_COLOURS[record.outcome]}">{record.outcome}</b>'
        failed = _text(failed_text(record, max_failed=_NAMED_REGIONS))
        yield f"<tr><td>{record.id}</td><td>{record.batch_id}</td><td>{outcome}</td>"
        yield f'<td style="text-align: left">{failed}</td><td>{record.in_flight_rows:,}</td>'
        yield f"<td>{record.ms:,}</td></tr>"
    yield "</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text))
