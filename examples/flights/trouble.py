"""Trouble in the demo's regional pipeline: one region fails for a while, one is slow."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from flights.rolling import RollingDelays
from holdfast.regions import OperatorContext

#: File in the folder of a `Trouble` that appears when the failing region hangs.
HANGING = "hanging"


class RunwayClosedError(RuntimeError):
    """The error of the failing region."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Failures and delays: their regions, and their days.

    Attributes
    ----------
    folder
        Remembers failures over restarts: one file for each.
    failing, fails_from_day, failures
        The region that fails, the first day of rows with which it does, and in how many attempts.
    hangs_after
        Failures after which the region blocks for ever instead of failing; None: it never does.
    slow, slow_days
        The region that is slow, and the first and last day of its slow rows.
    pause_s
        Time it takes for each Arrow batch of such rows, in seconds.
    """

    folder: str
    failing: str
    fails_from_day: int
    failures: int
    hangs_after: int | None
    slow: str
    slow_days: tuple[int, int]
    pause_s: float


class TroubledDelays(RollingDelays):
    """The same operator, with failures and delays.

    Parameters
    ----------
    carriers : sequence of str
        The argument of `RollingDelays`.
    trouble : Trouble
        Its failures and delays.
    """

    def __init__(self, carriers: Sequence[str], trouble: Trouble) -> None:
        super().__init__(carriers)
        self._trouble = trouble

    def open(self, ctx: OperatorContext) -> None:
        """Declare the state, and remember whose it is."""
        super().open(ctx)
        self._region = ctx.region

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Fail, hang or take long at the chosen region and time."""
        days = pc.min_max(batch.column("day")).as_py()
        if self._region == self._trouble.failing:
            self._fail(days["max"])
        if self._region == self._trouble.slow:
            first, last = self._trouble.slow_days
            if first <= days["max"] and days["min"] <= last:
                time.sleep(self._trouble.pause_s)
        return super().process(batch)

    def _fail(self, day: int) -> None:
        trouble = self._trouble
        folder = Path(trouble.folder)
        failures = len(list(folder.glob("failure-*")))
        if day < trouble.fails_from_day or failures >= trouble.failures:
            return
        if failures == trouble.hangs_after:
            (folder / HANGING).touch()
            threading.Event().wait()
        (folder / f"failure-{failures}").touch()
        raise RunwayClosedError("no flight departs")


def region_name(airport: str, month: int) -> str:
    """Return the name of a region: the values of its columns as JSON text."""
    return json.dumps([airport, month], separators=(",", ":"))
