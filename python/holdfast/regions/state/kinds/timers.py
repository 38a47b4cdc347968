"""Timers, which a table keeps by the time at which they are due."""

from __future__ import annotations

from typing import Literal

from holdfast.regions.base.saved import StateError
from holdfast.regions.state.kinds.kind import Scope
from holdfast.regions.state.kinds.table import TableKind
from holdfast.regions.state.tables.columns import Columns, Given
from holdfast.regions.state.tables.timers import VALUE, TimerState, TimerTable, WakingTable, key_of


class TimersKind(TableKind):
    """Timers by key, see `StateRegistry.timers`."""

    noun = "timer"
    advice = "through {place}.at(...)"
    handle: TimerState

    def __init__(
        self, scope: Scope, name: str, *, key: Given, time: Literal["event", "processing"]
    ) -> None:
        at = scope.at(name)
        if time not in ("event", "processing"):
            raise StateError(
                f"{at}: time={time!r} is not allowed: expected 'event' or 'processing'"
            )
        columns = key_of(key, where=at)
        keys = Columns.of(columns, name="key", where=at)
        values = Columns.of(VALUE, name="value", where=at)
        table = (
            TimerTable(name, keys, values)
            if time == "event"
            else WakingTable(name, keys, values, scope.now)
        )
        super().__init__(scope, table, follows_watermark=time == "event")
        self.handle = TimerState(table, columns.remove(0), time)
