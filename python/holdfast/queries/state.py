"""The state of an ordinary query: the segments of its batches, and whether they can be read.

Nothing here takes a term or changes a file, so the query may run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast._core import CommitId, NewerFormatError, SegmentRef, SegmentReport
from holdfast.files.arrow_paths import ReadPath
from holdfast.files.paths import AnyPath
from holdfast.files.segments import StoredSegments, stored_segments
from holdfast.files.verdicts import UNREADABLE, Damage, Verdict
from holdfast.queries.folder import PROVIDER, STATE_FILES_FOLDER
from holdfast.queries.logs import committed_batches, entry_of, read_commit, read_plan
from holdfast.queries.store_forms import operators, read_operator


@dataclass(frozen=True)
class StoredSegment:
    """A segment that a batch needs; `report` is its content, or the error of reading it."""

    operator: int
    partition: int
    ref: SegmentRef
    report: SegmentReport | str

    @property
    def message(self) -> str | None:
        """Its error with its owner; None if it can be read."""
        if not isinstance(self.report, str):
            return None
        return f"{_named(self.operator, self.partition)}: {self.report}"


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful operator of a query at a batch, by the query's logs and metadata.

    Attributes
    ----------
    name : str or None
        Spark's name; None if no metadata describes the operator, as before Spark 4.0.
    stores, partitions : int or None
        Number of stores in all partitions, and of partitions; None without metadata.
    newest_segment_bytes : int or None
        Bytes of the newest segment of each store; None if Holdfast does not have the state.
    """

    operator: int
    name: str | None
    stores: int | None
    partitions: int | None
    newest_segment_bytes: int | None


def require_committed(folder: ReadPath, batch: int, logged: Sequence[int]) -> None:
    """Raise a FileNotFoundError unless a batch is in the commit log of a query."""
    if batch not in logged:
        there = f"{logged[0]} to {logged[-1]}" if logged else "none"
        raise FileNotFoundError(
            f"{folder}: expected batch {batch} in the commit log, found {there}"
        )


def chosen_batch(folder: ReadPath, batch: int | None) -> int:
    """Return a batch of the commit log, by default the newest; FileNotFoundError without it."""
    logged = committed_batches(folder)
    number = batch if batch is not None else max(logged, default=0)
    require_committed(folder, number, logged)
    return number


