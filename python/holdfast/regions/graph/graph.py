"""The graph of operators of one region, driven step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from holdfast.regions.graph.attempt import Attempt, Instance
from holdfast.regions.graph.channel import Channel
from holdfast.regions.graph.data import (
    SOURCE,
    ChannelData,
    Output,
    Progress,
    RegionSnapshot,
)
from holdfast.regions.graph.spec import StageSpec
from holdfast.regions.graph.wiring import wire

if TYPE_CHECKING:
    import pyarrow as pa


class RegionGraph:
    """Operators of one region, joined by bounded channels in which barriers travel (R50).

    The graph does nothing by itself: `step` does one unit of work. The caller gives the time, in
    milliseconds on one clock, and the order of calls decides everything.

    Bounds
        An instance consumes only if each channel it writes to has room. The channels then take all
        that it emits for one batch, so a channel holds at most ``capacity_batches - 1`` batches
        plus the output of one call. A barrier thus never waits for room. Restored batches, and
        those that are flushed at the end of data, need no room. Outputs are not bounded: the caller
        of `step` takes them.

    Alignment (R51, R52)
        An instance takes its snapshot when no data is left before the barrier in any of its
        channels; the end of a channel counts as its barrier (R54). Snapshots precede any data. When
        no instance is that far and the attempt is past its timeout, the barrier overtakes: it moves
        before all data of every instance without a snapshot. The next steps take these snapshots,
        one each, in the order of the graph. No data moves in between, so nothing arrives while a
        channel is captured, and some channels may get the barrier later. Flink has a timer, and a
        check when a barrier or an end is processed. Here every step makes one check, which fires
        once. A late barrier that completes alignment without overtaking leaves the snapshot
        aligned. A barrier never interrupts a batch, which is inside one step.

    Restored batches (R55, R57)
        They may come from a graph with other channels, so nothing newer may pass them in any
        channel. Until they are through, there is no room for new rows, and steps first take from
        the channels nearest the end, whose rows are the oldest.

    In-flight bound (R58)
        While the bytes that the barrier would capture are more than ``max_in_flight_bytes``, it
        continues to align: the rows before it are processed, and the source after it finds the
        channels full. It overtakes as soon as the rest fits, unless alignment completes first. No
        snapshot holds more than the bound.

    Errors
        If an operator or a route raises, the error passes through and the graph is lost, because a
        batch may have been consumed in part. Methods that change the graph, and `take_snapshot`,
        raise RuntimeError then; the region continues in a new graph, from its origin.

    Parameters
    ----------
    stages
        At least one, in the order of the data.
    capacity_batches
        At least 1, for every channel.
    timeout_ms
        Milliseconds after its creation by the coordinator until a barrier may overtake queued data
        (R51). None: never, so that snapshots hold no in-flight data; 0: at once.
    max_in_flight_bytes
        At least 0; Arrow bytes in memory, before encoding.

    Raises
    ------
    ValueError
        If the stages cannot be joined, or a bound is out of range.
    """

    def __init__(
        self,
        stages: Sequence[StageSpec],
        *,
        capacity_batches: int,
        timeout_ms: int | None,
        max_in_flight_bytes: int,
    ) -> None:
        if capacity_batches < 1:
            raise ValueError(f"expected capacity_batches >= 1, found {capacity_batches}")
        if max_in_flight_bytes < 0:
            raise ValueError(f"expected max_in_flight_bytes >= 0, found {max_in_flight_bytes}")
        if timeout_ms is not None and timeout_ms < 0:
            raise ValueError(f"expected an alignment timeout >= 0 ms, found {timeout_ms}")
        measured = timeout_ms is not None
        self._source, self._instances = wire(
            stages, lambda name: Channel(name, capacity_batches, measured=measured)
        )
        self._readers: list[tuple[Channel, Instance]] = [
            (channel, instance) for instance in self._instances for channel in instance.inputs
        ]
        self._timeout_ms = timeout_ms
        self._max_in_flight_bytes = max_in_flight_bytes
        self._cursor = 0
        self._attempt: Attempt | None = None
        # The newest attempt that was begun: it and older ones never begin again.
        self._newest: int | None = None
        self._outputs: list[Output] = []
        self._source_ended = False
        # Restored rows, or their results, are in the graph.
        self._replaying = False
        self._used = False
        self._lost = False

    # --- input -----------------------------------------------------------------------------------

    def restore(self, in_flight: Iterable[ChannelData]) -> None:
        """Put in-flight data back, before all new data (R55).

        Per channel, input precedes output, and otherwise the order given is kept, so give the
        oldest checkpoint first. Rows of the channel `SOURCE` are split over stage 0 last. There is
        no room for new data until all of it is through.

        Parameters
        ----------
        in_flight
            From snapshots of a graph with the same channels; see `redistribute` for others.

        Raises
        ------
        RuntimeError
            If the graph was used before.
        ValueError
            If a channel is unknown.
        """
        self._require_intact()
        if self._used:
            raise RuntimeError("restore comes before anything else, but the graph was used already")
        data = sorted(
            in_flight, key=lambda entry: (entry.channel == SOURCE, entry.kind == "output")
        )
        channels = {channel.name: channel for channel, _ in self._readers}
        for entry in data:
            if entry.channel != SOURCE and entry.channel not in channels:
                raise ValueError(
                    f"in-flight data of channel {entry.channel}: expected one of "
                    f"{', '.join([SOURCE, *channels])}, the channels of this graph"
                )
        self._used = True
        with self._lost_on_error():
            for entry in data:
                for batch in entry.batches:
                    if entry.channel == SOURCE:
                        self._source.send(batch)
                    elif batch.num_rows:
                        channels[entry.channel].push(batch)
            self._replaying = self.holds_rows()

    def room(self) -> int:
        """Return how many batches fit now; 0 after the end or while restored batches are queued."""
        return 0 if self._source_ended or self._replaying else self._source.room

    def feed(self, batch: pa.RecordBatch) -> None:
        """Queue a batch of the source's rows; RuntimeError without room, or after the end."""
        self._require_intact()
        if self._source_ended:
            raise RuntimeError("a batch was fed after the end of the source")
        if not self.room():
            raise RuntimeError("a batch was fed without room in the graph")
        self._used = True
        with self._lost_on_error():
            self._source.send(batch)

    def call(self, stage: str, call: Callable[[Any], Iterable[pa.RecordBatch]]) -> None:
        """Let the instances of a stage put out rows without input."""
        self._require_intact()
        self._used = True
        with self._lost_on_error():
            for instance in self._instances:
                if instance.key[0] == stage:
                    self._emit(instance, call(instance.operator))

    def end(self) -> None:
        """End the source after everything fed so far (R54, R61); repeating it does nothing.

        One mark is end of data and end of channel. An instance that took it from all its channels
        flushes, and its own end follows the output of the flush. A checkpoint has the flushed
        state if it begins later or had not reached the instance. The task closes the operators once
        such a checkpoint has completed.
        """
        self._require_intact()
        self._used = True
        self._source_ended = True
        self._source.end()

    def holds_rows(self) -> bool:
        """Say whether rows wait before some operator."""
        return any(channel.holds_rows for channel, _ in self._readers)

    # --- attempts --------------------------------------------------------------------------------

    def barrier(
        self, checkpoint: int, created_ms: int, now_ms: int, *, aligned: bool = False
    ) -> bool:
        """Begin an attempt: inject its barrier after everything fed so far.

        An open attempt, or one whose complete snapshot was not taken, ends (R53). Returns False,
        and does nothing, if this attempt or a newer one was begun before.

        Parameters
        ----------
        created_ms
            When the coordinator created the barrier; the alignment timeout begins there (R51), or
            at ``now_ms`` if the clocks differ and that is in the future.
        aligned
            Never overtake: for attempts that drain in-flight data (R25).
        """
        self._require_intact()
        if self._newest is not None and checkpoint <= self._newest:
            return False
        self._end_attempt()
        self._used = True
        self._newest = checkpoint
        timeout_ms = None if aligned else self._timeout_ms
        due_ms = None if timeout_ms is None else min(created_ms, now_ms) + timeout_ms
        self._attempt = Attempt(checkpoint, due_ms)
        for channel in self._source.channels:
            channel.put_barrier()
        return True

    # --- work ------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> Progress:
        """Do one unit of work: one instance takes one batch, its barriers, or one end.

        Barriers are first. Otherwise channels take turns, from the one after the last read. Until
        restored batches are through, those nearest the end are first. Queued data is never idle.
        """
        self._require_intact()
        self._used = True
        with self._lost_on_error():
            if self._take_barriers(now_ms) or self._take_item():
                return Progress.WORKED
        ended = all(instance.finished for instance in self._instances)
        return Progress.ENDED if ended else Progress.IDLE

    def take_output(self) -> list[Output]:
        """Return the batches that reached the end of the graph since the last call, in order."""
        taken, self._outputs = self._outputs, []
        return taken

    def take_snapshot(self) -> RegionSnapshot | None:
        """Return the snapshot of the open attempt once it is complete; that ends the attempt."""
        self._require_intact()
        attempt = self._attempt
        if attempt is None or not self._is_complete(attempt):
            return None
        self._attempt = None
        return attempt.snapshot(self._source, self._instances)

    # --- inside ----------------------------------------------------------------------------------

    def _take_barriers(self, now_ms: int) -> bool:
        attempt = self._attempt
        if attempt is None or self._is_complete(attempt):
            return False
        # Once it has overtaken, some instance is always aligned, so it overtakes once.
        instance = self._next_aligned(attempt)
        if instance is None and attempt.overdue(now_ms) and self._may_overtake(attempt):
            self._overtake(attempt)
            instance = self._next_aligned(attempt)
        if instance is None:
            return False
        # An end that acts as the barrier is taken before the snapshot: after the last end, the
        # snapshot has the flushed state.
        for channel in instance.inputs:
            if channel.at_end:
                self._take_end(instance, channel)
                return True
        self._snapshot(attempt, instance)
        return True

    def _next_aligned(self, attempt: Attempt) -> Instance | None:
        """Return the first instance without its snapshot that has no data before the barrier."""
        for instance in self._instances:
            if instance.key not in attempt.states and all(
                channel.aligned for channel in instance.inputs
            ):
                return instance
        return None

    def _may_overtake(self, attempt: Attempt) -> bool:
        """Say whether a capture is within the bound now (R58)."""
        captured = sum(
            channel.bytes_ahead
            for channel, instance in self._readers
            if instance.key not in attempt.states
        )
        return captured <= self._max_in_flight_bytes

    def _overtake(self, attempt: Attempt) -> None:
        """Put the barrier before all data of all instances without their snapshot.

        That includes channels it has not been sent into yet: no data moves until it has.
        """
        attempt.overtaking = True
        for channel, instance in self._readers:
            if instance.key not in attempt.states:
                attempt.captured[channel.name] = channel.overtake()

    def _snapshot(self, attempt: Attempt, instance: Instance) -> None:
        attempt.states[instance.key] = instance.operator.snapshot(attempt.checkpoint)
        if instance.finished:
            attempt.finished.add(instance.key)
        instance.snapshotted = attempt.checkpoint
        for channel in instance.inputs:
            channel.drop_barrier()
        # An overtaking barrier is already in the channels after this instance.
        if instance.outlet is not None and not attempt.overtaking:
            for channel in instance.outlet.channels:
                channel.put_barrier()

    def _take_item(self) -> bool:
        for index in self._turns():
            channel, instance = self._readers[index]
            if channel.readable:
                if instance.outlet is not None and not instance.outlet.room:
                    continue
                self._emit(instance, instance.operator.process(channel.pop()))
            elif channel.at_end:
                self._take_end(instance, channel)
            else:
                continue
            self._cursor = index + 1
            if self._replaying:
                self._replaying = self.holds_rows()
            return True
        return False

    def _turns(self) -> Iterable[int]:
        """Return the numbers of the channels, in the order in which they may be read."""
        count = len(self._readers)
        if self._replaying:
            return reversed(range(count))
        start = self._cursor % count
        return chain(range(start, count), range(start))

    def _take_end(self, instance: Instance, channel: Channel) -> None:
        channel.ended = True
        if all(channel.ended for channel in instance.inputs):
            self._emit(instance, instance.operator.end_of_data())
            instance.finished = True
            if instance.outlet is not None:
                instance.outlet.end()

    def _emit(self, instance: Instance, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            if instance.outlet is not None:
                instance.outlet.send(batch)
            elif batch.num_rows:
                self._outputs.append(Output(batch, instance.key, instance.snapshotted))

    def _end_attempt(self) -> None:
        self._attempt = None
        for channel, _ in self._readers:
            channel.drop_barrier()

    def _is_complete(self, attempt: Attempt) -> bool:
        return len(attempt.states) == len(self._instances)

    def _require_intact(self) -> None:
        if self._lost:
            raise RuntimeError("the graph is lost: an operator, a route or a restore failed in it")

    @contextmanager
    def _lost_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._lost = True
            raise
