"""Histories of one region's graph: possible events, and invariants.

A history feeds numbered rows, steps, begins attempts, ends, and crashes: then it continues from the
latest snapshot in a new graph. The oracle does not know the graph: it derives from the ids of the
rows which of them each instance sees and which reach the end.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.regions.graph import (
    InstanceKey,
    Output,
    Progress,
    RegionGraph,
    RegionSnapshot,
    Route,
    StageSpec,
    decode_channels,
    encode_channels,
)
from support.regional.graph_cases import due_ms

Row = tuple[str, str, int]
"""Id of the row, its sender, and its number among the sender's rows."""


@dataclass(frozen=True)
class Layout:
    """The shape of a graph.

    `stages` holds the number of instances and the kind of route ("hash", "all", "last" or None).
    """

    stages: tuple[tuple[int, str | None], ...]
    capacity: int
    timeout_ms: int | None
    max_in_flight_bytes: int


def to_batch(found: Sequence[Row]) -> pa.RecordBatch:
    ids, senders, sent = zip(*found, strict=True)
    return pa.record_batch({"id": list(ids), "sender": list(senders), "number": list(sent)})


def to_rows(batch: pa.RecordBatch) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def digest(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def targets(kind: str | None, sender: int, row_id: str, instances: int) -> Iterable[int]:
    """Instances to which a row goes; without a route the only one, or the sender's."""
    if kind is None:
        return [sender if instances > 1 else 0]
    if kind == "all":
        return range(instances)
    return [instances - 1 if kind == "last" else digest("to", row_id) % instances]


def children(row_id: str) -> list[str]:
    """0 to 2 rows made of one row, always the same ones."""
    return [f"{row_id}.{child}" for child in range(digest("children", row_id) % 3)]


def flush_id(key: InstanceKey, seen: int) -> str:
    return f"end of {key[0]}.{key[1]} after {seen}"


class Worker:
    """Remembers every row, emits its children in small batches, and a count at the end."""

    def __init__(self, key: InstanceKey) -> None:
        self.key = key
        self.seen: list[Row] = []
        self.sent = 0

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        found = to_rows(batch)
        self.seen += found
        emitted = [child for row_id, _, _ in found for child in children(row_id)]
        for start in range(0, len(emitted), 2):
            yield self._batch(emitted[start : start + 2])

    def snapshot(self, checkpoint: int) -> object:
        return tuple(self.seen), self.sent

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        seen, self.sent = state
        self.seen = list(seen)

    def end_of_data(self) -> Iterable[pa.RecordBatch]:
        yield self._batch([flush_id(self.key, len(self.seen))])

    def _batch(self, ids: Sequence[str]) -> pa.RecordBatch:
        first, self.sent = self.sent, self.sent + len(ids)
        name = f"{self.key[0]}.{self.key[1]}"
        return to_batch([(row_id, name, first + index) for index, row_id in enumerate(ids)])


def route_of(kind: str) -> Route:
    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        found = to_rows(batch)
        parts: list[list[int]] = [[] for _ in range(instances)]
        for index, (row_id, _, _) in enumerate(found):
            for target in targets(kind, 0, row_id, instances):
                parts[target].append(index)
        return [batch.take(part) if part else None for part in parts]

    return route


def build(layout: Layout) -> tuple[RegionGraph, dict[InstanceKey, Worker]]:
    workers: dict[InstanceKey, Worker] = {}
    stages = []
    for stage, (count, kind) in enumerate(layout.stages):
        name = f"s{stage}"
        instances = [Worker((name, number)) for number in range(count)]
        workers |= {worker.key: worker for worker in instances}
        stages.append(StageSpec(name, instances, None if kind is None else route_of(kind)))
    graph = RegionGraph(
        stages,
        capacity_batches=layout.capacity,
        timeout_ms=layout.timeout_ms,
        max_in_flight_bytes=layout.max_in_flight_bytes,
    )
    return graph, workers


@dataclass(frozen=True)
class Expected:
    """The results of an undisturbed run, as multisets of ids."""

    seen: dict[InstanceKey, Counter[str]]
    outputs: Counter[str]


def undisturbed(layout: Layout, fed: int, *, ended: bool) -> Expected:
    """Compute the results once the first ``fed`` rows (and the end) are through."""
    seen: dict[InstanceKey, Counter[str]] = {}
    sent = [[f"r{number}" for number in range(fed)]]
    for stage, (count, kind) in enumerate(layout.stages):
        arrived: list[list[str]] = [[] for _ in range(count)]
        for sender, ids in enumerate(sent):
            for row_id in ids:
                for target in targets(kind, sender, row_id, count):
                    arrived[target].append(row_id)
        sent = [[child for row_id in ids for child in children(row_id)] for ids in arrived]
        for number, ids in enumerate(arrived):
            seen[f"s{stage}", number] = Counter(ids)
            if ended:
                sent[number].append(flush_id((f"s{stage}", number), len(ids)))
    return Expected(seen, Counter(row_id for ids in sent for row_id in ids))


@dataclass(frozen=True)
class Completed:
    """A snapshot, the place of the source at its barrier, and the outputs before it."""

    snapshot: RegionSnapshot
    fed: int
    ended: bool
    outputs: tuple[str, ...]


@dataclass
class History:
    """One region with events, which checks itself."""

    layout: Layout
    now_ms: int = 0
    newest: int = 0
    completed: list[Completed] = field(default_factory=list)
    crashes: int = 0

    def __post_init__(self) -> None:
        self.begin(None)

    def begin(self, base: Completed | None) -> None:
        """Start a graph from a snapshot, or from nothing."""
        self.graph, self.workers = build(self.layout)
        self.fed = 0 if base is None else base.fed
        self.ended = base is not None and base.ended
        self.before = () if base is None else base.outputs
        self.emitted: list[Output] = []
        self.attempt: tuple[int, int, bool] | None = None
        self.frozen: dict[InstanceKey, int] | None = None
        if base is not None:
            for key, state in base.snapshot.states.items():
                self.workers[key].restore(state)
            stored = decode_channels(encode_channels(base.snapshot.in_flight))
            assert stored == base.snapshot.in_flight
            self.graph.restore(stored)
            if self.ended:
                self.graph.end()

    # --- events ----------------------------------------------------------------------------------

    def feed(self, count: int) -> None:
        if not self.ended and self.graph.room():
            numbers = range(self.fed, self.fed + count)
            self.graph.feed(to_batch([(f"r{n}", "source", n) for n in numbers]))
            self.fed += count

    def step(self) -> Progress:
        seen = self._seen()
        due = due_ms(self.graph)
        progress = self.graph.step(self.now_ms)
        self.emitted += self.graph.take_output()
        if due is not None and due_ms(self.graph) is None:
            # The barrier has overtaken, or all snapshots are there; the snapshot says which.
            self.frozen = seen if self.now_ms >= due else None
        snapshot = self.graph.take_snapshot()
        if snapshot is not None:
            self._complete(snapshot)
        return progress

    def barrier(self, age_ms: int, skip: int, *, aligned: bool) -> None:
        checkpoint = self.newest + 1 + skip
        assert self.graph.barrier(checkpoint, self.now_ms - age_ms, self.now_ms, aligned=aligned)
        assert not self.graph.barrier(checkpoint, self.now_ms, self.now_ms)
        self.newest = checkpoint
        self.attempt = (checkpoint, self.fed, self.ended)
        self.frozen = None

    def end(self) -> None:
        self.ended = True
        self.graph.end()

    def crash(self) -> None:
        self.crashes += 1
        self.begin(next(reversed(self.unfinished()), None))

    def unfinished(self) -> list[Completed]:
        """Snapshots to begin with: a region that has finished does not run again (R60)."""
        return [one for one in self.completed if not one.snapshot.finished]

    # --- invariants ------------------------------------------------------------------------------

    def finish(self, fed: int) -> None:
        """Feed the rest, run to the end, and compare with the undisturbed run."""
        while self.fed < fed and not self.ended:
            self.feed(1)
            self.step()
        self.end()
        while self.step() is Progress.WORKED:
            pass
        assert self.attempt is None, "an attempt was not completed by stepping"
        expected = undisturbed(self.layout, self.fed, ended=True)
        assert self._ids_seen() == expected.seen
        assert Counter(self._outputs_before(None)) == expected.outputs
        self._check_order()
        assert self.graph.step(self.now_ms) is Progress.ENDED

    def _complete(self, snapshot: RegionSnapshot) -> None:
        assert self.attempt is not None, "a snapshot of an attempt that has ended"
        checkpoint, fed, ended = self.attempt
        assert snapshot.checkpoint == checkpoint
        assert set(snapshot.states) == set(self.workers)
        self.attempt = None
        in_flight_bytes = sum(data.nbytes for data in snapshot.in_flight)
        assert in_flight_bytes <= self.layout.max_in_flight_bytes
        if snapshot.aligned:
            assert not snapshot.in_flight
            expected = undisturbed(self.layout, fed, ended=ended)
            assert self._ids_of(snapshot) == expected.seen
            assert snapshot.finished == (frozenset(self.workers) if ended else frozenset())
            assert Counter(self._outputs_before(checkpoint)) == expected.outputs
        else:
            assert self.layout.timeout_ms is not None
            # It overtook after its time, and no instance saw a row after that.
            assert self.frozen == self._seen()
        self.completed.append(
            Completed(snapshot, fed, ended, tuple(self._outputs_before(checkpoint)))
        )

    def _outputs_before(self, checkpoint: int | None) -> list[str]:
        """Outputs before a checkpoint, or all, beginning with an older graph's."""
        found = list(self.before)
        for output in self.emitted:
            if checkpoint is None or output.precedes(checkpoint):
                found += [row_id for row_id, _, _ in to_rows(output.batch)]
        return found

    def _seen(self) -> dict[InstanceKey, int]:
        return {key: len(worker.seen) for key, worker in self.workers.items()}

    def _ids_seen(self) -> dict[InstanceKey, Counter[str]]:
        return {
            key: Counter(row_id for row_id, _, _ in worker.seen)
            for key, worker in self.workers.items()
        }

    def _ids_of(self, snapshot: RegionSnapshot) -> dict[InstanceKey, Counter[str]]:
        found = {}
        for key, state in snapshot.states.items():
            assert isinstance(state, tuple)
            found[key] = Counter(row_id for row_id, _, _ in state[0])
        return found

    def _check_order(self) -> None:
        """Each instance saw the rows of one sender in their order (R55)."""
        for worker in self.workers.values():
            of_sender: defaultdict[str, list[int]] = defaultdict(list)
            for _, sender, number in worker.seen:
                of_sender[sender].append(number)
            for sent in of_sender.values():
                assert sent == sorted(set(sent))


def resumed(history: History, base: Completed) -> History:
    """Return a history that begins with a snapshot of another one."""
    other = History(history.layout, now_ms=history.now_ms, newest=history.newest)
    other.begin(base)
    return other
