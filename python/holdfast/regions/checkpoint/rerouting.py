"""Moves rows that wait between operators into another layout (R57)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pyarrow as pa

from holdfast.regions.base.errors import LayoutChangedError
from holdfast.regions.base.routing import route_by
from holdfast.regions.checkpoint.layout import Layout, StageLayout
from holdfast.regions.graph import SOURCE, InstanceKey, channel_name


class Rerouting:
    """Splits the rows that wait in a channel over the channels of another layout.

    A row goes to the instance that its operator's route chooses now. The instance before it, which
    put it out, no longer matters: the first one, which every layout has, takes its place. The new
    layout has all operators of the old one.
    """

    def __init__(self, old: Layout, new: Layout, region: str) -> None:
        self._old = old
        self._new = new
        self._region = region
        self._ends = {channel_name(*ends): ends for ends in _channels(old)}

    def __call__(self, channel: str, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """Split a batch of a channel of the old layout; see `holdfast.regions.graph.redistribute`.

        Rows of the channel `SOURCE` are routed when they are fed. Raises a LayoutChangedError if
        rows cannot be routed, or would miss an operator or pass one twice, and a ValueError if the
        old layout has no such channel.
        """
        if channel == SOURCE:
            return [(SOURCE, batch)]
        if channel not in self._ends:
            raise ValueError(
                f"region {self._region!r} has rows that wait in {channel!r}: expected one of "
                f"{', '.join([SOURCE, *self._ends])}, the channels of its checkpoint's layout"
            )
        producer, (name, _) = self._ends[channel]
        stage = self._same_way(channel, name)
        first = None if producer is None else (producer[0], 0)
        return [
            (channel_name(first, (name, number)), rows)
            for number, rows in enumerate(self._routed(channel, stage, batch))
            if rows is not None
        ]

    def _same_way(self, channel: str, name: str) -> StageLayout:
        """Return the operator that rows wait for, if no operator moved past them."""
        old, new = self._old.names, self._new.names
        was, now = old.index(name), new.index(name)
        passed, passed_now = old[:was], new[:now]
        if passed[-1:] != passed_now[-1:]:
            change = f"operator {name!r} comes after {_last(passed_now)}, not after {_last(passed)}"
        elif moved := [at for at in old if (at in passed) != (at in passed_now)]:
            change = (
                f"operator {moved[0]!r} comes {'after' if moved[0] in passed else 'before'} them"
            )
        else:
            return self._new.stages[now]
        raise LayoutChangedError(
            f"region {self._region!r} has rows that wait in {channel}, and now {change}: they "
            "would miss an operator or pass one twice; stop the old pipeline with "
            "stop_with_savepoint(), which lets them through, and restore that"
        )

    def _routed(
        self, channel: str, stage: StageLayout, batch: pa.RecordBatch
    ) -> Sequence[pa.RecordBatch | None]:
        if stage.parallelism == 1:
            return [batch]
        try:
            return route_by(stage.route_by)(batch, stage.parallelism)
        except (TypeError, ValueError) as e:
            raise LayoutChangedError(
                f"region {self._region!r} has rows that wait in {channel}, which cannot be routed "
                f"to the {stage.parallelism} instances of operator {stage.name!r}: {e}"
            ) from e


def _channels(layout: Layout) -> Iterator[tuple[InstanceKey | None, InstanceKey]]:
    """Yield the ends of every channel: each instance is joined with each of the next operator."""
    producers: list[InstanceKey | None] = [None]
    for stage in layout.stages:
        consumers = [(stage.name, number) for number in range(stage.parallelism)]
        yield from product(producers, consumers)
        producers = [*consumers]


def _last(names: Sequence[str]) -> str:
    return f"operator {names[-1]!r}" if names else "the source"
