"""Tables of one operator over checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from holdfast._core import SnapshotManager
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.kinds.kind import StateOptions
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import read_operator, write_operator
from holdfast.regions.state.tables.times import AttemptTimes

OWNERS = RegionOwners("test", "bern")
BEGINNING = AttemptTimes(datetime(2026, 1, 1, tzinfo=UTC))


class World:
    """Tables of one operator over checkpoints, with a manager in a folder."""

    def __init__(self, folder: Path) -> None:
        self.manager = SnapshotManager(folder)
        self.options = StateOptions()
        self.attempt = 0
        self.saved: Sequence[SavedState] = ()

    def begin(
        self, times: AttemptTimes = BEGINNING, *, kept: StateRegistry | None = None
    ) -> StateRegistry:
        """Begin an attempt with the states of the checkpoint, or with kept ones."""
        self.attempt += 1
        attempt = self.attempt

        def opened(name: str, keys: Any, values: Any, commit: str | None) -> Any:
            owner = OWNERS.state("count", name)
            return self.manager.open_table(owner, attempt, keys=keys, values=values, id=commit)

        if kept is not None:
            kept.begin(opened, times)
            return kept
        return StateRegistry(
            np,
            self.saved,
            owner="operator 'count'",
            open_table=opened,
            times=times,
            options=self.options,
        )

    def complete(self, registry: StateRegistry) -> None:
        states = registry.freeze(lambda name, refs: [True] * len(refs))
        entry = write_operator(self.manager, OWNERS, self.attempt, "count", states)
        for state in entry.states:
            refs = [piece.ref for piece in state.pieces]
            owner = OWNERS.state("count", state.name)
            self.manager.persist_segments(self.attempt, owner, refs)
        self.manager.completed(self.attempt, {self.attempt: {}})
        self.saved = list(read_operator(self.manager, OWNERS, entry))