@dataclass
class StateOfQuery:
    """Reads the state of a query's batches. A segment of several batches is read once."""

    folder: AnyPath
    _reports: dict[SegmentRef, SegmentReport | str] = field(default_factory=dict)

    def segments(self, batch: int) -> Iterator[StoredSegment]:
        """Read the segments of a batch, by operator, partition and age, the oldest first.

        Pending input follows the content of its store. Raises an OSError, NewerFormatError or
        NotImplementedError if the commit log's entry cannot be read, or names no state of Holdfast.
        """
        return self._segments(self.ids(batch))

    def segments_of(self, stores: Iterable[tuple[int, int, str]]) -> Iterator[StoredSegment]:
        """Read the segments of stores by operator, partition and text of their ids, as above."""
        for operator, partition, text in stores:
            needed = CommitId.needed(partition, text) if CommitId.is_holdfasts(text) else []
            yield from self._segments((operator, parent, id) for parent, id in needed)

    def operators(self, batch: int) -> Iterator[StatefulOperator]:
        """Describe the stateful operators at a batch without a look at segments.

        Raises the errors of `segments`, and those of a description that is damaged.
        """
        sizes: Counter[int] = Counter()
        for operator, _, id in self.ids(batch):
            sizes[operator] += 0 if id.ref is None else id.ref.length
        for number in operators(self.folder):
            name = stores = partitions = None
            with suppress(NotImplementedError):
                found = read_operator(self.folder, number, batch)
                parts = [store.get("numPartitions", 0) for store in found.stores.values()]
                name, stores, partitions = found.name, sum(parts), max(parts, default=0)
            yield StatefulOperator(number, name, stores, partitions, sizes.get(number))

    def pending(self, batch: int) -> Iterator[tuple[int, int, int, list[StoredSegment]]]:
        """Yield operator, partition, batch and segments of pending inputs, which one store has."""
        with stored_segments(self.folder / STATE_FILES_FOLDER) as stored:
            for operator, partition, id in self.ids(batch):
                for version, ref in id.pending:
                    found = self._of_input(stored, operator, partition, version, id.version, ref)
                    yield operator, partition, version - 1, list(found)

    def _segments(self, ids: Iterable[tuple[int, int, CommitId]]) -> Iterator[StoredSegment]:
        with stored_segments(self.folder / STATE_FILES_FOLDER) as stored:
            for operator, partition, id in ids:
                if id.ref is not None:
                    yield from self._of_store(stored, operator, partition, id.ref)
                for version, ref in id.pending:
                    yield from self._of_input(stored, operator, partition, version, id.version, ref)

    def _of_store(
        self, stored: StoredSegments, operator: int, partition: int, id: SegmentRef
    ) -> Iterator[StoredSegment]:
        newest = self._inspect(stored, id)
        if isinstance(newest, str):
            yield StoredSegment(operator, partition, id, newest)
            return
        owner = newest.owner
        for ref in newest.lineage:
            report = self._inspect(stored, ref)
            if not isinstance(report, str) and report.owner != owner:
                report = _foreign(ref, str(owner), report)
            yield StoredSegment(operator, partition, ref, report)
        is_own = (owner.operator, owner.region) == (str(operator), str(partition))
        known = newest if is_own else _foreign(id, _named(operator, partition), newest)
        yield StoredSegment(operator, partition, id, known)

    def _of_input(
        self,
        stored: StoredSegments,
        operator: int,
        partition: int,
        first: int,
        newest: int,
        ref: SegmentRef,
    ) -> Iterator[StoredSegment]:
        # A later version may have stored the rest of the input again.
        last = self._inspect(stored, ref)
        pieces = [] if isinstance(last, str) else last.lineage
        expected = ("in_flight", str(operator), str(partition))
        for piece in [*pieces, ref]:
            report = self._inspect(stored, piece)
            if not isinstance(report, str):
                owner = report.owner
                found = (report.kind, owner.operator, owner.region)
                if found != expected or not first <= report.created <= newest:
                    report = (
                        f"segment {piece.file} at offset {piece.offset}: kind, operator and "
                        f"partition: expected {expected}, found {found}; version: expected "
                        f"{first} to {newest}, found {report.created}"
                    )
            yield StoredSegment(operator, partition, piece, report)

    def verify(self, batch: int, progress: Callable[[int, int], None]) -> Verdict:
        """Verify the state of one batch."""
        try:
            ids = list(self.ids(batch))
            partitions = {(operator, partition) for operator, partition, _ in ids}
            segments = []
            for segment in self._segments(ids):
                segments.append(segment)
                progress(len(segments), max(len(partitions), len(segments)))
        except UNREADABLE as error:
            return Verdict(batch, damage=(Damage(None, str(error)),))
        damage = tuple(
            Damage(_named(segment.operator, segment.partition), segment.message)
            for segment in segments
            if segment.message is not None
        )
        return Verdict(
            id=batch,
            parts=len(partitions),
            readable_parts=len(partitions) - len({one.part for one in damage}),
            segments=len(segments),
            readable_segments=len(segments) - len(damage),
            damage=damage,
        )

    def ids(self, batch: int) -> Iterator[tuple[int, int, CommitId]]:
        """Yield operator, partition and id of every store after a batch; see `segments` for errors.

        A view represents the stores of other partitions.
        """
        ids = read_commit(self.folder, batch)
        if self._is_foreign(batch, [id for _, _, id in ids]):
            return
        # Several views may name a store.
        seen = set()
        for operator, partition, id in ids:
            try:
                for parent, needed in CommitId.needed(partition, id):
                    one = (operator, parent, needed)
                    if one not in seen or not CommitId.is_view(id):
                        seen.add(one)
                        yield one
            except (*UNREADABLE, NewerFormatError) as error:
                where = f"{entry_of(self.folder, batch)}, {_named(operator, partition)}"
                raise type(error)(f"{where}: {error}") from None

    def _is_foreign(self, batch: int, ids: Sequence[str]) -> bool:
        """Say whether another provider had the state, before or after a move."""
        if any(map(CommitId.is_holdfasts, ids)):
            return False
        try:
            return read_plan(self.folder, batch).provider not in (PROVIDER, None)
        except FileNotFoundError:
            return False

    def _inspect(self, stored: StoredSegments, ref: SegmentRef) -> SegmentReport | str:
        if ref not in self._reports:
            try:
                self._reports[ref] = stored.inspect(ref)
            except UNREADABLE as error:
                self._reports[ref] = str(error)
        return self._reports[ref]


def _foreign(ref: SegmentRef, expected: str, report: SegmentReport) -> str:
    return (
        f"segment {ref.file} at offset {ref.offset}: owner: expected {expected}, "
        f"found {report.owner}"
    )


def _named(operator: int, partition: int) -> str:
    return f"operator {operator}, partition {partition}"
