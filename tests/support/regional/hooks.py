"""Actions of a test in the operators of its pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa

import holdfast as hf


class Hooks:
    """Actions that a test shares with all instances of its operators.

    A pipeline pickles its operator, and unpickles it for every instance. Hooks are not copied: in
    this process, every copy of an operator has the hooks of the first one.

    Attributes
    ----------
    on_rows, on_flush
        Called when an instance takes in rows, and when its data ends; to fail or to wait.
    seen
        Events of instances: kind, region, number of an attempt.
    """

    _numbers: ClassVar[Any] = itertools.count()
    _by_number: ClassVar[WeakValueDictionary[int, Hooks]] = WeakValueDictionary()

    def __init__(self) -> None:
        self.on_rows: Callable[[str, Sequence[int]], None] | None = None
        self.on_flush: Callable[[str], None] | None = None
        self.seen: list[tuple[str, str, int]] = []
        self._number = next(Hooks._numbers)
        Hooks._by_number[self._number] = self

    def __reduce__(self) -> Any:
        return _hooks, (self._number,)

    def fail_for(self, region: str, ids: range) -> None:
        """Let a region fail whenever it is given one of these ids."""

        def trouble(at: str, seen: Sequence[int]) -> None:
            if at == region and any(row_id in ids for row_id in seen):
                raise RuntimeError(f"{region} is in trouble")

        self.on_rows = trouble

    def calm(self) -> None:
        """Let every region succeed."""
        self.on_rows = self.on_flush = None

    def happened(self, what: str, *, region: str | None = None) -> list[str]:
        """Regions whose instances saw this, in order."""
        return [at for event, at, _ in self.seen if event == what and region in (None, at)]


def _hooks(number: int) -> Hooks:
    return Hooks._by_number[number]


class Hooked(hf.Operator):
    """Base of an operator that sets `region`: lets a test act before it takes in rows."""

    region: str

    def __init__(self, hooks: Hooks | None = None) -> None:
        self.hooks = hooks

    def before(self, batch: pa.RecordBatch) -> None:
        """Let the test act."""
        if self.hooks is not None and self.hooks.on_rows is not None:
            self.hooks.on_rows(self.region, batch.column("id").to_pylist())
