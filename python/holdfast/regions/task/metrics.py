"""Metrics of operators: the figures of one instance, and metrics that its own code adds."""

from __future__ import annotations

import operator
import re
import threading
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, TypeVar

from holdfast.regions.protocol.figures import GaugeFigures, OperatorFigures

#: Metrics of one instance of an operator: a bound on the reports of a region.
MAX_METRICS: Final = 64

#: Characters of a name. A dot would be a level of Spark's names.
MAX_NAME: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}", re.ASCII)


class Counter:
    """A number that only rises; made by `MetricGroup.counter`. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    def inc(self, n: int = 1) -> None:
        """Add an integer, also NumPy's; TypeError for other types, ValueError if negative."""
        added = operator.index(n)
        if added < 0:
            raise ValueError(f"a counter only rises: expected n of at least 0, found {added}")
        with self._lock:
            self._value += added

    def _take(self) -> int:
        """Return the count since the last call."""
        with self._lock:
            value, self._value = self._value, 0
            return value


class Gauge:
    """A current number; made by `MetricGroup.gauge`. Any thread may use it."""

    def __init__(self) -> None:
        self._value: float | None = None

    def set(self, value: float) -> None:
        """Set a number, also NumPy's; TypeError for other types, ValueError if it is not finite."""
        if isinstance(value, str):
            raise TypeError(f"expected a number, found {value!r}")
        number = float(value)
        if not isfinite(number):
            raise ValueError(f"expected a finite number, found {number}")
        # One reference replaces another, so every thread sees a whole number.
        self._value = number


M = TypeVar("M", Counter, Gauge)


class MetricGroup:
    """The metrics of an operator's instance: ``ctx.metrics``.

    The driver adds up the metrics of an operator's instances, see `PipelineMetrics`. A counter
    counts work that was done, and is no state. If a region fails, its rows are counted again, and
    a restart of the query begins at 0. Exact counts belong into the operator's state.

    Any thread may use the metrics. The driver receives them with the region's answer to the
    current or next attempt.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[str, Counter | Gauge] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of this name, which begins at 0 when it is first asked for.

        A name has up to 64 letters, digits, ``_`` and ``-``, the first a letter. An instance may
        have 64 metrics. Raises a TypeError if the name is no text, and a ValueError if it is not
        allowed, a gauge has it, or there are 64 metrics already.

        Examples
        --------
        >>> class Checked(hf.Operator):
        ...     def open(self, ctx):
        ...         self.late = ctx.metrics.counter("late_rows")
        ...
        ...     def process(self, batch):
        ...         self.late.inc(number_of_late_rows(batch))
        ...         return batch
        """
        return self._of_kind(Counter, name)

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of this name, which has no value until one is set; see `counter`."""
        return self._of_kind(Gauge, name)

    def _of_kind(self, kind: type[M], name: str) -> M:
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a metric, found {name!r}")
        if _NAME.fullmatch(name) is None:
            raise ValueError(
                f"no metric can have the name {name!r:.200}: expected up to {MAX_NAME} letters, "
                "digits, '_' and '-', the first a letter"
            )
        with self._lock:
            found = self._metrics.get(name)
            if found is None:
                if len(self._metrics) >= MAX_METRICS:
                    raise ValueError(
                        f"there is no room for the metric {name!r}: an operator may have "
                        f"{MAX_METRICS}; what differs from row to row belongs into rows, not into "
                        "names of metrics"
                    )
                found = self._metrics[name] = kind()
            if not isinstance(found, kind):
                other = type(found).__name__.lower()
                raise ValueError(
                    f"{name!r} is a {other} already: give the other metric another name"
                )
            return found

    def _take(self) -> tuple[dict[str, int], dict[str, GaugeFigures]]:
        """Return the counts since the last call, and the values of gauges."""
        counters: dict[str, int] = {}
        gauges: dict[str, GaugeFigures] = {}
        with self._lock:
            metrics = list(self._metrics.items())
        for name, metric in metrics:
            if isinstance(metric, Counter):
                counters[name] = metric._take()
            elif (value := metric._value) is not None:
                gauges[name] = GaugeFigures.of(value)
        return counters, gauges


@dataclass(eq=False)
class Meter:
    """Measures one instance for the pipeline; one thread measures, another may ask.

    It counts rows, and nanoseconds in the operator's code. `own` are metrics of that code.
    """

    own: MetricGroup = field(default_factory=MetricGroup)
    rows_in: int = 0
    rows_out: int = 0
    busy_ns: int = 0
    _reported: tuple[int, int, int] = (0, 0, 0)

    def take(self) -> OperatorFigures:
        """Return the work since the last call."""
        # These numbers only grow, so nothing is lost if they grow during this call.
        done = self.rows_in, self.rows_out, self.busy_ns
        before, self._reported = self._reported, done
        counters, gauges = self.own._take()
        return OperatorFigures(
            done[0] - before[0], done[1] - before[1], done[2] - before[2], counters, gauges
        )
