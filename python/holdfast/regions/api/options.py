"""Options of a regional pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, Self

from holdfast._checks import Allowed, not_allowed, require_allowed, require_duration, whole_number
from holdfast.files import modes
from holdfast.regions.coordinator import CoordinatorOptions, Staleness
from holdfast.regions.protocol.orders import DEFAULT_THREADS, TaskOptions

_MAX_NAME_BYTES = 1024

#: By option. The checks of values and the reference of settings use it.
ALLOWED: Final[Mapping[str, Allowed]] = {
    "name": Allowed("other", unit="bytes", least=1, most=_MAX_NAME_BYTES),
    "max_failure_ratio": Allowed("other", unit="share", above=True, most=1),
    "max_consecutive_failures": Allowed("integer", unit="checkpoints"),
    "max_region_staleness": Allowed(
        "other", unit="checkpoints, time", note="1 or more, 1 ms or more"
    ),
    "region_timeout": Allowed("time", above=True),
    "aligned_timeout": Allowed("time", optional=True, note="less than `region_timeout`"),
    "quarantine_after": Allowed("integer", unit="checkpoints", least=1, optional=True),
    "max_quarantined_bytes": Allowed("integer", unit="bytes"),
    "num_retained": Allowed("integer", unit="checkpoints", least=1),
    "tolerable_failed_checkpoints": Allowed("integer", unit="attempts"),
    "global_timeout": Allowed("time"),
    "max_file_bytes": Allowed("integer", unit="bytes", least=1),
    "bounded": Allowed("flag"),
    "verify_state": Allowed("flag"),
    "drop_undeclared_state": Allowed("flag"),
    "on_rows_after_finish": Allowed("other", note='`"fail"`, `"restart"`'),
    "retire_idle": Allowed("time", optional=True, above=True),
    "region_threads": Allowed("integer", unit="regions", least=1),
}


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Keyword arguments of ``start`` and ``open_local``.

    Parameters
    ----------
    name : str, default "pipeline"
        Name of the pipeline in messages, and of its state; the same after a restart.
    max_failure_ratio : float, default 0.3
        Share of the regions with rows in a batch that may fail in its checkpoint; one always may,
        all never. Regions lost with one task count as one failure.
    max_consecutive_failures : int, default 2
        Regional checkpoints in a row after which one must be global. With 0 every checkpoint needs
        every region. Above 0 all operators have to declare ``region_safe``.
    max_region_staleness : tuple of (int, timedelta), default (10, 10 minutes)
        Fallbacks of one region in a row, and time since the first, after which it is restarted. If
        that does not help, it ends the pipeline.
    region_timeout : timedelta, default 10 minutes
        Time after which a region without an answer counts as failed.
    aligned_timeout : timedelta, optional
        Time after which the barrier of a batch overtakes rows that still wait: they become
        in-flight data, and the batch ends without them.
    quarantine_after : int, optional
        Fallbacks of one region in a row after which it is in quarantine: its rows are stored, and
        the pipeline runs without it. By default a region that keeps failing ends the pipeline.
    max_quarantined_bytes : int, default 1 GiB
        Bound on the pending rows of all regions in quarantine together. More end the pipeline.
    num_retained : int, default 3
        Completed checkpoints that are kept. On an object store up to three more, because they are
        deleted four at a time.
    tolerable_failed_checkpoints : int, default 0
        Aborted attempts in a row that do not end the pipeline. The pause between attempts grows
        from 0.1 s to 10 s.
    global_timeout : timedelta, default 2 minutes
        Time for which attempts that need every region are repeated: at the end of data, at a stop,
        for a savepoint, and if regions depend on each other. Then the pipeline ends, unless only a
        savepoint failed.
    max_file_bytes : int, default 32 MiB
        Size at which a merged file is sealed.
    bounded : bool, default False
        The source has an end. When a query with the trigger ``availableNow`` has read everything,
        operators flush (``on_end_of_data``), sinks commit, and a last global checkpoint holds every
        region as finished. Not for ``open_local``, which has ``LocalQuery.end_of_data``.
    verify_state : bool, default True
        Read all files that the restored checkpoint needs at the start, so that damage is found
        before the first batch. False only checks that the files exist; a damaged region fails when
        it runs.
    drop_undeclared_state : bool, default False
        Drop state of the checkpoint that no operator declares. Otherwise the start refuses it.
    on_rows_after_finish : {"fail", "restart"}, default "fail"
        Rows for a region whose data has ended end the query with an error, or begin the region
        again, without state.
    retire_idle : timedelta, optional
        Time without rows after which a region is dropped with its state, in a global checkpoint.
        Later rows begin it without state. `Operator.on_retire` returns its last rows. All operators
        must declare ``region_safe``.
    region_threads : int, default 4
        Bound on the regions of one task that make progress at the same time. A task uses one thread
        unless that takes long: Python computes in one thread at a time.

    Raises
    ------
    ValueError
        If a value is not allowed; the message names the option.
    """

    name: str = "pipeline"
    max_failure_ratio: float = 0.3
    max_consecutive_failures: int = 2
    max_region_staleness: tuple[int, timedelta] = (10, timedelta(minutes=10))
    region_timeout: timedelta = timedelta(minutes=10)
    aligned_timeout: timedelta | None = None
    quarantine_after: int | None = None
    max_quarantined_bytes: int = 1024 * 1024 * 1024
    num_retained: int = 3
    tolerable_failed_checkpoints: int = 0
    global_timeout: timedelta = timedelta(minutes=2)
    max_file_bytes: int = 32 * 1024 * 1024
    bounded: bool = False
    verify_state: bool = True
    drop_undeclared_state: bool = False
    on_rows_after_finish: Literal["fail", "restart"] = "fail"
    retire_idle: timedelta | None = None
    region_threads: int = DEFAULT_THREADS

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name.encode()) <= _MAX_NAME_BYTES:
            raise not_allowed("name", self.name, f"a string of 1 to {_MAX_NAME_BYTES:,} bytes")
        for option, allowed in ALLOWED.items():
            found = require_allowed(option, getattr(self, option), allowed)
            object.__setattr__(self, option, found)
        if self.aligned_timeout is not None and self.aligned_timeout >= self.region_timeout:
            raise not_allowed(
                "aligned_timeout",
                self.aligned_timeout,
                f"less than region_timeout={self.region_timeout!r}, at which a region counts as "
                "failed",
            )
        match self.max_region_staleness:
            case (fallbacks, timedelta() as age) if whole_number(fallbacks) is not None:
                require_duration("max_region_staleness", age, zero=True)
                staleness = whole_number(fallbacks), age
                object.__setattr__(self, "max_region_staleness", staleness)
            case other:
                expected = (
                    "a number of checkpoints and a timedelta, as in (10, timedelta(minutes=10))"
                )
                raise not_allowed("max_region_staleness", other, expected)
        if self.on_rows_after_finish not in ("fail", "restart"):
            raise not_allowed(
                "on_rows_after_finish", self.on_rows_after_finish, "'fail' or 'restart'"
            )
        self.coordinator()  # checks the share of failures

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> Self:
        """Return the options that a user has given by name.

        Raises a TypeError that names a similar option for an unknown one, and a ValueError if a
        value is not allowed.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                meant = f"did you mean {close[0]!r}?" if close else f"expected {', '.join(known)}"
                raise TypeError(f"there is no option {name!r}: {meant}")
        return cls(**options)

    def coordinator(self, *, dropped_together: int = 1) -> CoordinatorOptions:
        """Return the coordinator's settings; `dropped_together` checkpoints are deleted at once."""
        fallbacks, age = self.max_region_staleness
        return CoordinatorOptions(
            max_failure_ratio=self.max_failure_ratio,
            max_consecutive_failures=self.max_consecutive_failures,
            max_region_staleness=Staleness(checkpoints=fallbacks, age_ms=_ms(age)),
            quarantine_after=self.quarantine_after,
            max_quarantined_bytes=self.max_quarantined_bytes,
            num_retained=self.num_retained,
            dropped_together=dropped_together,
            tolerable_failed_checkpoints=self.tolerable_failed_checkpoints,
            global_timeout_ms=_ms(self.global_timeout),
            restart_finished=self.on_rows_after_finish == "restart",
            retire_idle_ms=None if self.retire_idle is None else _ms(self.retire_idle),
        )

    def tasks(self, *, gpu: bool, gather_ms: int = 0) -> TaskOptions:
        """Return the settings of region tasks; they gather answers for `gather_ms`."""
        return TaskOptions(
            aligned_timeout_ms=None if self.aligned_timeout is None else _ms(self.aligned_timeout),
            region_timeout_ms=_ms(self.region_timeout),
            threads=self.region_threads,
            gather_ms=gather_ms,
            gpu=gpu,
            drop_undeclared_state=self.drop_undeclared_state,
            restart_finished=self.on_rows_after_finish == "restart",
            umask=modes.followed(),
        )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
