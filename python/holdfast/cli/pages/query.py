"""The page of an ordinary query's checkpoint folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast._core import SegmentRef
from holdfast.cli.pages.elements import Element, add, element, svg
from holdfast.cli.pages.files import files_section, live_share
from holdfast.cli.pages.parts import bar, facts, legend, size_text, swatch_rect, table, wrong
from holdfast.cli.pages.scales import Scale
from holdfast.cli.pages.tables import Cell, Table
from holdfast.regions.base.printable import printable
from holdfast.regions.checkpoint.physical_files import PhysicalFile
from holdfast.regions.checkpoint.query_folder import QueryCheckpoint
from holdfast.regions.checkpoint.query_state import StoredSegment

#: Lines of the table of stores, the largest ones.
MAX_STORES: Final = 1_000

#: Batches that are drawn, the newest.
MAX_DRAWN: Final = 200

#: Kinds of segments that have all of a store.
_RUN_KINDS: Final = frozenset({"base_image", "run"})

_NAMES: Final = 90.0
_WIDTH: Final = 950.0
_HEIGHT: Final = 150.0
_WIDEST: Final = 26.0


@dataclass(frozen=True)
class Sums:
    """Segments added up: of runs, and of changelogs.

    Attributes
    ----------
    runs, changelogs, damaged : int
        Number of segments; those that cannot be read are of no known kind.
    run_bytes, changelog_bytes : int
        Their size in bytes.
    """

    runs: int = 0
    run_bytes: int = 0
    changelogs: int = 0
    changelog_bytes: int = 0
    damaged: int = 0

    @classmethod
    def of(cls, segments: Iterable[StoredSegment]) -> Sums:
        """Add up segments."""
        runs: list[int] = []
        changelogs: list[int] = []
        damaged = 0
        for segment in segments:
            if isinstance(segment.report, str):
                damaged += 1
            else:
                of_kind = runs if segment.report.kind in _RUN_KINDS else changelogs
                of_kind.append(segment.ref.length)
        return cls(len(runs), sum(runs), len(changelogs), sum(changelogs), damaged)

    @property
    def bytes(self) -> int:
        """Size of all in bytes."""
        return self.run_bytes + self.changelog_bytes


@dataclass(frozen=True)
class BatchFacts:
    """What a batch in the commit log needs.

    Attributes
    ----------
    batch : int
        The batch.
    needed, written : Sums
        All of its segments, and those among them that no older batch in the log needs.
    """

    batch: int
    needed: Sums
    written: Sums


@dataclass(frozen=True)
class StoreFacts:
    """A store in the batch whose stores are listed.

    Attributes
    ----------
    operator, partition : int
        Where it is.
    store : str or None
        Its name; None if no segment of it can be read.
    run_version, version : int or None
        Version of its newest run, if it has one, and of its newest segment.
    sums : Sums
        Its segments.
    entries : int
        Entries of all of them: a key has one in each in which it was written.
    """

    operator: int
    partition: int
    store: str | None
    run_version: int | None
    version: int | None
    sums: Sums
    entries: int


@dataclass(frozen=True)
class QueryFacts:
    """What a page is made from.

    Attributes
    ----------
    query : QueryCheckpoint
        What Spark's logs say.
    batches : sequence of BatchFacts
        Batches in the commit log, oldest first; none if the state is not in Holdfast.
    shown : int or None
        The batch whose stores are listed.
    stores : sequence of StoreFacts
        These.
    files : sequence of PhysicalFile
        Files of segments.
    wrong : sequence of str
        What cannot be read, a line each.
    """

    query: QueryCheckpoint
    batches: Sequence[BatchFacts]
    shown: int | None
    stores: Sequence[StoreFacts]
    files: Sequence[PhysicalFile]
    wrong: Sequence[str]


def batch_facts(batch: int, segments: Sequence[StoredSegment], seen: set[SegmentRef]) -> BatchFacts:
    """Return what a batch needs, and add its segments to those of older batches."""
    new = [segment for segment in segments if segment.ref not in seen]
    seen.update(segment.ref for segment in new)
    return BatchFacts(batch, needed=Sums.of(segments), written=Sums.of(new))


def store_facts(segments: Iterable[StoredSegment]) -> list[StoreFacts]:
    """Return the stores of a batch, by operator, partition and name."""
    found: dict[tuple[int, int, str], list[StoredSegment]] = {}
    for segment in segments:
        name = "" if isinstance(segment.report, str) else segment.report.owner.store
        found.setdefault((segment.operator, segment.partition, name), []).append(segment)
    return [_store(key, found[key]) for key in sorted(found)]


def _store(key: tuple[int, int, str], segments: Sequence[StoredSegment]) -> StoreFacts:
    reports = [one.report for one in segments if not isinstance(one.report, str)]
    operator, partition, name = key
    return StoreFacts(
        operator=operator,
        partition=partition,
        store=name or None,
        run_version=max((one.created for one in reports if one.kind in _RUN_KINDS), default=None),
        version=max((one.created for one in reports), default=None),
        sums=Sums.of(segments),
        entries=sum(one.entries for one in reports),
    )


def title_of(found: QueryFacts) -> str:
    """Return what the page is called."""
    return "Streaming query" + (f" {found.query.query}" if found.query.query else "")


def body_of(found: QueryFacts) -> Iterator[Element]:
    """Yield the sections of the page."""
    said = printable(found.query.describe())
    yield element("h1", title_of(found))
    yield element("p", f"{said}.", class_="muted")
    yield from wrong("This cannot be read:", found.wrong)
    yield _overview(found)
    if found.batches:
        yield from _batches(found.batches)
        yield from _stores(found)
        yield from files_section(
            found.files, needed_by="batches in the commit log", writers="executors"
        )


def _overview(found: QueryFacts) -> Element:
    query = found.query
    shown: dict[str, tuple[str | int | None, str]] = {
        "committed batch": (_known(query.committed), f"planned: {_known(query.planned)}"),
        "partitions": (_known(query.partitions), ""),
        "files": (len(found.files) or query.files, live_share(found.files)),
    }
    if found.batches:
        newest = found.batches[-1]
        shown |= {
            "batches in the log": (
                len(found.batches),
                f"{found.batches[0].batch} to {newest.batch}",
            ),
            "state of the newest": (
                size_text(newest.needed.bytes),
                f"{newest.needed.runs:,} runs, {newest.needed.changelogs:,} changelogs",
            ),
            "written by it": (size_text(newest.written.bytes), ""),
        }
    return facts(shown)


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def _batches(batches: Sequence[BatchFacts]) -> Iterator[Element]:
    yield element("h2", "Batches in the commit log")
    drawn = batches[-MAX_DRAWN:]
    left_out = "" if len(drawn) == len(batches) else f" It has the newest {len(drawn):,} batches."
    yield element(
        "p",
        "The picture has the bytes that a batch needs and no older batch in the log does: what was "
        f"written for it.{left_out} Maintenance writes runs, which stand for the changelogs "
        "before them.",
    )
    yield element("div", _picture(drawn), class_="wide")
    yield legend({"blue": "runs", "sky": "changelogs, above them"})
    columns = ["batch", "runs", "run bytes", "changelogs", "changelog bytes"]
    columns += ["bytes needed", "bytes written", "damaged"]
    rows: list[list[Cell]] = [
        [
            one.batch,
            one.needed.runs,
            one.needed.run_bytes,
            one.needed.changelogs,
            one.needed.changelog_bytes,
            one.needed.bytes,
            one.written.bytes,
            one.needed.damaged,
        ]
        for one in reversed(drawn)
    ]
    yield table(
        Table(columns, rows, frozenset()), of="batches, newest first", all_rows=len(batches)
    )


def _picture(batches: Sequence[BatchFacts]) -> Element:
    scale = Scale.linear([one.written.bytes for one in batches], _HEIGHT)
    width = min(_WIDEST, _WIDTH / len(batches))
    span = width * len(batches)
    foot = _HEIGHT + 14
    picture = svg(
        _NAMES + max(span, 260.0) + 4,
        foot + 28,
        said=f"Bytes written for batches {batches[0].batch} to {batches[-1].batch}.",
    )
    for tick in scale.byte_ticks():
        y = foot - scale.at(tick)
        add(
            picture,
            element("path", d=f"M{_NAMES:g} {y:.1f}h{span:.1f}", class_="axis"),
            element("text", size_text(round(tick)), x=_NAMES - 8, y=y + 4, class_="quiet right"),
        )
    for number, one in enumerate(batches):
        x = _NAMES + number * width
        runs, all = scale.at(one.written.run_bytes), scale.at(one.written.bytes)
        thick = width - 1 if width > 3 else width
        said = (
            f"batch {one.batch}: {size_text(one.written.run_bytes)} of runs, "
            f"{size_text(one.written.changelog_bytes)} of changelogs"
        )
        column = element("g", element("title", said))
        if runs:
            add(column, swatch_rect("blue", x, foot - runs, thick, runs))
        if all > runs:
            add(column, swatch_rect("sky", x, foot - all, thick, all - runs))
        add(picture, column)
    said = f"batches {batches[0].batch} to {batches[-1].batch}"
    add(picture, element("text", said, x=_NAMES, y=foot + 18, class_="quiet"))
    return picture


def _stores(found: QueryFacts) -> Iterator[Element]:
    yield element("h2", f"Stores of batch {found.shown}")
    if found.shown not in {one.batch for one in found.batches}:
        yield element("p", "Its entry in the commit log cannot be read, or is gone meanwhile.")
        return
    stores = sorted(found.stores, key=lambda one: -one.sums.bytes)[:MAX_STORES]
    if not stores:
        yield element("p", "It has none with state.")
        return
    yield element("p", "The largest come first. Entries are those of all segments of a store.")
    columns = ["operator", "partition", "store", "version", "newest run of"]
    columns += ["run bytes", "changelogs", "changelog bytes", "entries", "damaged"]
    rows: list[list[Cell]] = [
        [
            one.operator,
            one.partition,
            None if one.store is None else printable(one.store),
            one.version,
            one.run_version,
            one.sums.run_bytes,
            one.sums.changelogs,
            one.sums.changelog_bytes,
            one.entries,
            one.sums.damaged,
        ]
        for one in stores
    ]
    largest = stores[0].sums.bytes
    bars = [
        bar(
            [("blue", one.sums.run_bytes), ("sky", one.sums.changelog_bytes)],
            largest,
            said=f"{size_text(one.sums.run_bytes)} of runs, "
            f"{size_text(one.sums.changelog_bytes)} of changelogs",
        )
        for one in stores
    ]
    yield table(
        Table(columns, rows, frozenset({"store"})),
        of="stores",
        all_rows=len(found.stores),
        extra={"size": bars},
    )
