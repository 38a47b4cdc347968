"""Writes the chunks of an array that no older segment has, several segments at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from holdfast._core import SegmentRef
from holdfast.regions.base.addresses import address_bytes_max
from holdfast.regions.state.chunks import Flags, Layout, Place, Places, Run
from holdfast.regions.state.saved import Append

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
    """Write the chunks that changed; returns where every chunk lies now.

    Several threads call `append`.

    Parameters
    ----------
    places : sequence of Place or None
        Former places of the chunks.
    keep : array of bool, one per chunk
        Chunks that stay there.
    contents : iterable of (Run, buffer)
        The others, in order. A buffer may be looked at until `WRITTEN_AT_ONCE` more were asked for.
    """
    now = [place if stays else None for place, stays in zip(places, keep.tolist(), strict=True)]
    for run, ref in _appended(contents, append):
        for start in range(run.start, run.stop, layout.chunk_bytes):
            place = Place(ref, start - run.start, run.stop - run.start)
            now[start // layout.chunk_bytes] = place
    complete = [place for place in now if place is not None]
    if len(complete) != len(now):
        raise AssertionError("a chunk is neither kept nor written")
    return complete


def _appended(
    contents: Iterable[tuple[Run, Buffer]], append: Append
) -> Iterator[tuple[Run, SegmentRef]]:
    """Append segments, some at a time; yields them in order."""
    if address_bytes_max() is not None:
        # Stacks and buffers of threads would count.
        yield from ((run, append(content)) for run, content in contents)
        return
    waiting: deque[tuple[Run, Future[SegmentRef]]] = deque()
    with ThreadPoolExecutor(WRITTEN_AT_ONCE) as pool:
        for run, content in contents:
            waiting.append((run, pool.submit(append, content)))
            if len(waiting) == WRITTEN_AT_ONCE:
                before, written = waiting.popleft()
                yield before, written.result()
        for before, written in waiting:
            yield before, written.result()
