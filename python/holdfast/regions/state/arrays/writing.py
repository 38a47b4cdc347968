"""Writes the chunks of an array that no older segment has, several segments at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from holdfast._core import SegmentRef
from holdfast.regions.base.addresses import address_bytes_max
from holdfast.regions.base.saved import Append
from holdfast.regions.state.arrays.chunks import Flags, Layout, Place, Places, Run

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Segments of an array that are compressed and written at a time. Each has a thread.
WRITTEN_AT_ONCE: Final = 3


def write_runs(
    places: Places,
    keep: Flags,
    contents: Iterable[tuple[Run, Buffer]],
    layout: Layout,
    append: Append,
) -> list[Place]:
    """Write the chunks that changed; returns where every chunk is now.

    `keep` says which chunks remain in `places`; `contents` has the others in order. A buffer may be
    read until `WRITTEN_AT_ONCE` more were asked for. Several threads call `append`.
    """
    now = [place if stays else None for place, stays in zip(places, keep.tolist(), strict=True)]
    for runs, ref in _appended(_packed(contents, layout.segment_bytes), append):
        payload_bytes, offset = sum(run.stop - run.start for run in runs), 0
        for run in runs:
            for start in range(run.start, run.stop, layout.chunk_bytes):
                place = Place(ref, offset + start - run.start, payload_bytes)
                now[start // layout.chunk_bytes] = place
            offset += run.stop - run.start
    complete = [place for place in now if place is not None]
    if len(complete) != len(now):
        raise AssertionError("a chunk is neither kept nor written")
    return complete


def _packed(
    contents: Iterable[tuple[Run, Buffer]], segment_bytes: int
) -> Iterator[tuple[list[Run], Buffer]]:
    """Put runs below an eighth of a segment together, because a segment for each costs more."""
    runs: list[Run] = []
    pack = bytearray()
    for run, content in contents:
        size = run.stop - run.start
        if size >= segment_bytes // 8:
            yield [run], content
            continue
        if len(pack) + size > segment_bytes:
            yield runs, pack
            runs, pack = [], bytearray()
        runs.append(run)
        pack += content
    if runs:
        yield runs, pack


def _appended(
    contents: Iterable[tuple[list[Run], Buffer]], append: Append
) -> Iterator[tuple[list[Run], SegmentRef]]:
    """Append segments, some at a time; yields them in order."""
    if address_bytes_max() is not None:
        # Stacks and buffers of threads would count.
        yield from ((runs, append(content)) for runs, content in contents)
        return
    waiting: deque[tuple[list[Run], Future[SegmentRef]]] = deque()
    with ThreadPoolExecutor(WRITTEN_AT_ONCE) as pool:
        for runs, content in contents:
            waiting.append((runs, pool.submit(append, content)))
            if len(waiting) == WRITTEN_AT_ONCE:
                before, written = waiting.popleft()
                yield before, written.result()
        for before, written in waiting:
            yield before, written.result()
